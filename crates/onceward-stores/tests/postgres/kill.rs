//! Processes and servers are killed with -9 under load, and what was said is held against what
//! is there afterwards, by the checker of all histories.
//!
//! `ONCEWARD_KILLS=200` for more than the usual few.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fence, Fenced, Holder, SettleRequest, Settlement, Store as _,
    StoreAdmin as _, StoreError,
};
use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};
use parking_lot::Mutex;

use super::common::{DAY, eventually, fresh_schema, id, outcome, plain, request, shared, small};
use crate::ledger::{Ledger, Try, Word, after_life, body};

const CHILD: &str = "ONCEWARD_KILL_CHILD";
const LIFE: &str = "ONCEWARD_KILL_LIFE";
const TASKS: usize = 8;
/// Lapses between two lives, and hardly ever within one.
const LEASE: Duration = Duration::from_millis(700);

fn kills(usual: u32) -> u32 {
    std::env::var("ONCEWARD_KILLS").map_or(usual, |it| it.parse().unwrap())
}

/// Whoever hears what is said: a pipe, or a ledger.
type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Claims, has its effect, completes, and says so each time.
struct Worker {
    store: Arc<PostgresStore>,
    life: Arc<AtomicU32>,
    task: usize,
    tries: usize,
    lease: Duration,
    say: Say,
}

impl Worker {
    /// Until it is told to stop; new keys, and now and then one of an earlier life.
    async fn work(mut self, stop: Arc<AtomicBool>) {
        for index in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let life = self.life.load(Ordering::SeqCst);
            self.attempt(life, &format!("{life}-{}-{index}", self.task)).await;
            let earlier = life.checked_sub(1 + index as u32 % 3);
            if index % 5 == 4
                && let Some(earlier) = earlier
            {
                self.attempt(life, &format!("{earlier}-{}-{}", self.task, index % 40)).await;
            }
        }
    }

    async fn attempt(&mut self, life: u32, key: &str) {
        self.tries += 1;
        let who = Try::new(life, self.task, self.tries);
        let claim = ClaimRequest { owner: who.owner(), lease: self.lease, ..request(key) };
        let say = |word: Word, fence| (self.say)(&word.line(key, who, fence, claim.owner));
        say(Word::Claiming, Fence(0));
        match insist(|| self.store.claim(&claim)).await {
            Claim::Granted { lease, .. } => {
                let fence = lease.fence;
                say(Word::Claimed, fence);
                say(Word::Effect, fence);
                say(Word::Completing, fence);
                let holder = Holder { owner: claim.owner, fence };
                let settlement = Settlement::Complete(outcome(body(key, fence)));
                let settle = SettleRequest { id: claim.id, holder, settlement, retention: DAY };
                let settled = insist(|| self.store.settle(&settle)).await;
                assert_eq!(settled, Fenced::Applied(()), "{key}");
                say(Word::Completed, fence);
            }
            Claim::Completed { outcome, .. } => {
                let fence = self.met(key, who, Word::Replayed).await;
                assert_eq!(outcome.bytes, body(key, fence).as_bytes(), "{key}");
            }
            Claim::Unknown { .. } => drop(self.met(key, who, Word::Unknown).await),
            // Its owner has died, and its lease lives.
            Claim::Running { .. } => {}
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Says what was met, and whose it is.
    async fn met(&self, key: &str, who: Try, word: Word) -> Fence {
        let record = id(key);
        let record = insist(|| self.store.get(&record)).await.unwrap();
        (self.say)(&word.line(key, who, record.fence, record.owner));
        record.fence
    }
}

/// Sends a call until it is answered, as an engine does.
async fn insist<A, F>(mut call: impl FnMut() -> F) -> A
where
    F: Future<Output = Result<A, StoreError>>,
{
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Runs only in the child.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let life: u32 = std::env::var(LIFE).unwrap().parse().unwrap();
    let (url, schema) = task.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = Settings { schema: Schema::new(schema).unwrap(), ..small() };
        let store = Arc::new(PostgresStore::open(url, settings).await.unwrap());
        let say: Say = Arc::new(|line| {
            let _ = std::io::stdout().lock().write_all(line.as_bytes());
        });
        let (life, stop) = (Arc::new(AtomicU32::new(life)), Arc::new(AtomicBool::new(false)));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (store, life) = (Arc::clone(&store), Arc::clone(&life));
                let say = Arc::clone(&say);
                let worker = Worker { store, life, task, tries: 0, lease: LEASE, say };
                tokio::spawn(worker.work(Arc::clone(&stop)))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A process that works until it is killed, and what it says.
struct Life {
    child: Child,
    began: Receiver<()>,
    said: JoinHandle<Vec<String>>,
}

impl Life {
    fn begin(url: &str, schema: &Schema, life: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "postgres::kill::child", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, format!("{url} {schema}")).env(LIFE, life.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (first, began) = channel();
        let said = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for line in output.split(b'\n').map_while(Result::ok) {
                if line.starts_with(b"@ ") {
                    let _ = first.send(());
                    lines.push(String::from_utf8_lossy(&line).into_owned());
                }
            }
            lines
        });
        Self { child, began, said }
    }

    /// From its first word on for a while, or also before: while it opens.
    fn live(&self, life: u32) {
        if life % 8 != 7 {
            self.began.recv_timeout(Duration::from_secs(60)).expect("the child begins to work");
        }
        std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 150_000));
    }

    fn kill(mut self) -> Vec<String> {
        assert!(self.child.try_wait().unwrap().is_none(), "the child died by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.join().unwrap()
    }
}

/// Holds everything that was ever said against what is there.
async fn look(store: &PostgresStore, ledger: &mut Ledger, life: u32) {
    let keys: Vec<_> = ledger.keys().cloned().collect();
    for key in keys {
        let found = store.get(&id(&key)).await.unwrap();
        ledger.look(&key, found, after_life(life.into()));
    }
}

fn judge(ledger: &Ledger, kills: u32) {
    let violations = ledger.judge(after_life(kills.into()));
    assert!(violations.is_empty(), "{} violations, {:#?}", violations.len(), &violations[0]);
    let (keys, completed, unknown) = (ledger.keys().count(), ledger.completed(), ledger.unknown());
    println!("{kills} kills, {keys} keys, {completed} completed, {unknown} unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_our_process_is_killed() {
    let Some(server) = shared() else { return };
    let (kills, schema) = (kills(8), fresh_schema());
    let url = format!("{}?application_name={schema}", server.url());
    let settings = Settings { schema: schema.clone(), ..small() };
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    let (client, name) = (plain(server.url()).await, schema.to_string());
    let mut ledger = Ledger::default();
    for life in 0..kills {
        let (url, schema) = (url.clone(), schema.clone());
        let lived = tokio::task::spawn_blocking(move || {
            let child = Life::begin(&url, &schema, life);
            child.live(life);
            child.kill()
        });
        for line in lived.await.unwrap() {
            ledger.hear(&line);
        }
        // What the dead one had sent is still being done.
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        let gone = async || client.query_one(gone, &[&name]).await.unwrap().get::<_, i64>(0) == 0;
        eventually("the server has noticed", gone).await;
        look(&store, &mut ledger, life).await;
        tokio::time::sleep(LEASE).await;
    }
    judge(&ledger, kills);
    assert!(ledger.completed() > 0 && ledger.unknown() > 0, "the kills hit nothing");
}

/// Kills the server under load and starts it again, while the same process goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(server) = or_skip(Postgres::default().start()).map(Arc::new) else { return };
    let kills = kills(3);
    let store = Arc::new(PostgresStore::open(server.url(), small()).await.unwrap());
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (life, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let hear = Arc::clone(&ledger);
    let say: Say = Arc::new(move |line| hear.lock().hear(line.trim()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, life, say) = (Arc::clone(&store), Arc::clone(&life), Arc::clone(&say));
            // No lease ends while the server is away.
            let lease = Duration::from_secs(600);
            let worker = Worker { store, life, task, tries: 0, lease, say };
            tokio::spawn(worker.work(Arc::clone(&stop)))
        })
        .collect();
    for next in 1..=kills {
        tokio::time::sleep(Duration::from_millis(200 + rand::random::<u64>() % 400)).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || kill_and_start(&server)).await.unwrap();
        life.store(next, Ordering::SeqCst);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let mut ledger = std::mem::take(&mut *ledger.lock());
    look(&store, &mut ledger, kills).await;
    judge(&ledger, kills);
    assert!(ledger.completed() > 100 && ledger.unknown() == 0);
}

fn kill_and_start(server: &Server) {
    server.kill().unwrap();
    server.start().unwrap();
}
