//! The PostgreSQL store beside pgbench with the same statements, in one run.
//!
//! ```text
//! cargo xtask bench postgres [option…]
//!   --seconds 5       how long each measurement takes
//!   --connections 4   of the store and of pgbench alike
//!   --tasks 256       how many tasks claim and complete where calls share statements
//!   --purge 1000      thousands of expired records to purge under traffic; 0 leaves it out
//! ```
//!
//! An operation is a claim of a new key and its completion with 1 KiB, each answered after a commit
//! with fsync. pgbench runs `claim.sql` and `settle.sql` as they are, prepared, over as many
//! connections. Both take turns; the ratio is the median over the turns. Only ratios of one run are
//! comparable.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at a failure")]

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onceward_core::{
    Claim, ClaimRequest, Fenced, Fingerprint, Holder, Lapsed, OperationId, Outcome, OwnerToken,
    RecordId, Retention, Scope, SettleRequest, Settlement, Sketch, Store as _, StoreAdmin as _,
    SystemAmbient, Tag, Unpurged,
};
use onceward_services::{Postgres, Server, query};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};

const OUTCOME_BYTES: usize = 1024;
const TURNS: usize = 5;
const DAY: Retention = Retention { keep: Duration::from_secs(86_400), tombstone: Duration::ZERO };

fn main() {
    let options = Options::parse();
    let server = Postgres::default()
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "8GB")
        .start()
        .expect("PostgreSQL");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        alone(&options, &server).await;
        together(&options, &server).await;
        if options.purge > 0 {
            purge(&options, &server).await;
        }
    });
}

struct Options {
    seconds: f64,
    connections: usize,
    tasks: usize,
    purge: usize,
}

impl Options {
    fn parse() -> Self {
        let words: Vec<String> = std::env::args().collect();
        let value = |name: &str, or: f64| {
            let at = words.iter().position(|word| word == name);
            at.and_then(|at| words.get(at + 1)).map_or(or, |it| it.parse().expect(name))
        };
        Self {
            seconds: value("--seconds", 5.0),
            connections: value("--connections", 4.0) as usize,
            tasks: value("--tasks", 256.0) as usize,
            purge: value("--purge", 1_000.0) as usize * 1_000,
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

async fn open(server: &Server, settings: Settings) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(server.url(), settings).await.unwrap())
}

fn settings(name: &str, options: &Options) -> Settings {
    let schema = Schema::new(name).unwrap();
    // A busy machine must not end the measurement by a timeout.
    let (call_timeout, statement_timeout) = (Duration::from_secs(20), Duration::from_secs(15));
    let connections = options.connections;
    Settings { schema, connections, call_timeout, statement_timeout, ..Settings::default() }
}

/// One call in each statement, and as many tasks as connections: the cost of a round trip.
async fn alone(options: &Options, server: &Server) {
    let settings = Settings { batch_calls_max: 1, ..settings("alone", options) };
    let store = open(server, settings).await;
    let bench = PgBench::new(server, "alone", options);
    compare("one call a statement", options, &store, options.connections, &bench).await;
    println!("  {}", size(server, "alone").await);
}

/// Many tasks over the same connections: calls share statements.
async fn together(options: &Options, server: &Server) {
    let store = open(server, settings("together", options)).await;
    let bench = PgBench::new(server, "together", options);
    let what = format!("calls share statements, {} tasks", options.tasks);
    compare(&what, options, &store, options.tasks, &bench).await;
    let stats = store.stats().await.unwrap();
    println!(
        "  {} records, {} bytes each with indexes",
        stats.records,
        stats.bytes / stats.records.max(1)
    );
    println!("  {}", size(server, "together").await);
}

async fn compare(
    what: &str,
    options: &Options,
    store: &Arc<PostgresStore>,
    tasks: usize,
    bench: &PgBench,
) {
    // Warms up: statements are prepared, and pages are in memory.
    load(store, tasks, Duration::from_millis(500)).await;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let ours = load(store, tasks, options.duration()).await;
        let theirs = bench.run(options.seconds);
        turns.push((ours, theirs, ours.rate / theirs));
    }
    turns.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (ours, theirs, ratio) = &turns[TURNS / 2];
    println!("{what}, {} connections:", options.connections);
    println!(
        "  store {:.0} op/s (p50 {:.1} ms, p99 {:.1} ms), pgbench {theirs:.0} op/s, ratio {ratio:.2} \
         (turns {:.2} to {:.2})",
        ours.rate,
        ours.p50,
        ours.p99,
        turns[0].2,
        turns[TURNS - 1].2
    );
}

/// The result of a load: operations a second, and milliseconds of a claim.
#[derive(Clone, Copy)]
struct Load {
    rate: f64,
    p50: f64,
    p99: f64,
}

async fn load(store: &Arc<PostgresStore>, tasks: usize, time: Duration) -> Load {
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| tokio::spawn(claim_and_complete(Arc::clone(store), Arc::clone(&stop))))
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut claims = Vec::new();
    for task in running {
        claims.extend(task.await.unwrap());
    }
    let took = begin.elapsed();
    claims.sort_unstable();
    let at = |part: f64| {
        let index = (claims.len() as f64 * part) as usize;
        claims.get(index.min(claims.len() - 1)).unwrap().as_secs_f64() * 1e3
    };
    Load { rate: claims.len() as f64 / took.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
}

/// Returns how long each claim took.
async fn claim_and_complete(store: Arc<PostgresStore>, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let ambient = SystemAmbient::new();
    let scope = Scope::new("tenant", "caller", "payments.create").unwrap();
    let mut claims = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut id = [0; 32];
        id[..16].copy_from_slice(&rand::random::<u128>().to_be_bytes());
        let id = RecordId::from_bytes(id);
        let request = ClaimRequest {
            id,
            owner: OwnerToken::draw(&ambient),
            operation: OperationId::draw(&ambient, &id),
            scope: scope.clone(),
            key: None,
            fingerprint: Fingerprint::from_digest(1, *id.as_bytes()),
            sketch: Sketch::default(),
            path: None,
            lease: Duration::from_secs(30),
            lapsed: Lapsed::Unknown,
            unpurged: Unpurged::Replace,
        };
        let begin = Instant::now();
        let Claim::Granted { lease, .. } = store.claim(&request).await.unwrap() else { panic!() };
        claims.push(begin.elapsed());
        let body = vec![b'x'; OUTCOME_BYTES];
        let settle = SettleRequest {
            id: request.id,
            holder: Holder { owner: request.owner, fence: lease.fence },
            settlement: Settlement::Complete(Outcome::whole(Tag::JSON, body)),
            retention: DAY,
        };
        assert_eq!(store.settle(&settle).await.unwrap(), Fenced::Applied(()));
    }
    claims
}

/// pgbench with the store's statements.
struct PgBench {
    script: tempfile::TempDir,
    url: String,
    connections: usize,
}

impl PgBench {
    fn new(server: &Server, schema: &str, options: &Options) -> Self {
        let script = tempfile::tempdir().unwrap();
        fs::write(script.path().join("pair.sql"), pair(schema)).unwrap();
        let url = server.url().to_owned();
        Self { script, url, connections: options.connections }
    }

    /// Returns operations a second.
    fn run(&self, seconds: f64) -> f64 {
        let body = format!("body=\\x{}", "78".repeat(OUTCOME_BYTES));
        let seconds = (seconds.ceil() as u64).max(1).to_string();
        let clients = self.connections.to_string();
        let output = Command::new("pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients, "-j", "2", "-T", &seconds, "-D", &body])
            .arg("-f")
            .arg(self.script.path().join("pair.sql"))
            .arg(&self.url)
            .output()
            .expect("pgbench, which comes with PostgreSQL");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split(' ').next()).and_then(|it| it.parse().ok());
        tps.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// A claim of a new key and its completion, for pgbench.
fn pair(schema: &str) -> String {
    let id = "ARRAY[decode(md5(:a::text) || md5(:b::text), 'hex')]";
    let owner = "ARRAY[md5(:b::text)::uuid]";
    let none = "ARRAY[NULL]";
    let claim = statement(
        include_str!("../src/postgres/sql/claim.sql"),
        schema,
        &[
            id,
            owner,
            owner,
            "ARRAY['tenant']",
            "ARRAY['caller']",
            "ARRAY['payments.create']",
            none,
            none,
            none,
            none,
            "ARRAY[decode('01' || md5(:a::text) || md5(:b::text), 'hex')]",
            none,
            "ARRAY[30000]",
            "89100000",
            "2700000",
        ],
    );
    let settle = statement(
        include_str!("../src/postgres/sql/settle.sql"),
        schema,
        &[
            id,
            owner,
            "ARRAY[:c_fence]",
            "ARRAY['completed']",
            "ARRAY[86400000]",
            "ARRAY[0]",
            "ARRAY['whole']",
            "ARRAY['json/v1']",
            "ARRAY[:body::bytea]",
            none,
            none,
            "ARRAY[3600000]",
            "'onceward'",
        ],
    );
    let random = "random(1, 9000000000000000000)";
    format!("\\set a {random}\n\\set b {random}\n{claim}\n\\gset c_\n{settle};\n")
}

/// A statement with expressions in place of its parameters.
fn statement(sql: &str, schema: &str, values: &[&str]) -> String {
    let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
    let mut text = lines.collect::<Vec<_>>().join(" ").replace("{schema}", schema);
    text = text.replace("{columns}", include_str!("../src/postgres/sql/columns.sql").trim());
    text = text.replace("{sentinel}", "decode(repeat('ff', 32), 'hex')");
    for (position, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", position + 1), value);
    }
    text.replace('\n', " ").trim_end().to_owned()
}

/// Describes how many updates touched no index, including those of pgbench.
async fn size(server: &Server, schema: &str) -> String {
    // The server's statistics lag by about a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sql = format!(
        "SELECT round(100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), 1) FROM pg_stat_user_tables \
         WHERE schemaname = '{schema}' AND relname = 'idempotency_record'"
    );
    format!("{} % of the updates touched no index", query(server, &sql).unwrap())
}

/// Purges expired records while others are claimed.
async fn purge(options: &Options, server: &Server) {
    let store = open(server, settings("purged", options)).await;
    fill(server, options.purge);
    let tasks = 16;
    load(&store, tasks, Duration::from_secs(1)).await;
    let before = load(&store, tasks, options.duration()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let purging = tokio::spawn(purge_all(Arc::clone(&store)));
    let mut during = Vec::new();
    while !purging.is_finished() {
        during.push(load(&store, tasks, Duration::from_secs(1)).await);
    }
    stop.store(true, Ordering::Relaxed);
    let (removed, took) = purging.await.unwrap();
    let worst = during.iter().map(|it| it.p99).fold(0.0, f64::max);
    during.sort_by(|a, b| a.p99.total_cmp(&b.p99));
    let median = during[during.len() / 2];
    println!("{removed} expired records purged under {tasks} tasks in {took:.1} s:");
    println!(
        "  claim p99 {:.1} ms before, {:.1} ms during (median second; worst {worst:.1}), ratio {:.2}; \
         {:.0} op/s before, {:.0} during",
        before.p99,
        median.p99,
        median.p99 / before.p99,
        before.rate,
        median.rate
    );
}

async fn purge_all(store: Arc<PostgresStore>) -> (usize, f64) {
    let begin = Instant::now();
    let mut removed = 0;
    loop {
        let purged = store.purge(10_000).await.unwrap();
        removed += purged.removed;
        if !purged.more {
            return (removed, begin.elapsed().as_secs_f64());
        }
    }
}

/// Expired records, inserted by the server itself.
fn fill(server: &Server, count: usize) {
    let sql = format!(
        "INSERT INTO purged.idempotency_record (id, operation_id, owner_token, fence, version, \
         purge_after, created_at, updated_at, expires_at, forget_at, attempts, taken_over, state, \
         request_fingerprint, tenant_id, caller_id, operation_name, outcome_content, \
         outcome_codec, response_body) \
         SELECT sha256(n::text::bytea), gen_random_uuid(), gen_random_uuid(), n, 2, past, past, \
         past, past, past, 1, false, 'completed', '\\x01'::bytea || sha256(n::text::bytea), \
         'tenant', 'caller', 'payments.create', 'whole', 'json/v1', \
         convert_to(repeat('x', {OUTCOME_BYTES}), 'UTF8') \
         FROM generate_series(1, {count}) AS n, \
         (SELECT clock_timestamp() - interval '1 hour' AS past) AS moment"
    );
    query(server, &sql).unwrap();
    query(server, "VACUUM ANALYZE purged.idempotency_record").unwrap();
    query(server, "CHECKPOINT").unwrap();
}
