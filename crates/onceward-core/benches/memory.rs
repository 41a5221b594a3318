//! Claim and complete on the memory store, beside the simplest tables for the same job: a locked
//! map and a concurrent map, without leases, fences, expiry or limits.
//!
//! Only ratios within one run count; `docs/benchmarks.md` shows and explains one.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use divan::Bencher;
use divan::counter::ItemsCount;
use onceward_core::{
    Begin, Claim, ClaimRequest, Clock, Drained, Engine, Fenced, Fingerprint, Holder, Intent, Key,
    Lapsed, MemoryLimits, MemoryStore, OperationId, Outcome, OwnerToken, Record, RecordId,
    Retention, Scope, SettleRequest, Settled, Settlement, Sketch, Store, StoreAdmin, SystemAmbient,
    Tag, Timestamp, Unpurged,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use uuid::Uuid;

/// A small JSON reply, like most outcomes.
const OUTCOME_BYTES: usize = 200;
static OUTCOME: [u8; OUTCOME_BYTES] = [b'x'; OUTCOME_BYTES];

/// Pairs in a sample: enough to make the start of two threads and 64 tasks negligible.
const PAIRS: u64 = 100_000;
/// Pairs in a sample where tables of different sizes are compared: few for the smallest.
const PAIRS_GROWTH: u64 = 5_000;
/// Records whose memory is measured: enough to make the process's own negligible.
const WEIGHED: u64 = 1_000_000;

/// Retention of a sample's records: longer than a lease, and over before the next sample.
const BRIEFLY: Duration = Duration::from_secs(60);
/// Retention of the records that a sample finds: longer than all samples.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

static SCOPE: LazyLock<Scope> =
    LazyLock::new(|| Scope::new("acme", "checkout", "payments.create").unwrap());

fn main() {
    match env::args().skip_while(|arg| arg != WEIGH).nth(1) {
        Some(table) => println!("{}", weigh_by_name(&table)),
        None => {
            if measuring() {
                print_weights();
            }
            divan::main();
        }
    }
}

/// True for `cargo bench`. `cargo test` runs each benchmark once, to check that it works, and
/// should not take minutes.
fn measuring() -> bool {
    env::args().any(|arg| arg == "--bench")
}

// The jobs.

/// Fresh keys on an empty table, claimed and completed by some tasks on two threads.
#[divan::bench(
    types = [Onceward, MutexMap, ShardedMap],
    args = [1, 2, 64],
    sample_count = 50,
    sample_size = 1,
)]
fn claim_complete<T: Table>(bencher: Bencher, tasks: u64) {
    bencher
        .counter(ItemsCount::new(PAIRS))
        .with_inputs(|| Arc::new(T::empty()))
        .bench_local_refs(|table| RUNTIME.block_on(share_out(table, tasks)));
}

/// The same through the engine, with identity, permit and lease renewal.
#[divan::bench(args = [1, 64], sample_count = 30, sample_size = 1)]
fn engine_begin_complete(bencher: Bencher, tasks: u64) {
    let intents: Arc<[Intent]> = (0..PAIRS).map(intent).collect();
    bencher
        .counter(ItemsCount::new(PAIRS))
        .with_inputs(|| Engine::new(Onceward::empty().store))
        .bench_local_refs(|engine| RUNTIME.block_on(share_out_intents(engine, &intents, tasks)));
}

/// Fresh keys in a table with that many keys. The keys of a sample are removed outside of the
/// measured time, so the table keeps its size and the next sample reuses the memory.
#[divan::bench(
    types = [Onceward, MutexMap, ShardedMap],
    args = sizes(),
    sample_count = 200,
    sample_size = 1,
)]
fn growth<T: Table>(bencher: Bencher, size: u64) {
    let table = T::empty();
    RUNTIME.block_on(work(&table, 0..size, LONG));
    let mut keys = size..size;
    bencher
        .counter(ItemsCount::new(PAIRS_GROWTH))
        .with_inputs(|| {
            table.forget(keys.clone());
            keys = keys.end..keys.end + PAIRS_GROWTH;
            keys.clone()
        })
        .bench_local_values(|keys| RUNTIME.block_on(work(&table, keys, BRIEFLY)));
}

fn sizes() -> &'static [u64] {
    if measuring() { &[10_000, 100_000, 1_000_000, 10_000_000] } else { &[100] }
}

async fn share_out<T: Table>(table: &Arc<T>, tasks: u64) {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let table = Arc::clone(table);
        running.spawn(async move { work(&*table, share(task, tasks), BRIEFLY).await });
    }
    running.join_all().await;
}

async fn share_out_intents(engine: &Engine, intents: &Arc<[Intent]>, tasks: u64) {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (engine, intents) = (engine.clone(), Arc::clone(intents));
        running.spawn(async move {
            for n in share(task, tasks) {
                begin_complete(&engine, &intents[usize::try_from(n).unwrap()]).await;
            }
        });
    }
    running.join_all().await;
    // The drain waits for background work, which is part of the cost.
    assert_eq!(engine.drain(BRIEFLY).await, Drained::Finished);
}

/// The keys of one task.
fn share(task: u64, tasks: u64) -> Range<u64> {
    task * PAIRS / tasks..(task + 1) * PAIRS / tasks
}

async fn work<T: Table>(table: &T, keys: Range<u64>, keep: Duration) {
    for n in keys {
        table.claim_complete(n, keep).await;
    }
}

async fn begin_complete(engine: &Engine, intent: &Intent) {
    let Ok(Begin::Execute(permit)) = engine.begin(intent).await else { panic!("a fresh key") };
    assert_eq!(permit.complete(outcome()).await, Settled::Durable);
}

// The tables.

/// A table of claimed keys and their outcomes.
trait Table: Send + Sync + 'static {
    fn empty() -> Self;

    /// Takes the `n`-th key, which is fresh, and writes its outcome.
    fn claim_complete(&self, n: u64, keep: Duration) -> impl Future<Output = ()> + Send;

    /// Removes keys that were to be kept briefly.
    fn forget(&self, keys: Range<u64>);
}

/// The memory store, with all its guarantees.
struct Onceward {
    store: Arc<MemoryStore>,
    clock: Arc<Forwarded>,
}

impl Table for Onceward {
    fn empty() -> Self {
        let clock = Arc::new(Forwarded::default());
        let limits = MemoryLimits { records_max: u64::MAX, bytes_max: u64::MAX };
        let store = MemoryStore::with(limits, Arc::<Forwarded>::clone(&clock));
        Self { store: Arc::new(store), clock }
    }

    async fn claim_complete(&self, n: u64, keep: Duration) {
        let request = claim_request(n);
        let Ok(Claim::Granted { lease, .. }) = self.store.claim(&request).await else {
            panic!("a fresh key")
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let settled = self.store.settle(&settle_request(request.id, holder, keep)).await;
        assert_eq!(settled.unwrap(), Fenced::Applied(()));
    }

    fn forget(&self, keys: Range<u64>) {
        self.clock.forward(2 * BRIEFLY);
        let purged = RUNTIME.block_on(self.store.purge(usize::MAX)).unwrap();
        assert_eq!(purged.removed as u64, keys.end - keys.start);
    }
}

/// The machine's clock, set forward to let records expire.
#[derive(Default)]
struct Forwarded {
    machine: SystemAmbient,
    by_ms: AtomicU64,
}

impl Forwarded {
    fn forward(&self, by: Duration) {
        self.by_ms.fetch_add(by.as_millis().try_into().unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Forwarded {
    fn now(&self) -> Timestamp {
        self.machine.now() + Duration::from_millis(self.by_ms.load(Ordering::Relaxed))
    }
}

type Slot = (Taken, Box<[u8]>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Running,
    Completed,
}

/// The simplest table: a map behind a lock.
#[derive(Default)]
struct MutexMap(Mutex<HashMap<[u8; 32], Slot, FirstBytes>>);

impl Table for MutexMap {
    fn empty() -> Self {
        Self::default()
    }

    async fn claim_complete(&self, n: u64, _keep: Duration) {
        let id = id(n);
        self.0.lock().entry(id).or_insert_with(|| (Taken::Running, Box::default()));
        let old = self.0.lock().insert(id, (Taken::Completed, Box::from(OUTCOME)));
        assert!(old.is_some_and(|(taken, _)| taken == Taken::Running));
    }

    fn forget(&self, keys: Range<u64>) {
        keys.for_each(|n| assert!(self.0.lock().remove(&id(n)).is_some()));
    }
}

/// The usual table where that lock is contended: dashmap.
#[derive(Default)]
struct ShardedMap(DashMap<[u8; 32], Slot, FirstBytes>);

impl Table for ShardedMap {
    fn empty() -> Self {
        Self::default()
    }

    async fn claim_complete(&self, n: u64, _keep: Duration) {
        let id = id(n);
        self.0.entry(id).or_insert_with(|| (Taken::Running, Box::default()));
        let old = self.0.insert(id, (Taken::Completed, Box::from(OUTCOME)));
        assert!(old.is_some_and(|(taken, _)| taken == Taken::Running));
    }

    fn forget(&self, keys: Range<u64>) {
        keys.for_each(|n| assert!(self.0.remove(&id(n)).is_some()));
    }
}

/// Hashes an id by its first bytes, as the memory store does: an id is a hash already.
type FirstBytes = BuildHasherDefault<FirstBytesHasher>;

#[derive(Default)]
struct FirstBytesHasher(u64);

impl Hasher for FirstBytesHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    }

    /// The length, which is always 32.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

// The keys and the requests.

/// As evenly spread as an HMAC, at almost no cost.
fn id(n: u64) -> [u8; 32] {
    let mut id = [0; 32];
    for (word, salt) in id.chunks_exact_mut(8).zip(0..) {
        word.copy_from_slice(&splitmix64(4 * n + salt).to_le_bytes());
    }
    id
}

fn splitmix64(n: u64) -> u64 {
    let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn claim_request(n: u64) -> ClaimRequest {
    ClaimRequest {
        id: RecordId::from_bytes(id(n)),
        owner: OwnerToken::from_bytes(u128::from(n).to_le_bytes()),
        operation: OperationId::from(Uuid::from_u128(u128::from(n))),
        scope: SCOPE.clone(),
        key: None,
        fingerprint: fingerprint(),
        sketch: Sketch::default(),
        path: None,
        lease: BRIEFLY / 2,
        lapsed: Lapsed::Unknown,
        unpurged: Unpurged::Replace,
    }
}

fn settle_request(id: RecordId, holder: Holder, keep: Duration) -> SettleRequest {
    let retention = Retention { keep, tombstone: Duration::ZERO };
    SettleRequest { id, holder, settlement: Settlement::Complete(outcome()), retention }
}

fn outcome() -> Outcome {
    Outcome::whole(Tag::from_static("bench/v1"), Bytes::copy_from_slice(&OUTCOME))
}

fn intent(n: u64) -> Intent {
    let key = Key::new(Uuid::from_u128(u128::from(n)).to_string()).unwrap();
    Intent::new(SCOPE.clone(), key, fingerprint())
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_digest(16, [7; 32])
}

// The memory of a record.

/// Asks this program to weigh one table and print the bytes of a record.
const WEIGH: &str = "--weigh";

fn print_weights() {
    println!("bytes of a completed record, where {WEIGHED} share a scope");
    println!("  {:<30}{OUTCOME_BYTES:>6}", "its outcome");
    println!("  {:<30}{:>6}", "the struct Record", size_of::<Record>());
    println!("  {:<30}{:>6}", "Onceward by its own stats", counted());
    for table in ["Onceward", "MutexMap", "ShardedMap"] {
        println!("  {:<30}{:>6}", format!("{table} resident"), weigh_apart(table));
    }
    println!();
}

/// Weighs a table in its own process, without free memory of an earlier table.
fn weigh_apart(table: &str) -> u64 {
    let program = env::current_exe().unwrap();
    let weighed = Command::new(program).args([WEIGH, table]).output().unwrap();
    String::from_utf8(weighed.stdout).unwrap().trim().parse().unwrap()
}

fn weigh_by_name(table: &str) -> u64 {
    match table {
        "Onceward" => weigh::<Onceward>(),
        "MutexMap" => weigh::<MutexMap>(),
        "ShardedMap" => weigh::<ShardedMap>(),
        other => panic!("no table {other}"),
    }
}

fn weigh<T: Table>() -> u64 {
    let table = T::empty();
    let before = resident_bytes();
    RUNTIME.block_on(work(&table, 0..WEIGHED, LONG));
    (resident_bytes() - before) / WEIGHED
}

/// The size by the store's own stats, with which its limit is compared.
fn counted() -> u64 {
    let table = Onceward::empty();
    RUNTIME.block_on(async {
        work(&table, 0..1000, LONG).await;
        table.store.stats().await.unwrap().bytes / 1000
    })
}

/// Reads the process status, which is in kB whatever the page size.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
