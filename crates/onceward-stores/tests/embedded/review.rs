//! What a second reader found in the store, each as a fact.

use std::fs;
use std::sync::Arc;

use onceward_core::{Fenced, Settlement, StoreAdmin as _};
use onceward_stores::embedded::{EmbeddedStore, OpenError, Settings, Surroundings, verify};
use onceward_testkit::clock::ManualClock;

use super::common::{DAY, complete, granted, open, outcome, settle, small};

/// Any program may leave a file called `lock`: it was taken for a store of ours whose making
/// had been interrupted, and one was made among somebody's files.
#[test]
fn a_directory_with_another_programs_lock_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["lock", "notes.txt"] {
        fs::write(directory.path().join(name), "not ours").unwrap();
    }
    let error = EmbeddedStore::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

/// A purge kept whatever it had read in memory until its batch was done.
#[tokio::test]
async fn a_purge_stops_at_the_size_of_a_batch_and_says_that_there_is_more() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let settings = Settings { batch_bytes_max: 64 << 10, ..small() };
    let surroundings = Surroundings { clock: Arc::new(clock.clone()), ..Surroundings::default() };
    let store = EmbeddedStore::open_in(directory.path(), settings, surroundings).unwrap();
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

/// An empty file of values was told as an error of the machine, not as damage.
#[tokio::test]
async fn an_emptied_file_of_values_is_told_as_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    complete(&store, "key", &"v".repeat(4_000)).await;
    store.compact(|_| {}).await.unwrap();
    drop(store);
    for file in fs::read_dir(directory.path().join("tree/blobs")).unwrap() {
        fs::write(file.unwrap().path(), "").unwrap();
    }
    let error = EmbeddedStore::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}
