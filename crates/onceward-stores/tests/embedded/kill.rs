//! A process under load is killed with -9 at random moments, again and again on the same
//! directory, and what it had said through a pipe is held against what is there afterwards.
//!
//! `ONCEWARD_KILLS=300` for more than the usual few.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fence, Fenced, Holder, Retention, Settlement, StateName, Store as _,
    StoreAdmin as _,
};
use onceward_stores::embedded::{EmbeddedStore, OpenError, Settings, verify};

use super::common::{DAY, complete, id, outcome, replay, request, settle, small};
use crate::ledger::{Ledger, Try, Word, after_life, body};

const CHILD: &str = "ONCEWARD_KILL_CHILD";
const LIFE: &str = "ONCEWARD_KILL_LIFE";
const TASKS: usize = 8;

fn settings() -> Settings {
    // Small, so that segments turn, memory is written out and files are cleaned up all the
    // time, and kills hit all of that.
    Settings { memtable_bytes: 64 << 10, ..small() }
}

/// Runs only in the child: claims, has its effect, completes, and says so each time.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let life = std::env::var(LIFE).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory, settings()).unwrap());
    runtime.block_on(async {
        let worker = |task| Worker { store: Arc::clone(&store), life, task, tries: 0 };
        let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(worker(task).work())).collect();
        loop {
            store.purge(50).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(tasks.iter().all(|task| !task.is_finished()));
        }
    });
}

struct Worker {
    store: Arc<EmbeddedStore>,
    life: u32,
    task: usize,
    tries: usize,
}

impl Worker {
    async fn work(mut self) {
        for index in 0.. {
            let key = self.key(self.life, index);
            self.attempt(&key).await;
            // Every so often a key of an earlier life is tried again.
            let earlier = self.life.checked_sub(1 + index as u32 % 3);
            if index % 5 == 4
                && let Some(earlier) = earlier
            {
                let old = self.key(earlier, index % 40);
                self.attempt(&old).await;
            }
            // And something goes by soon, so that there is something to purge.
            if index % 7 == 6 {
                self.short_lived(&format!("short-{key}")).await;
            }
        }
    }

    fn key(&self, life: u32, index: usize) -> String {
        format!("{life}-{}-{index}", self.task)
    }

    async fn attempt(&mut self, key: &str) {
        self.tries += 1;
        let (who, store) = (Try::new(self.life, self.task, self.tries), &self.store);
        let request = ClaimRequest { owner: who.owner(), ..request(key) };
        let say = |word: Word, fence| say(&word.line(key, who, fence, request.owner));
        say(Word::Claiming, Fence(0));
        match store.claim(&request).await.unwrap() {
            Claim::Granted { lease, .. } => {
                let fence = lease.fence;
                say(Word::Claimed, fence);
                say(Word::Effect, fence);
                say(Word::Completing, fence);
                let holder = Holder { owner: request.owner, fence };
                let done = Settlement::Complete(outcome(body(key, fence)));
                let settled = settle(store, key, holder, done, DAY).await.unwrap();
                assert_eq!(settled, Fenced::Applied(()), "{key}");
                say(Word::Completed, fence);
            }
            Claim::Completed { outcome, .. } => {
                let (word, fence) = (Word::Replayed, self.met(key, who, Word::Replayed).await);
                assert_eq!(outcome.bytes, body(key, fence).as_bytes(), "{key}: {word:?}");
            }
            Claim::Unknown { .. } => drop(self.met(key, who, Word::Unknown).await),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Says what was met, and whose it is.
    async fn met(&self, key: &str, who: Try, word: Word) -> Fence {
        let record = self.store.get(&id(key)).await.unwrap().unwrap();
        say(&word.line(key, who, record.fence, record.owner));
        record.fence
    }

    async fn short_lived(&self, key: &str) {
        let request = request(key);
        let Claim::Granted { lease, .. } = self.store.claim(&request).await.unwrap() else {
            return;
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let keep = Duration::from_millis(20);
        let short = Retention { keep, tombstone: keep };
        let done = Settlement::Complete(outcome(key));
        let _ = settle(&self.store, key, holder, done, short).await.unwrap();
    }
}

fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// A process that works until it is killed, and what it says.
struct Life {
    child: Child,
    began: Receiver<()>,
    said: JoinHandle<Vec<String>>,
}

impl Life {
    fn begin(directory: &Path, life: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "embedded::kill::child", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, directory).env(LIFE, life.to_string());
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

    fn wait_until_it_works(&self) {
        self.began.recv_timeout(Duration::from_secs(60)).expect("the child begins to work");
    }

    fn kill(mut self) -> Vec<String> {
        assert!(self.child.try_wait().unwrap().is_none(), "the child died by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.join().unwrap()
    }
}

/// Lets a child work for a while, kills it, and writes down what it said.
fn live_and_die(directory: &Path, life: u32, ledger: &mut Ledger) {
    let child = Life::begin(directory, life);
    // From its first word on, or also before: while it opens.
    if life % 8 != 7 {
        child.wait_until_it_works();
    }
    std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 120_000));
    for line in child.kill() {
        ledger.hear(&line);
    }
}

/// Holds everything that was ever said against what is there.
async fn look(directory: &Path, life: u32, ledger: &mut Ledger) {
    let store = EmbeddedStore::open(directory, settings()).unwrap();
    let keys: Vec<_> = ledger.keys().cloned().collect();
    for key in keys {
        let found = store.get(&id(&key)).await.unwrap();
        ledger.look(&key, found, after_life(life.into()));
    }
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.by_state[StateName::Running as usize], 0);
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = std::env::var("ONCEWARD_KILLS").map_or(20, |it| it.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    for life in 0..kills {
        live_and_die(directory.path(), life, &mut ledger);
        // Some lives go on from what the one before left, as they would by themselves.
        if life % 4 != 3 {
            look(directory.path(), life, &mut ledger).await;
        }
        if life % 50 == 49 {
            println!("{} kills of {kills}, {} keys", life + 1, ledger.keys().count());
        }
    }
    look(directory.path(), kills, &mut ledger).await;
    let violations = ledger.judge(after_life(kills.into()));
    assert!(violations.is_empty(), "{} violations, {:#?}", violations.len(), &violations[0]);
    let report = verify(directory.path(), |_| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let (keys, completed, unknown) = (ledger.keys().count(), ledger.completed(), ledger.unknown());
    println!("{kills} kills, {keys} keys, {completed} completed, {unknown} unknown");
    assert!(completed > 0 && unknown > 0, "the kills hit nothing");
}

#[tokio::test]
async fn a_directory_that_another_process_has_open_is_refused_until_that_one_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    complete(&EmbeddedStore::open(directory.path(), settings()).unwrap(), "key", "done").await;
    let other = Life::begin(directory.path(), 0);
    other.wait_until_it_works();
    let refused = EmbeddedStore::open(directory.path(), settings()).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    other.kill();
    let store = EmbeddedStore::open(directory.path(), settings()).unwrap();
    assert_eq!(replay(&store, "key").await, "done");
}
