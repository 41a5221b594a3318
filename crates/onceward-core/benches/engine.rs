//! Begin and complete through the engine, beside claim and settle on the bare store: the cost of
//! the engine for a request with a fast handler.
//!
//! Only ratios and differences within one run count; `docs/benchmarks.md` shows and explains one.
//! On a busy machine the processor time says more than the clock, so it is printed first.

use std::env;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use onceward_core::{
    Begin, Claim, ClaimRequest, Drained, Engine, Fenced, Fingerprint, FullStore, Holder, Identity,
    Intent, Key, Lapsed, MemoryLimits, MemoryStore, OperationId, Outcome, OwnerToken, RecordId,
    Retention, Scope, SettleRequest, Settled, Settlement, Sketch, SystemAmbient, Tag, Unpurged,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Pairs in a sample: enough to make the start of two threads and 64 tasks negligible.
const PAIRS: u64 = 100_000;

const LEASE: Duration = Duration::from_secs(30);
const KEEP: Duration = Duration::from_secs(24 * 3600);

static INTENTS: LazyLock<Arc<[Intent]>> = LazyLock::new(|| (0..PAIRS).map(intent).collect());
static IDS: LazyLock<Vec<RecordId>> = LazyLock::new(|| {
    let identity = Identity::unkeyed();
    INTENTS.iter().map(|intent| identity.record_id(&intent.scope, &intent.key)).collect()
});

static ONE_THREAD: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());
static TWO_THREADS: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

fn main() {
    LazyLock::force(&IDS);
    // `cargo test` runs each benchmark once, to check that it works.
    if env::args().any(|arg| arg == "--bench") {
        print_processor_time();
    }
    divan::main();
}

#[divan::bench(
    types = [BareStore, ThroughEngine],
    args = SETTINGS,
    sample_count = 50,
    sample_size = 1,
)]
fn pair<T: Subject>(bencher: Bencher, setting: Setting) {
    bencher
        .counter(ItemsCount::new(PAIRS))
        .with_inputs(|| Arc::new(T::empty()))
        .bench_local_refs(|subject| setting.runtime.block_on(share_out(subject, setting.tasks)));
}

const SETTINGS: [Setting; 3] =
    [Setting::ONE_THREAD, Setting::two_threads(1), Setting::two_threads(64)];

/// A runtime, and the number of tasks on it.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    runtime: &'static LazyLock<Runtime>,
    tasks: u64,
}

impl Setting {
    const ONE_THREAD: Self = Self { name: "current thread", runtime: &ONE_THREAD, tasks: 1 };

    const fn two_threads(tasks: u64) -> Self {
        Self { name: "two threads", runtime: &TWO_THREADS, tasks }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} tasks", self.name, self.tasks)
    }
}

async fn share_out<T: Subject>(subject: &Arc<T>, tasks: u64) {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let subject = Arc::clone(subject);
        running.spawn(async move {
            for n in share(task, tasks) {
                subject.pair(n).await;
            }
        });
    }
    running.join_all().await;
    subject.finish().await;
}

/// The keys of one task.
fn share(task: u64, tasks: u64) -> Range<usize> {
    let edge = |task: u64| usize::try_from(task * PAIRS / tasks).unwrap();
    edge(task)..edge(task + 1)
}

// The subjects.

trait Subject: Send + Sync + 'static {
    fn empty() -> Self;

    /// Claims the `n`-th key, which is fresh, and completes it.
    fn pair(&self, n: usize) -> impl Future<Output = ()> + Send;

    /// Waits for background work, which is part of the cost.
    fn finish(&self) -> impl Future<Output = ()> + Send;
}

/// The bare store, with requests for which nothing is hashed or drawn.
struct BareStore(Arc<dyn FullStore>);

impl Subject for BareStore {
    fn empty() -> Self {
        Self(store())
    }

    async fn pair(&self, n: usize) {
        let request = claim_request(n);
        let Ok(Claim::Granted { lease, .. }) = self.0.claim(&request).await else {
            panic!("a fresh key")
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let settled = self.0.settle(&settle_request(request.id, holder)).await;
        assert_eq!(settled.unwrap(), Fenced::Applied(()));
    }

    async fn finish(&self) {}
}

/// The engine, with identity, permit and lease renewal.
struct ThroughEngine(Engine);

impl Subject for ThroughEngine {
    fn empty() -> Self {
        Self(Engine::new(store()))
    }

    async fn pair(&self, n: usize) {
        let Ok(Begin::Execute(permit)) = self.0.begin(&INTENTS[n]).await else {
            panic!("a fresh key")
        };
        assert_eq!(permit.complete(outcome()).await, Settled::Durable);
    }

    async fn finish(&self) {
        assert_eq!(self.0.drain(KEEP).await, Drained::Finished);
    }
}

// The requests.

fn store() -> Arc<dyn FullStore> {
    let limits = MemoryLimits { records_max: u64::MAX, bytes_max: u64::MAX };
    Arc::new(MemoryStore::with(limits, Arc::new(SystemAmbient::new())))
}

fn intent(n: u64) -> Intent {
    let scope = Scope::new("acme", "checkout", "payments.create").unwrap();
    let key = Key::new(Uuid::from_u128(u128::from(n)).to_string()).unwrap();
    Intent::new(scope, key, Fingerprint::from_digest(16, [7; 32]))
}

fn claim_request(n: usize) -> ClaimRequest {
    let name = Uuid::from_u128(n as u128);
    ClaimRequest {
        id: IDS[n],
        owner: OwnerToken::from_bytes(*name.as_bytes()),
        operation: OperationId::from(name),
        scope: INTENTS[n].scope.clone(),
        key: None,
        fingerprint: INTENTS[n].fingerprint,
        sketch: Sketch::default(),
        path: None,
        lease: LEASE,
        lapsed: Lapsed::Unknown,
        unpurged: Unpurged::Replace,
    }
}

fn settle_request(id: RecordId, holder: Holder) -> SettleRequest {
    let retention = Retention { keep: KEEP, tombstone: Duration::ZERO };
    SettleRequest { id, holder, settlement: Settlement::Complete(outcome()), retention }
}

/// A small JSON reply, like most outcomes.
fn outcome() -> Outcome {
    Outcome::whole(Tag::from_static("bench/v1"), Bytes::copy_from_slice(&[b'x'; 200]))
}

// Processor time, which other processes disturb less than the clock.

fn print_processor_time() {
    println!("processor time of a pair in ns, on all threads together (lower quartile)");
    for setting in SETTINGS {
        let (bare, engine) =
            (processor_ns::<BareStore>(setting), processor_ns::<ThroughEngine>(setting));
        println!("  {:<26} bare {bare:>5}   engine {engine:>5}", setting.to_string());
    }
    println!();
}

fn processor_ns<T: Subject>(setting: Setting) -> u64 {
    let mut samples = [(); 24].map(|()| {
        let subject = Arc::new(T::empty());
        let before = processor_ns_so_far();
        setting.runtime.block_on(share_out(&subject, setting.tasks));
        (processor_ns_so_far() - before) / PAIRS
    });
    samples.sort_unstable();
    samples[samples.len() / 4]
}

/// Sum over all live threads; the runtimes keep theirs.
fn processor_ns_so_far() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads
        .map(|thread| fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap())
        .map(|schedstat| schedstat.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}
