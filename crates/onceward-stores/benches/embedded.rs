//! The embedded store beside the limit of the disk, SQLite and redb, in one run.
//!
//! ```text
//! cargo bench -p onceward-stores --features embedded --bench embedded -- [option…]
//!   --seconds 3       how long each measurement takes
//!   --tasks 1,64,512  how many tasks claim and complete
//!   --present 0       records that are there before (in thousands)
//!   --rounds 1        how often everything is measured
//!   --churn 100       thousands of records in a retention window; 0 leaves churn out
//!   --alone           leave SQLite and redb out
//! ```
//!
//! Every operation is answered after an fsync that covers it. The limit appends the very
//! batches that the store made (as many bytes, as many calls) to a file written before, with
//! one fdatasync each, and does nothing else. Only ratios of one run count.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at a failure")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward_core::{
    Claim, ClaimRequest, Clock, Fenced, Fingerprint, Holder, Lapsed, OperationId, Outcome,
    OwnerToken, RecordId, Retention, Scope, SettleRequest, Settlement, Sketch, Store as _,
    StoreAdmin as _, SystemAmbient, Tag, Timestamp,
};
use onceward_stores::embedded::{Disk, EmbeddedStore, MachineDisk, Settings, Surroundings};
use tokio::sync::{mpsc, oneshot};

const OUTCOME_BYTES: usize = 1024;
const SLICES: usize = 5;

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for round in 0..options.rounds {
        println!("round {}", round + 1);
        runtime.block_on(compare(&options));
    }
    if options.churn > 0 {
        runtime.block_on(churn(options.churn));
    }
}

struct Options {
    seconds: f64,
    tasks: Vec<usize>,
    present: u64,
    rounds: usize,
    churn: u64,
    alone: bool,
}

impl Options {
    fn parse() -> Self {
        let words: Vec<String> = std::env::args().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).cloned()
        };
        let number = |name: &str, or: u64| value(name).map_or(or, |it| it.parse().expect(name));
        Self {
            seconds: value("--seconds").map_or(3.0, |it| it.parse().expect("--seconds")),
            tasks: value("--tasks")
                .unwrap_or_else(|| "1,64,512".into())
                .split(',')
                .map(|it| it.parse().expect("--tasks"))
                .collect(),
            present: number("--present", 0) * 1_000,
            rounds: number("--rounds", 1) as usize,
            churn: number("--churn", 100) * 1_000,
            alone: words.iter().any(|word| word == "--alone"),
        }
    }
}

async fn compare(options: &Options) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let disk = Arc::new(CountingDisk::default());
    let open = || {
        let surroundings = Surroundings { disk: Arc::clone(&disk) as _, ..Surroundings::default() };
        EmbeddedStore::open_in(directory.path(), Settings::default(), surroundings).unwrap()
    };
    let mut store = Arc::new(open());
    if options.present > 0 {
        store = preload(store, options.present, &open).await;
    }
    for tasks in &options.tasks {
        let (mut all, mut limit) = (Measured::default(), Limit::default());
        // In slices, one after another, because the disk is not the same a second later.
        for _ in 0..SLICES {
            let seconds = options.seconds / SLICES as f64;
            disk.reset();
            let ours = measure(Arc::new(Ours(Arc::clone(&store))), *tasks, seconds).await;
            limit.add(directory.path(), disk.counts(), ours.operations, seconds);
            all.add(ours);
        }
        println!("  {tasks} tasks: {limit}");
        let rate = limit.rate();
        all.print("embedded", rate);
        if !options.alone && options.present == 0 {
            peer::<Sqlite>("sqlite", *tasks, options.seconds, rate).await;
            peer::<Redb>("redb", *tasks, options.seconds, rate).await;
        }
    }
    println!("  memory {} MB resident, {} MB at most", resident("VmRSS"), resident("VmHWM"));
}

async fn preload(
    store: Arc<EmbeddedStore>,
    count: u64,
    open: &impl Fn() -> EmbeddedStore,
) -> Arc<EmbeddedStore> {
    let started = Instant::now();
    let left = Arc::new(AtomicU64::new(count));
    let tasks: Vec<_> = (0..1024)
        .map(|_| {
            let (ours, left) = (Ours(Arc::clone(&store)), Arc::clone(&left));
            tokio::spawn(async move {
                let took = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, took).is_ok() {
                    let granted = ours.claim().await;
                    ours.complete(granted).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    println!("  {count} records in {:.0} s", started.elapsed().as_secs_f64());
    println!("  memory {} MB resident, {} MB at most", resident("VmRSS"), resident("VmHWM"));
    let path = format!("{store:?}");
    drop(store);
    let started = Instant::now();
    let store = Arc::new(open());
    println!(
        "  reopened in {:.2} s, {} MB resident",
        started.elapsed().as_secs_f64(),
        resident("VmRSS")
    );
    let stats = store.stats().await.unwrap();
    println!("  {} records, {} bytes encoded, {path}", stats.records, stats.bytes);
    store
}

/// What is measured: two calls that each answer after an fsync.
trait Target: Send + Sync + 'static {
    type Granted: Send;
    fn claim(&self) -> impl Future<Output = Self::Granted> + Send;
    fn complete(&self, granted: Self::Granted) -> impl Future<Output = ()> + Send;
}

#[derive(Default)]
struct Measured {
    operations: u64,
    seconds: f64,
    claim_micros: Vec<u32>,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.seconds += other.seconds;
        self.claim_micros.extend(other.claim_micros);
    }

    fn print(mut self, name: &str, limit: f64) {
        self.claim_micros.sort_unstable();
        let at = |share: f64| {
            let place = (self.claim_micros.len() as f64 * share) as usize;
            self.claim_micros.get(place).copied().unwrap_or_default()
        };
        let rate = self.operations as f64 / self.seconds;
        println!(
            "    {name:<10} {rate:>9.0} op/s  {:.2} of the limit, claim p50 {} µs, p99 {} µs",
            rate / limit,
            at(0.5),
            at(0.99)
        );
    }
}

async fn measure<T: Target>(target: Arc<T>, tasks: usize, seconds: f64) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (target, stop) = (Arc::clone(&target), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut micros = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let granted = target.claim().await;
                    micros.push(asked.elapsed().as_micros() as u32);
                    target.complete(granted).await;
                }
                micros
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut claim_micros = Vec::new();
    for task in running {
        claim_micros.extend(task.await.unwrap());
    }
    let seconds = started.elapsed().as_secs_f64();
    Measured { operations: claim_micros.len() as u64 * 2, seconds, claim_micros }
}

/// The embedded store.
struct Ours(Arc<EmbeddedStore>);

impl Target for Ours {
    type Granted = (RecordId, Holder);

    async fn claim(&self) -> Self::Granted {
        thread_local! {
            static SCOPE: Scope = Scope::new("tenant-a", "checkout", "payments.create").unwrap();
            static AMBIENT: SystemAmbient = SystemAmbient::new();
        }
        let (owner, operation) =
            AMBIENT.with(|ambient| (OwnerToken::draw(ambient), OperationId::draw(ambient)));
        let request = ClaimRequest {
            id: RecordId::from_bytes(random_id()),
            owner,
            operation,
            scope: SCOPE.with(Scope::clone),
            key: None,
            fingerprint: Fingerprint::from_digest(1, [7; 32]),
            sketch: Sketch::default(),
            lease: Duration::from_secs(30),
            lapsed: Lapsed::Unknown,
        };
        match self.0.claim(&request).await.unwrap() {
            Claim::Granted { lease, .. } => (request.id, Holder { owner, fence: lease.fence }),
            other => panic!("{other:?}"),
        }
    }

    async fn complete(&self, (id, holder): Self::Granted) {
        let settlement = Settlement::Complete(Outcome::whole(Tag::JSON, body()));
        let retention = Retention { keep: DAY, tombstone: Duration::ZERO };
        let request = SettleRequest { id, holder, settlement, retention };
        assert_eq!(self.0.settle(&request).await.unwrap(), Fenced::Applied(()));
    }
}

const DAY: Duration = Duration::from_secs(86_400);

fn random_id() -> [u8; 32] {
    let [a, b]: [u128; 2] = [rand::random(), rand::random()];
    let mut id = [0; 32];
    id[..16].copy_from_slice(&a.to_le_bytes());
    id[16..].copy_from_slice(&b.to_le_bytes());
    id
}

/// Bytes that do not compress.
fn body() -> Vec<u8> {
    (0..OUTCOME_BYTES / 16).flat_map(|_| rand::random::<u128>().to_le_bytes()).collect()
}

/// Counts the log's syncs and bytes.
#[derive(Debug, Default)]
struct CountingDisk {
    syncs: AtomicU64,
    bytes: AtomicU64,
}

impl CountingDisk {
    fn reset(&self) {
        self.syncs.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn counts(&self) -> (u64, u64) {
        (self.syncs.load(Ordering::Relaxed).max(1), self.bytes.load(Ordering::Relaxed))
    }
}

impl Disk for CountingDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        // Not the zeros of new segments, which are not part of a batch.
        if bytes.len() != 1 << 20 {
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        MachineDisk.write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        MachineDisk.sync(file)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        MachineDisk.free_bytes(directory)
    }
}

/// What the disk allows: the same batches, and nothing else.
#[derive(Default)]
struct Limit {
    operations: f64,
    seconds: f64,
    syncs: u64,
    bytes: u64,
}

impl Limit {
    /// Appends batches of as many bytes as a sync had, with one fdatasync each, to a file
    /// written before.
    fn add(&mut self, directory: &Path, counts: (u64, u64), operations: u64, seconds: f64) {
        const FILE_BYTES: u64 = 64 << 20;
        let bytes = counts.1 / counts.0;
        let path = directory.with_extension("raw");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
        let zeros = vec![0; 1 << 20];
        (0..FILE_BYTES >> 20).for_each(|at| file.write_all_at(&zeros, at << 20).unwrap());
        file.sync_all().unwrap();
        let batch = vec![0xab; bytes as usize];
        let (started, mut syncs, mut position) = (Instant::now(), 0_u64, 0);
        while started.elapsed().as_secs_f64() < seconds {
            if position + bytes > FILE_BYTES {
                position = 0;
            }
            file.write_all_at(&batch, position).unwrap();
            file.sync_data().unwrap();
            position += bytes;
            syncs += 1;
        }
        self.seconds += started.elapsed().as_secs_f64();
        self.operations += syncs as f64 * operations as f64 / counts.0 as f64;
        self.syncs += syncs;
        self.bytes += syncs * bytes;
        fs::remove_file(path).unwrap();
    }

    fn rate(&self) -> f64 {
        self.operations / self.seconds
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, bytes) = (self.operations / self.syncs as f64, self.bytes / self.syncs);
        let micros = self.seconds * 1e6 / self.syncs as f64;
        let rate = self.rate();
        write!(f, "limit {rate:.0} op/s ({calls:.1} calls, {bytes} bytes, {micros:.0} µs a sync)")
    }
}

/// A database that is given whatever has queued up in one transaction.
trait Database: Send + 'static {
    fn open(directory: &Path) -> Self;
    /// Looks each key up, and writes it.
    fn transaction(&mut self, writes: &[Write]);
}

struct Write {
    id: [u8; 32],
    value: Vec<u8>,
    done: oneshot::Sender<()>,
}

struct Batched(mpsc::Sender<Write>);

impl Batched {
    fn start<D: Database>(directory: &Path) -> (Self, std::thread::JoinHandle<()>) {
        let (sender, mut queue) = mpsc::channel(4_096);
        let mut database = D::open(directory);
        let thread = std::thread::spawn(move || {
            let mut batch = Vec::new();
            while queue.blocking_recv_many(&mut batch, 1_024) > 0 {
                database.transaction(&batch);
                for write in batch.drain(..) {
                    let _ = write.done.send(());
                }
            }
        });
        (Self(sender), thread)
    }

    async fn write(&self, id: [u8; 32], value: Vec<u8>) {
        let (done, waiting) = oneshot::channel();
        assert!(self.0.send(Write { id, value, done }).await.is_ok());
        waiting.await.unwrap();
    }
}

impl Target for Batched {
    type Granted = [u8; 32];

    async fn claim(&self) -> [u8; 32] {
        let id = random_id();
        self.write(id, vec![1; 200]).await;
        id
    }

    async fn complete(&self, id: [u8; 32]) {
        self.write(id, body()).await;
    }
}

async fn peer<D: Database>(name: &str, tasks: usize, seconds: f64, limit: f64) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (target, thread) = Batched::start::<D>(directory.path());
    let target = Arc::new(target);
    measure(Arc::clone(&target), tasks, seconds).await.print(name, limit);
    drop(target);
    thread.join().unwrap();
}

struct Sqlite(rusqlite::Connection);

impl Database for Sqlite {
    fn open(directory: &Path) -> Self {
        let connection = rusqlite::Connection::open(directory.join("records")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "synchronous", "FULL").unwrap();
        let table = "CREATE TABLE records (id BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID";
        connection.execute(table, []).unwrap();
        Self(connection)
    }

    fn transaction(&mut self, writes: &[Write]) {
        use rusqlite::OptionalExtension as _;
        let transaction = self.0.transaction().unwrap();
        {
            let select = "SELECT value FROM records WHERE id = ?1";
            let mut select = transaction.prepare_cached(select).unwrap();
            let write = "INSERT OR REPLACE INTO records VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(write).unwrap();
            for write in writes {
                let found: Option<Vec<u8>> =
                    select.query_row([&write.id[..]], |row| row.get(0)).optional().unwrap();
                std::hint::black_box(found);
                insert.execute((&write.id[..], &write.value)).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

struct Redb(redb::Database);

const TABLE: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("records");

impl Database for Redb {
    fn open(directory: &Path) -> Self {
        Self(redb::Database::create(directory.join("records")).unwrap())
    }

    fn transaction(&mut self, writes: &[Write]) {
        use redb::ReadableTable as _;
        let transaction = self.0.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            for write in writes {
                std::hint::black_box(table.get(&write.id[..]).unwrap().map(|it| it.value().len()));
                table.insert(&write.id[..], &write.value[..]).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

/// A clock that the churn moves a window at a time.
#[derive(Default)]
struct Moved(AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

/// Bytes on disk after two and a half windows of retention, in steps of a tenth.
async fn churn(window: u64) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let clock = Arc::new(Moved::default());
    let surroundings = Surroundings { clock: Arc::clone(&clock) as _, ..Surroundings::default() };
    let store =
        EmbeddedStore::open_in(directory.path(), Settings::default(), surroundings).unwrap();
    let store = Arc::new(store);
    for _ in 0..25 {
        write_some(&store, window / 10).await;
        clock.0.fetch_add(DAY.as_millis() as u64 / 10, Ordering::Relaxed);
        while store.purge(1_000).await.unwrap().more {}
    }
    let print = |when: &str, stats: onceward_core::Stats| {
        let (bytes, records) = (disk_bytes(directory.path()), stats.records.max(1));
        println!(
            "  {when}: {records} records of {} bytes, {} bytes on disk each ({:.2} times)",
            stats.bytes / records,
            bytes / records,
            bytes as f64 / stats.bytes as f64
        );
    };
    println!("churn: 2.5 windows of {window} records");
    print("at once", store.stats().await.unwrap());
    store.compact(|_| {}).await.unwrap();
    print("compacted", store.stats().await.unwrap());
}

async fn write_some(store: &Arc<EmbeddedStore>, count: u64) {
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let ours = Ours(Arc::clone(store));
            tokio::spawn(async move {
                for _ in 0..count / 64 {
                    let granted = ours.claim().await;
                    ours.complete(granted).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn disk_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let found = entry.metadata().unwrap();
            if found.is_dir() { disk_bytes(&entry.path()) } else { found.len() }
        })
        .sum()
}

fn resident(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}
