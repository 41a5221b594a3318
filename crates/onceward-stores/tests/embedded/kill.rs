//! A process under load is killed with -9 at random moments, again and again on the same
//! directory, and what it had said through a pipe is held against what is there afterwards.
//!
//! `ONCEWARD_KILLS=300` for more than the usual few.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, Clock as _, Fenced, Holder, Retention, Settlement, StateName, Store as _,
    StoreAdmin as _, SystemAmbient,
};
use onceward_stores::embedded::{EmbeddedStore, Settings, verify};

use super::common::{DAY, id, outcome, request, settle, small};

const CHILD: &str = "ONCEWARD_KILL_CHILD";
const LIFE: &str = "ONCEWARD_KILL_LIFE";
const TASKS: usize = 8;

fn settings() -> Settings {
    // Small, so that segments turn, memory is written out and files are cleaned up all the
    // time, and kills hit all of that.
    Settings { memtable_bytes: 64 << 10, ..small() }
}

/// What the ledger knows of a key. It is told by the child and kept by the parent, apart
/// from the store.
#[derive(Debug, Default, Clone)]
struct Entry {
    claim_asked: bool,
    claimed: bool,
    effects: u32,
    completion_asked: bool,
    completed: bool,
    short_lived: bool,
}

/// Runs only in the child: claims, has its effect, completes, and says so each time.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let life = std::env::var(LIFE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory, settings()).unwrap());
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(work(Arc::clone(&store), format!("{life}-{task}"))))
            .collect();
        loop {
            store.purge(50).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(tasks.iter().all(|task| !task.is_finished()));
        }
    });
}

async fn work(store: Arc<EmbeddedStore>, name: String) {
    for index in 0.. {
        let key = format!("{name}-{index}");
        // Every so often a key of an earlier life is tried again.
        if index % 5 == 4
            && let Some(old) = old_key(&name, index)
        {
            attempt(&store, &old, DAY).await;
        }
        let short_lived = index % 7 == 6;
        if short_lived {
            say("short", &key);
        }
        let keep = Duration::from_millis(20);
        let short = Retention { keep, tombstone: keep };
        attempt(&store, &key, if short_lived { short } else { DAY }).await;
    }
}

fn old_key(name: &str, index: usize) -> Option<String> {
    let (life, task) = name.split_once('-')?;
    let earlier = life.parse::<usize>().ok()?.checked_sub(1 + index % 3)?;
    Some(format!("{earlier}-{task}-{}", index % 40 / 7 * 7))
}

async fn attempt(store: &EmbeddedStore, key: &str, retention: Retention) {
    let request = request(key);
    say("claiming", key);
    match store.claim(&request).await.unwrap() {
        Claim::Granted { lease, .. } => {
            say("claimed", key);
            let holder = Holder { owner: request.owner, fence: lease.fence };
            say("effect", key);
            say("completing", key);
            let completed = Settlement::Complete(outcome(body(key)));
            let settled = settle(store, key, holder, completed, retention).await.unwrap();
            // Nothing, if it is so short-lived that it is over already.
            assert!(settled == Fenced::Applied(()) || retention != DAY, "{key}: {settled:?}");
            say("completed", key);
        }
        Claim::Completed { outcome, .. } => assert_eq!(outcome.bytes, body(key).as_bytes()),
        Claim::Running { .. } | Claim::Unknown { .. } | Claim::Expired => {}
        other => panic!("{key}: {other:?}"),
    }
}

fn body(key: &str) -> String {
    key.repeat(1 + key.len() % 3 * 50)
}

/// One line, in one write, so that a kill leaves whole lines only but for the last.
fn say(what: &str, key: &str) {
    let line = format!("\n@ {what} {key} .\n");
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn spawn(directory: &Path, life: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "embedded::kill::child", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, directory).env(LIFE, life.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Lets a child work for a while, kills it, and writes down what it said.
fn live_and_die(directory: &Path, life: u32, ledger: &mut HashMap<String, Entry>) {
    let mut child = spawn(directory, life);
    let output = BufReader::new(child.stdout.take().unwrap());
    let (first, began) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in output.split(b'\n').map_while(Result::ok) {
            if line.starts_with(b"@ ") {
                let _ = first.send(());
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        lines
    });
    // From its first word on, or also before: while it opens.
    if life % 8 != 7 {
        began.recv_timeout(Duration::from_secs(60)).expect("the child begins to work");
    }
    std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 120_000));
    assert!(child.try_wait().unwrap().is_none(), "the child died by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    for line in reader.join().unwrap() {
        let words: Vec<_> = line.split(' ').collect();
        let ["@", what, key, "."] = words[..] else { continue };
        let entry = ledger.entry(key.to_owned()).or_default();
        match what {
            "claiming" => entry.claim_asked = true,
            "claimed" => entry.claimed = true,
            "effect" => entry.effects += 1,
            "completing" => entry.completion_asked = true,
            "completed" => entry.completed = true,
            "short" => entry.short_lived = true,
            other => panic!("{other}"),
        }
    }
}

/// Holds what is there against the ledger; says how many were found unknown.
async fn check(directory: &Path, ledger: &HashMap<String, Entry>) -> u32 {
    let store = EmbeddedStore::open(directory, settings()).unwrap();
    let now = SystemAmbient::new().now();
    let mut unknown = 0;
    for (key, entry) in ledger {
        let found = store.get(&id(key)).await.unwrap();
        if entry.short_lived {
            continue;
        }
        assert!(entry.effects <= 1, "{key} had its effect {} times", entry.effects);
        let state = found.as_ref().and_then(|record| record.standing(now));
        let fits = match state {
            None => !entry.claimed,
            Some(StateName::Completed) => entry.completion_asked,
            Some(StateName::Unknown) => {
                unknown += 1;
                entry.claim_asked && !entry.completed
            }
            Some(_) => false,
        };
        assert!(fits, "{key} was {entry:?} and is {state:?}");
        let outcome = found.as_ref().and_then(|record| record.state.outcome());
        if let Some(outcome) = outcome {
            assert_eq!(outcome.bytes, body(key).as_bytes(), "{key} is different");
        }
    }
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.by_state[StateName::Running as usize], 0);
    unknown
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = std::env::var("ONCEWARD_KILLS").map_or(20, |it| it.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = HashMap::new();
    let mut unknown = 0;
    for life in 0..kills {
        live_and_die(directory.path(), life, &mut ledger);
        // Most lives are checked by all that was ever said, the others go on as they are.
        if life % 4 != 3 {
            unknown = check(directory.path(), &ledger).await;
        }
    }
    unknown = unknown.max(check(directory.path(), &ledger).await);
    let report = verify(directory.path(), |_| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let completed = ledger.values().filter(|entry| entry.completed).count();
    println!("{kills} kills, {completed} completed, {unknown} unknown, {} keys", ledger.len());
    assert!(completed > 0 && unknown > 0, "the kills hit nothing");
}
