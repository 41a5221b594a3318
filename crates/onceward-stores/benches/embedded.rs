//! The embedded store beside the limit of the disk, SQLite and redb, in one run.
//!
//! ```text
//! cargo xtask bench embedded [option…]
//!   --seconds 5       how long each measurement takes
//!   --tasks 1,64,512  how many tasks claim and complete
//!   --present 10000   thousands of records for the second comparison; 0 leaves it out
//!   --churn 500       thousands of records in a retention window; 0 leaves churn out
//!   --alone           leave SQLite and redb out
//!   --directory PATH  on which disk; 1 M records take about 2 GB
//! ```
//!
//! Every operation is answered after an fsync that covers it. The limit appends the same batches as
//! the store (as many bytes, as many calls) to a file that was written before, with one fdatasync
//! each, and does nothing else. Both take turns, because a disk's speed changes from second to
//! second; the ratio is the median over the turns. Only ratios of one run are comparable.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at a failure")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward_core::{
    Claim, ClaimRequest, Clock, Fenced, Fingerprint, Holder, Lapsed, OperationId, Outcome,
    OwnerToken, RecordId, Retention, Scope, SettleRequest, Settlement, Sketch, Store as _,
    StoreAdmin as _, SystemAmbient, Tag, Timestamp, Unpurged,
};
use onceward_stores::embedded::{Disk, EmbeddedStore, Environment, Settings, SystemDisk};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

const OUTCOME_BYTES: usize = 1024;
const TURNS: usize = 5;
const RAW_BYTES: u64 = 64 << 20;
/// Records between two lines of progress.
const TELL_EVERY: u64 = 1_000_000;

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        fresh(&options).await;
        if options.present > 0 {
            full(&options).await;
        }
        if options.churn > 0 {
            churn(&options).await;
        }
    });
}

struct Options {
    seconds: f64,
    tasks: Vec<usize>,
    present: u64,
    churn: u64,
    alone: bool,
    directory: PathBuf,
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
            seconds: value("--seconds").map_or(5.0, |it| it.parse().expect("--seconds")),
            tasks: value("--tasks")
                .unwrap_or_else(|| "1,64,512".into())
                .split(',')
                .map(|it| it.parse().expect("--tasks"))
                .collect(),
            present: number("--present", 10_000) * 1_000,
            churn: number("--churn", 500) * 1_000,
            alone: words.iter().any(|word| word == "--alone"),
            directory: value("--directory")
                .map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from),
        }
    }

    fn temporary(&self) -> TempDir {
        tempfile::tempdir_in(&self.directory).unwrap()
    }
}

/// A store whose log is counted.
struct Counted {
    directory: TempDir,
    /// The file of the limit, beside the store.
    raw: PathBuf,
    disk: Arc<CountingDisk>,
}

impl Counted {
    fn new(options: &Options) -> Self {
        let directory = options.temporary();
        Self { raw: directory.path().join("raw"), disk: Arc::default(), directory }
    }

    fn open(&self) -> Arc<EmbeddedStore> {
        let disk = Arc::clone(&self.disk) as _;
        let environment = Environment { disk, ..Environment::default() };
        let settings = Settings::default();
        Arc::new(EmbeddedStore::open_in(self.store(), settings, environment).unwrap())
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Measures the store and its limit, in turns.
    async fn measure(&self, store: &Arc<EmbeddedStore>, tasks: usize, seconds: f64) -> Limit {
        let (mut all, mut limit) = (Measured::default(), Limit::new(&self.raw));
        for _ in 0..TURNS {
            let seconds = seconds / TURNS as f64;
            self.disk.reset();
            let ours = measure(Arc::new(Ours(Arc::clone(store))), tasks, seconds).await;
            let rate = ours.operations as f64 / ours.seconds;
            let counts = self.disk.counts();
            limit.add(counts, (ours.operations, rate), seconds);
            all.add(ours);
        }
        println!("  {tasks} tasks: {limit}");
        all.print("embedded", &limit.ratios());
        limit
    }
}

/// Measures an empty store.
async fn fresh(options: &Options) {
    println!("claim + complete, {OUTCOME_BYTES} byte outcomes, fresh");
    for tasks in &options.tasks {
        let counted = Counted::new(options);
        let limit = counted.measure(&counted.open(), *tasks, options.seconds).await;
        if !options.alone {
            peer::<Sqlite>("sqlite", *tasks, options, &limit).await;
            peer::<Redb>("redb", *tasks, options, &limit).await;
        }
    }
    println!("  memory {}", memory());
}

/// Measures a store that has many records.
async fn full(options: &Options) {
    println!("beside {} records", options.present);
    let counted = Counted::new(options);
    let store = counted.open();
    preload(&store, options.present).await;
    let stats = store.stats().await.unwrap();
    let bytes = disk_bytes(&counted.store());
    println!(
        "  {} records of {} bytes, {} on disk each, memory {}",
        stats.records,
        stats.bytes / stats.records,
        bytes / stats.records,
        memory()
    );
    drop(store);
    let started = Instant::now();
    let store = counted.open();
    println!("  reopened in {:.2} s, memory {}", started.elapsed().as_secs_f64(), memory());
    for tasks in &options.tasks {
        counted.measure(&store, *tasks, options.seconds).await;
    }
    println!("  memory {}", memory());
}

async fn preload(store: &Arc<EmbeddedStore>, count: u64) {
    let started = Instant::now();
    let done = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..512)
        .map(|_| {
            let (ours, done) = (Ours(Arc::clone(store)), Arc::clone(&done));
            tokio::spawn(async move {
                loop {
                    let number = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if number > count {
                        break;
                    }
                    let granted = ours.claim().await;
                    ours.complete(granted).await;
                    if number.is_multiple_of(TELL_EVERY) {
                        let seconds = started.elapsed().as_secs_f64();
                        println!("  … {number} records after {seconds:.0} s, memory {}", memory());
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// A store under test: two calls that each return after an fsync.
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

    /// Prints the results, with the share of the limit in the median turn, and in the lowest and
    /// highest.
    fn print(mut self, name: &str, ratios: &[f64]) {
        self.claim_micros.sort_unstable();
        let at = |share: f64| {
            let place = (self.claim_micros.len() as f64 * share) as usize;
            self.claim_micros.get(place).copied().unwrap_or_default()
        };
        let rate = self.operations as f64 / self.seconds;
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "    {name:<10} {rate:>9.0} op/s, {:.2} of the limit ({low:.2} to {high:.2}), claim p50 {} µs, p99 {} µs",
            ratios[ratios.len() / 2],
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
        let id = RecordId::from_bytes(random_id());
        let (owner, operation) =
            AMBIENT.with(|ambient| (OwnerToken::draw(ambient), OperationId::draw(ambient, &id)));
        let request = ClaimRequest {
            id,
            owner,
            operation,
            scope: SCOPE.with(Scope::clone),
            key: None,
            fingerprint: Fingerprint::from_digest(1, [7; 32]),
            sketch: Sketch::default(),
            path: None,
            lease: Duration::from_secs(30),
            lapsed: Lapsed::Unknown,
            unpurged: Unpurged::Replace,
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
        // Without the zeros of new segments, which are not part of a batch.
        if bytes.len() != 1 << 20 {
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        SystemDisk.write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        SystemDisk.sync(file)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        SystemDisk.free_bytes(directory)
    }
}

/// The limit of the disk: the same batches, and nothing else.
struct Limit {
    file: File,
    operations: f64,
    seconds: f64,
    syncs: u64,
    bytes: u64,
    micros: Vec<u32>,
    ratios: Vec<f64>,
}

impl Limit {
    /// Fills a file once: that keeps a disk busy for a while.
    fn new(path: &Path) -> Self {
        let file = File::create(path).unwrap();
        let zeros = vec![0; 1 << 20];
        (0..RAW_BYTES >> 20).for_each(|at| file.write_all_at(&zeros, at << 20).unwrap());
        file.sync_all().unwrap();
        let (micros, ratios) = (Vec::new(), Vec::new());
        Self { file, operations: 0.0, seconds: 0.0, syncs: 0, bytes: 0, micros, ratios }
    }

    /// Appends batches of as many bytes as a sync had, with one fdatasync each.
    fn add(&mut self, counts: (u64, u64), (operations, rate): (u64, f64), seconds: f64) {
        let bytes = counts.1 / counts.0;
        let batch = vec![0xab; bytes as usize];
        let (started, mut syncs, mut position) = (Instant::now(), 0_u64, 0);
        while started.elapsed().as_secs_f64() < seconds {
            if position + bytes > RAW_BYTES {
                position = 0;
            }
            let began = Instant::now();
            self.file.write_all_at(&batch, position).unwrap();
            self.file.sync_data().unwrap();
            self.micros.push(began.elapsed().as_micros() as u32);
            position += bytes;
            syncs += 1;
        }
        let (seconds, calls) =
            (started.elapsed().as_secs_f64(), operations as f64 / counts.0 as f64);
        self.seconds += seconds;
        self.operations += syncs as f64 * calls;
        self.ratios.push(rate * seconds / (syncs as f64 * calls));
        self.syncs += syncs;
        self.bytes += syncs * bytes;
    }

    fn rate(&self) -> f64 {
        self.operations / self.seconds
    }

    fn ratios(&self) -> Vec<f64> {
        let mut ratios = self.ratios.clone();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, bytes) = (self.operations / self.syncs as f64, self.bytes / self.syncs);
        let mean = self.seconds * 1e6 / self.syncs as f64;
        let mut micros = self.micros.clone();
        micros.sort_unstable();
        let median = micros[micros.len() / 2];
        write!(
            f,
            "limit {:.0} op/s ({calls:.1} calls, {bytes} bytes, {mean:.0} µs a sync, p50 {median} µs)",
            self.rate()
        )
    }
}

/// A database that writes all queued calls in one transaction.
trait Database: Send + 'static {
    fn open(directory: &Path) -> Self;
    /// Reads each key, and writes it.
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

async fn peer<D: Database>(name: &str, tasks: usize, options: &Options, limit: &Limit) {
    let directory = options.temporary();
    let (target, thread) = Batched::start::<D>(directory.path());
    let target = Arc::new(target);
    let measured = measure(Arc::clone(&target), tasks, options.seconds).await;
    let ratio = measured.operations as f64 / measured.seconds / limit.rate();
    measured.print(name, &[ratio]);
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

/// A clock that the churn moves by one window at a time.
#[derive(Default)]
struct Moved(AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

/// Measures bytes on disk over two and a half windows of retention, in steps of a tenth.
async fn churn(options: &Options) {
    let (directory, window) = (options.temporary(), options.churn);
    println!("churn: 2.5 windows of {window} records");
    let clock = Arc::new(Moved::default());
    let environment = Environment { clock: Arc::clone(&clock) as _, ..Environment::default() };
    let store = EmbeddedStore::open_in(directory.path(), Settings::default(), environment).unwrap();
    let store = Arc::new(store);
    let print = |when: &str, stats: onceward_core::Stats| {
        let (bytes, records) = (disk_bytes(directory.path()), stats.records.max(1));
        let log = disk_bytes(&directory.path().join("log"));
        println!(
            "  {when}: {records} records of {} bytes, {} bytes on disk each ({:.2} times, {:.2} without the log's {} MB)",
            stats.bytes / records,
            bytes / records,
            bytes as f64 / stats.bytes as f64,
            (bytes - log) as f64 / stats.bytes as f64,
            log >> 20
        );
    };
    for step in 1..=25 {
        write_some(&store, window / 10).await;
        clock.0.fetch_add(DAY.as_millis() as u64 / 10, Ordering::Relaxed);
        while store.purge(1_000).await.unwrap().more {}
        if step % 5 == 0 {
            print(
                &format!("after {:.1} windows", f64::from(step) / 10.0),
                store.stats().await.unwrap(),
            );
        }
    }
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
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
            Ok(found) => found.len(),
            // Removed meanwhile.
            Err(_) => 0,
        })
        .sum()
}

fn memory() -> String {
    format!("{} MB resident, {} MB at most", resident("VmRSS"), resident("VmHWM"))
}

fn resident(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}
