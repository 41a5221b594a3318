//! The Redis store beside `redis-benchmark` with the same scripts, in one run.
//!
//! ```text
//! cargo xtask bench redis [option…]
//!   --seconds 3       how long each measurement takes, about
//!   --tasks 1,64,512  how many tasks claim and settle, and how many clients redis-benchmark has
//!   --turns 5         how often they take turns
//! ```
//!
//! A pair is a claim of a new key and its settlement with 1 KiB. `redis-benchmark` sends the same
//! scripts with arguments of the same size, one connection for each client, without pipelining. It
//! can repeat only one command at a time: first claims of random keys, then settlements of prepared
//! records; the time of its pair is the sum of both. Store and benchmark take turns on one server
//! with an append-only file that is synced every second; the ratio is the median over the turns.
//! Only ratios of one run are comparable.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at a failure")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward_core::{
    Claim, ClaimRequest, Fenced, Fingerprint, Holder, Lapsed, OperationId, Outcome, OwnerToken,
    RecordId, Retention, Scope, SettleRequest, Settlement, Sketch, Store as _, StoreAdmin as _,
    SystemAmbient, Tag, Unpurged,
};
use onceward_services::{Reply, Server, ask};
use onceward_stores::redis::{RedisStore, Settings};

const CLAIM: &str = concat!(
    include_str!("../src/redis/lua/common.lua"),
    include_str!("../src/redis/lua/claim.lua")
);
const SETTLE: &str = concat!(
    "#!lua flags=allow-oom\n",
    include_str!("../src/redis/lua/common.lua"),
    include_str!("../src/redis/lua/decide.lua"),
    include_str!("../src/redis/lua/settle.lua"),
);
const OWNER: &str = "00112233445566778899aabbccddeeff";
const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OPERATION: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const DAY: Retention = Retention { keep: Duration::from_secs(86_400), tombstone: Duration::ZERO };

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(server) = onceward_services::redis() else { return };
        for tasks in &options.tasks {
            compare(&server, *tasks, &options).await;
        }
        sizes(&server).await;
    });
}

struct Options {
    seconds: f64,
    tasks: Vec<usize>,
    turns: usize,
}

impl Options {
    fn parse() -> Self {
        let words: Vec<String> = std::env::args().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).cloned()
        };
        let tasks = value("--tasks").unwrap_or_else(|| "1,64,512".into());
        Self {
            seconds: value("--seconds").map_or(3.0, |it| it.parse().expect("--seconds")),
            tasks: tasks.split(',').map(|it| it.parse().expect("--tasks")).collect(),
            turns: value("--turns").map_or(5, |it| it.parse().expect("--turns")),
        }
    }
}

async fn compare(server: &Server, tasks: usize, options: &Options) {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.turns {
        told(server, &["FLUSHALL"]);
        told(server, &["FUNCTION", "FLUSH"]);
        let pairs = pairs_of_the_store(server, tasks, options.seconds).await;
        told(server, &["FLUSHALL"]);
        told(server, &["FUNCTION", "FLUSH"]);
        let Some(bare) = pairs_of_redis_benchmark(server, tasks, options.seconds, pairs) else {
            println!("{tasks:4} tasks: {pairs:8.0} pairs/s; redis-benchmark is not installed");
            return;
        };
        ratios.push(pairs / bare);
        ours.push(pairs);
        theirs.push(bare);
    }
    let (low, middle, high) = spread(&mut ratios);
    println!(
        "{tasks:4} tasks: {:8.0} pairs/s, redis-benchmark {:8.0}, ratio {middle:.2} ({low:.2} to {high:.2})",
        spread(&mut ours).1,
        spread(&mut theirs).1,
    );
}

fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

async fn pairs_of_the_store(server: &Server, tasks: usize, seconds: f64) -> f64 {
    let settings = Settings { timeout: Duration::from_secs(30), ..Settings::default() };
    let store = Arc::new(RedisStore::open(server.url(), settings).await.unwrap());
    let (stop, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, stop, pairs) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&pairs));
            tokio::spawn(async move {
                let ambient = SystemAmbient::new();
                while !stop.load(Ordering::Relaxed) {
                    pair(&store, &ambient, 1024).await;
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    pairs.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64()
}

async fn claim(store: &RedisStore, ambient: &SystemAmbient) -> (RecordId, Holder) {
    let id = RecordId::from_bytes(rand::random());
    let request = ClaimRequest {
        id,
        owner: OwnerToken::draw(ambient),
        operation: OperationId::draw(ambient, &id),
        scope: Scope::new("tenant", "caller", "payments.create").unwrap(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[]),
        sketch: Sketch::from_stored(&[7; 30]),
        path: None,
        lease: Duration::from_secs(30),
        lapsed: Lapsed::Unknown,
        unpurged: Unpurged::Replace,
    };
    match store.claim(&request).await.unwrap() {
        Claim::Granted { lease, .. } => {
            (request.id, Holder { owner: request.owner, fence: lease.fence })
        }
        other => panic!("{other:?}"),
    }
}

async fn pair(store: &RedisStore, ambient: &SystemAmbient, bytes: usize) -> RecordId {
    let (id, holder) = claim(store, ambient).await;
    let outcome = Outcome::whole(Tag::from_static("http/v1"), vec![7; bytes]);
    let settlement = Settlement::Complete(outcome);
    let request = SettleRequest { id, holder, settlement, retention: DAY };
    assert_eq!(store.settle(&request).await.unwrap(), Fenced::Applied(()));
    id
}

/// Pairs a second, computed from claims and settlements; `None` without the program.
fn pairs_of_redis_benchmark(
    server: &Server,
    clients: usize,
    seconds: f64,
    about: f64,
) -> Option<f64> {
    // As many calls as the store made, so that both take about as long.
    let calls = (about * seconds).max(1_000.0) as u64;
    told(server, &["HSET", "b:{1}:mark", "epoch", "epoch", "open_at", "0"]);
    let hash = text(told(server, &["SCRIPT", "LOAD", CLAIM]));
    let words = format!(
        "3 b:{{1}}:__rand_int__ b:{{1}}:mark b:{{1}}:index epoch {OWNER} {DIGEST} 1 30000 0 \
         {OPERATION} 20-bytes-of-some-id-__rand_int__ 0 tenant tenant caller caller operation_name \
         payments.create sketch 30-bytes-that-stand-for-those."
    );
    let claims = rate(server, clients, calls, u64::MAX, &hash, &words)?;

    // Four times as many records as settlements, so that few are settled twice.
    told(server, &["FLUSHALL"]);
    told(server, &["FUNCTION", "FLUSH"]);
    told(server, &["HSET", "b:{1}:mark", "epoch", "epoch", "open_at", "0"]);
    let prepared = (calls * 4).min(400_000);
    prepare(server, prepared);
    let hash = text(told(server, &["SCRIPT", "LOAD", SETTLE]));
    let body = "x".repeat(1024);
    let words = format!(
        "3 b:{{1}}:__rand_int__ b:{{1}}:mark b:{{1}}:index epoch {OWNER} 7 completed 86400000 0 \
         3600000 b:settled:{DIGEST} 20-bytes-of-some-id-__rand_int__ 0 whole http/v1 {body}"
    );
    let settlements = rate(server, clients, calls.min(prepared / 4), prepared, &hash, &words)?;
    Some(1.0 / (1.0 / claims + 1.0 / settlements))
}

/// Records that are running, all by the same owner under the same fence.
fn prepare(server: &Server, count: u64) {
    let script = format!(
        "for index = ARGV[1], ARGV[2] do \
           local number = string.format('%012d', index) \
           redis.call('HSET', 'b:{{1}}:' .. number, 'format', '1/1', 'state', 'running', \
             'fence', '7', 'owner', '{OWNER}', 'fingerprint', '{DIGEST}', 'rules', '1', \
             'operation', '{OPERATION}', 'attempts', '1', 'lease_until', '9999999999999', \
             'created_at', '1794809040316', 'updated_at', '1794809040316', 'tenant', 'tenant', \
             'caller', 'caller', 'operation_name', 'payments.create') \
           redis.call('ZADD', 'b:{{1}}:index', '0', '20-bytes-of-some-id-' .. number) \
         end"
    );
    for begin in (0..count).step_by(10_000) {
        let end = (begin + 9_999).min(count - 1);
        told(server, &["EVAL", &script, "0", &begin.to_string(), &end.to_string()]);
    }
}

/// Runs `redis-benchmark`, and returns calls a second.
fn rate(
    server: &Server,
    clients: usize,
    calls: u64,
    keys: u64,
    hash: &str,
    words: &str,
) -> Option<f64> {
    let keys = keys.min(999_999_999_999);
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &server.port().to_string(), "-c", &clients.to_string()]);
    command.args(["-n", &calls.to_string(), "-r", &keys.to_string(), "--csv", "EVALSHA", hash]);
    let output = command.args(words.split_whitespace()).output().ok()?;
    let told = String::from_utf8_lossy(&output.stdout);
    // The name is quoted and contains commas; the rate is the first number after it.
    let line = told.lines().rfind(|line| line.contains("EVALSHA")).expect("a line of results");
    let numbers: Vec<_> = line.rsplit("\",\"").collect();
    let rate = numbers[numbers.len() - 2].trim_matches('"');
    Some(rate.parse().unwrap_or_else(|_| panic!("no rate in {line}")))
}

/// Prints the size of a record: its key, and its share of the index.
async fn sizes(server: &Server) {
    told(server, &["FLUSHALL"]);
    told(server, &["FUNCTION", "FLUSH"]);
    let store = RedisStore::open(server.url(), Settings::default()).await.unwrap();
    let ambient = SystemAmbient::new();
    let (running, _) = claim(&store, &ambient).await;
    println!("a running record: {} bytes", usage(server, &running));
    for bytes in [32, 1024] {
        let id = pair(&store, &ambient, bytes).await;
        println!("settled with {bytes} bytes: {} bytes", usage(server, &id));
    }
    for count in [10_000, 200_000] {
        let before = (used(server), store.stats().await.unwrap().records);
        for _ in 0..count / 100 {
            let all = (0..100).map(|_| async { pair(&store, &ambient, 32).await });
            futures_util::future::join_all(all).await;
        }
        let (bytes, records) = (used(server), store.stats().await.unwrap().records);
        let share = (bytes - before.0) / (records - before.1);
        println!("{records} records with 32 bytes: {share} bytes of the server's memory each");
    }
}

fn usage(server: &Server, id: &RecordId) -> String {
    let [first, second, ..] = *id.as_bytes();
    let bucket = u16::from_be_bytes([first, second]) >> 6;
    let key = format!("onceward:{{{bucket:03x}}}:{id}");
    text(told(server, &["MEMORY", "USAGE", &key]))
}

fn used(server: &Server) -> u64 {
    let info = text(told(server, &["INFO", "memory"]));
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:"));
    line.unwrap().parse().unwrap()
}

fn told(server: &Server, words: &[&str]) -> Reply {
    match ask(server, words).unwrap() {
        Reply::Error(error) => panic!("{}: {error}", words[0]),
        reply => reply,
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Text(text) => text,
        other => panic!("{other:?}"),
    }
}
