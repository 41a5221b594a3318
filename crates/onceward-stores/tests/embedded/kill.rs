//! A process under load is killed with -9 at random times, repeatedly on the same directory. What
//! it reported through a pipe is compared with the store afterwards.
//!
//! Set `ONCEWARD_KILLS=300` for more than the usual few.

use std::path::Path;
use std::time::Duration;

use onceward_core::{StateName, StoreAdmin as _};
use onceward_stores::embedded::{EmbeddedStore, OpenError, Settings, verify};

use super::common::{complete, replay, small};
use crate::calls::kills;
use crate::lives::{KilledProcess, Ledger, assert_held, look, work};

const CHILD: &str = "embedded::kill::child";

fn settings() -> Settings {
    // Small, so that kills hit changes of segments, flushes and compactions all the time.
    Settings { memtable_bytes: 64 << 10, ..small() }
}

/// Runs only in the child: claims, has its effect, completes, and reports each step.
#[test]
fn child() {
    let Some((directory, life)) = KilledProcess::of_this_process() else { return };
    let open = async { EmbeddedStore::open(directory, settings()).unwrap() };
    work(open, life, Duration::from_secs(30), Duration::from_millis(5));
}

/// Opens the store that a life has left, and compares it.
async fn look_into(directory: &Path, life: u32, ledger: &mut Ledger) {
    let store = EmbeddedStore::open(directory, settings()).unwrap();
    look(&store, life, ledger).await;
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.by_state[StateName::Running as usize], 0);
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = kills(20);
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, directory.path(), life, &mut ledger);
        // Most lives continue without a check in between, as they would in production.
        if life % 4 != 3 {
            look_into(directory.path(), life, &mut ledger).await;
        }
        if life % 50 == 49 {
            println!("{} kills of {kills}, {} keys", life + 1, ledger.keys().count());
        }
    }
    look_into(directory.path(), kills, &mut ledger).await;
    assert_held(&ledger, kills);
    let report = verify(directory.path(), |_| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn a_directory_that_another_process_has_open_is_refused_until_that_one_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    complete(&EmbeddedStore::open(directory.path(), settings()).unwrap(), "key", "done").await;
    let other = KilledProcess::begin(CHILD, directory.path(), 0);
    other.wait_until_it_works();
    let refused = EmbeddedStore::open(directory.path(), settings()).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    other.kill();
    let store = EmbeddedStore::open(directory.path(), settings()).unwrap();
    assert_eq!(replay(&store, "key").await, "done");
}
