//! Memory is bounded by the settings, whatever the number of records.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onceward_core::{Fenced, Settlement, StoreAdmin as _};
use onceward_stores::embedded::{EmbeddedStore, Environment, Settings, verify};
use onceward_testkit::clock::ManualClock;

use super::common::{DAY, complete, fast_directory, granted, long, outcome, settle, small};

const CHILD: &str = "ONCEWARD_MEMORY_CHILD";
const TASKS: usize = 64;

fn settings() -> Settings {
    Settings { reserve_bytes: 0, ..Settings::small() }
}

/// Runs only in the child, which does nothing else: fills a store, and reports its memory at the
/// first tenth and at the end.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory, settings()).unwrap());
    let tenth = if long() { 100_000 } else { 3_200 };
    for part in 0..10 {
        runtime.block_on(fill(&store, part, tenth));
        println!("\n@ {}", resident_kilobytes());
    }
    let records = runtime.block_on(store.stats()).unwrap().records;
    assert_eq!(records, 10 * tenth as u64);
}

async fn fill(store: &Arc<EmbeddedStore>, part: usize, count: usize) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let text = "x".repeat(1_024);
                for index in 0..count / TASKS + usize::from(task < count % TASKS) {
                    complete(&*store, &format!("{part}-{task}-{index}"), &text).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn resident_over_time(directory: &Path) -> Vec<u64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "embedded::memory::child", "--nocapture", "--test-threads=1"]);
    let output = command.env(CHILD, directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("@ ")).map(|it| it.parse().unwrap()).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_number_of_records() {
    let directory = fast_directory();
    let kilobytes = resident_over_time(directory.path());
    println!("resident kilobytes by tenths of the records: {kilobytes:?}");
    let (first, last) = (kilobytes[0], kilobytes[9]);
    // The other nine tenths of the records are several times this size.
    assert!(last < first + (10 << 10), "{kilobytes:?}");
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
}

/// A purge once kept everything it had read in memory until its batch was done.
#[tokio::test]
async fn a_purge_stops_at_the_size_of_a_batch_and_says_that_there_is_more() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let settings = Settings { batch_bytes_max: 64 << 10, ..small() };
    let environment = Environment { clock: Arc::new(clock.clone()), ..Environment::default() };
    let store = EmbeddedStore::open_in(directory.path(), settings, environment).unwrap();
    for number in 0..40 {
        let key = format!("key-{number}");
        let holder = granted(&store, &key).await;
        let done = Settlement::Complete(outcome("p".repeat(10 << 10)));
        assert_eq!(settle(&store, &key, holder, done, DAY).await.unwrap(), Fenced::Applied(()));
    }
    clock.advance(DAY.keep);
    let (mut removed, mut rounds) = (0, 0);
    loop {
        let purged = store.purge(1_000).await.unwrap();
        assert!((1..=8).contains(&purged.removed), "{purged:?}");
        removed += purged.removed;
        rounds += 1;
        if !purged.more {
            break;
        }
    }
    assert_eq!((removed, rounds), (40, 6));
    drop(store);
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
}
