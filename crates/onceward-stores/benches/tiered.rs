//! Replays by PostgreSQL alone, by Redis alone, and by both as tiers, beside plain `GET`s of the
//! same size by `redis-benchmark`, in one run.
//!
//! ```text
//! cargo xtask bench tiered [option…]
//!   --seconds 2       how long each measurement takes
//!   --tasks 1,64,512  how many tasks replay, and how many clients redis-benchmark has
//!   --turns 5         how often they take turns
//! ```
//!
//! A replay is a claim of one of 1,000 keys that were completed with 1 KiB. Ratios are medians over
//! the turns. Only ratios of one run are comparable.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at a failure")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fenced, Fingerprint, FullStore, Holder, Identity, Key, Lapsed,
    OperationId, Outcome, OwnerToken, Retention, Scope, SettleRequest, Settlement, Sketch,
    SystemAmbient, Tag, Unpurged,
};
use onceward_services::{Server, ask};
use onceward_stores::postgres::{self, PostgresStore};
use onceward_stores::redis::{self, RedisStore};
use onceward_stores::tiered::{self, TieredStore};

const KEYS: u64 = 1_000;
const DAY: Retention = Retention { keep: Duration::from_secs(86_400), tombstone: Duration::ZERO };

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(redis) = onceward_services::redis() else { return };
        let Some(postgres) = onceward_services::postgres() else { return };
        let stores = open(&postgres, &redis).await;
        for store in &stores {
            fill(&**store).await;
        }
        for tasks in &options.tasks {
            compare(&stores, &redis, *tasks, &options).await;
        }
    });
}

struct Options {
    seconds: f64,
    tasks: Vec<usize>,
    turns: usize,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self { seconds: 2.0, tasks: vec![1, 64, 512], turns: 5 };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word.as_str() {
                "--seconds" => options.seconds = value.parse().expect("seconds"),
                "--tasks" => {
                    options.tasks = value.split(',').map(|it| it.parse().expect("tasks")).collect();
                }
                "--turns" => options.turns = value.parse().expect("turns"),
                _ => panic!("unknown option {word}"),
            }
        }
        options
    }
}

type Stores = [Arc<dyn FullStore>; 3];

/// PostgreSQL, Redis, and both.
async fn open(postgres: &Server, redis: &Server) -> Stores {
    let schema = |name| postgres::Settings {
        schema: postgres::Schema::new(name).unwrap(),
        ..postgres::Settings::default()
    };
    let alone = PostgresStore::open(postgres.url(), schema("alone")).await.unwrap();
    let authority = PostgresStore::open(postgres.url(), schema("behind")).await.unwrap();
    let cached = RedisStore::open(redis.url(), redis::Settings::default()).await.unwrap();
    let settings = tiered::Settings { timeout: Duration::from_secs(2), ..Default::default() };
    let tiered = TieredStore::open(Arc::new(authority), redis.url(), settings).await.unwrap();
    [Arc::new(alone), Arc::new(cached), Arc::new(tiered)]
}

fn request(key: u64) -> ClaimRequest {
    let (ambient, scope) = (SystemAmbient::new(), Scope::new("tenant", "caller", "pay").unwrap());
    let id = Identity::unkeyed().record_id(&scope, &Key::new(format!("key {key}")).unwrap());
    ClaimRequest {
        id,
        owner: OwnerToken::draw(&ambient),
        operation: OperationId::draw(&ambient, &id),
        scope,
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"request"]),
        sketch: Sketch::default(),
        path: None,
        lease: Duration::from_secs(30),
        lapsed: Lapsed::Unknown,
        unpurged: Unpurged::Replace,
    }
}

async fn fill(store: &dyn FullStore) {
    for key in 0..KEYS {
        let request = request(key);
        let Claim::Granted { lease, .. } = store.claim(&request).await.unwrap() else {
            panic!("the key is new");
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let outcome = Outcome::whole(Tag::from_static("text/v1"), vec![b'x'; 1024]);
        let (id, settlement) = (request.id, Settlement::Complete(outcome));
        let settle = SettleRequest { id, holder, settlement, retention: DAY };
        assert_eq!(store.settle(&settle).await.unwrap(), Fenced::Applied(()));
    }
}

async fn compare(stores: &Stores, redis: &Server, tasks: usize, options: &Options) {
    let mut turns = [const { Vec::new() }; 4];
    for _ in 0..options.turns {
        for (store, rates) in stores.iter().zip(&mut turns) {
            rates.push(replays(store, tasks, options.seconds).await);
        }
        turns[3].push(plain_gets(redis, tasks, options.seconds));
    }
    let [postgres, redis, tiered, plain] = turns.each_ref().map(|rates| median(rates.clone()));
    let ratio = |of: usize| {
        median(turns[2].iter().zip(&turns[of]).map(|(tiered, other)| tiered / other).collect())
    };
    println!(
        "{tasks:4} tasks: tiered {tiered:8.0} replays/s, {:.2} of Redis ({redis:.0}), {:.2} of \
         PostgreSQL ({postgres:.0}), {:.2} of redis-benchmark GET ({plain:.0})",
        ratio(1),
        ratio(0),
        ratio(3)
    );
}

async fn replays(store: &Arc<dyn FullStore>, tasks: usize, seconds: f64) -> f64 {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let task = |number: usize| {
        let (store, stop, count) = (Arc::clone(store), Arc::clone(&stop), Arc::clone(&count));
        tokio::spawn(async move {
            let mut key = number as u64 * 7919;
            while !stop.load(Ordering::Relaxed) {
                key = (key + 1) % KEYS;
                let claim = store.claim(&request(key)).await.unwrap();
                assert!(matches!(claim, Claim::Completed { .. }), "{claim:?}");
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    let began = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn plain_gets(server: &Server, clients: usize, seconds: f64) -> f64 {
    let value = "x".repeat(1200);
    ask(server, &["SET", "plain", &value]).unwrap();
    let run = |requests: u64| {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &server.port().to_string(), "-c", &clients.to_string()]);
        command.args(["-n", &requests.to_string(), "--threads", "2", "--csv", "GET", "plain"]);
        let output = String::from_utf8(command.output().expect("redis-benchmark").stdout).unwrap();
        let rate = output.lines().last().unwrap().split(',').nth(1).unwrap().trim_matches('"');
        rate.parse::<f64>().unwrap()
    };
    let guess = run(2_000 * clients.min(20) as u64);
    run((guess * seconds) as u64 + 1)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
