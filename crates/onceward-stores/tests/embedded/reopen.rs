//! State that is the same after an orderly close and a new opening.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Clock as _, Fenced, Holder, InvalidateRequest, Lapsed, Query,
    ResolveRequest, Retention, Settlement, State, StateName, Store as _, StoreAdmin as _,
    UnknownCause, Verdict,
};
use onceward_stores::embedded::{EmbeddedStore, Settings, verify};
use onceward_testkit::clock::ManualClock;

use super::common::{
    DAY, complete, granted, id, open, open_at, outcome, replay, request, settle, small,
};
use crate::calls::unknown;

/// Values larger and smaller than the size from which they are stored apart from their keys.
fn text(index: usize) -> String {
    format!("{index} ").repeat(index % 7 * 150 + 1)
}

#[tokio::test]
async fn everything_is_there_after_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for index in 0..300 {
        complete(&store, &format!("key {index}"), &text(index)).await;
    }
    let stats = store.stats().await.unwrap();
    drop(store);
    for _ in 0..3 {
        let store = open(directory.path());
        assert_eq!(store.stats().await.unwrap(), stats);
        for index in 0..300 {
            assert_eq!(replay(&store, &format!("key {index}")).await, text(index));
        }
    }
    let report = verify(directory.path(), |_| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.records, report.due_entries_current), (300, 300));
}

#[tokio::test]
async fn what_was_running_is_unknown_after_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let holder = granted(&store, "running").await;
    complete(&store, "done", "done").await;
    drop(store);

    let store = open(directory.path());
    assert!(matches!(store.claim(&request("running")).await.unwrap(), Claim::Unknown { .. }));
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.by_state[StateName::Running as usize], 0);
    assert_eq!(stats.by_state[StateName::Unknown as usize], 1);
    let found = store.get(&id("running")).await.unwrap().unwrap();
    assert_eq!(stats.oldest_unknown, Some(found.updated_at));
    assert_eq!(found.state, State::Unknown { cause: UnknownCause::Lapsed });
    let query = Query { standing: Some(StateName::Unknown), ..Query::default() };
    assert_eq!(store.list(&query).await.unwrap().records.len(), 1);

    // Evidence decides, as for every unknown outcome.
    let (id, verdict) = (id("running"), Verdict::Happened(outcome("seen")));
    let resolve = ResolveRequest { id, fence: holder.fence, verdict, retention: DAY };
    assert_eq!(store.resolve(&resolve).await.unwrap(), Fenced::Applied(()));
    assert_eq!(replay(&store, "running").await, "seen");
    drop(store);
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
}

#[tokio::test]
async fn unknown_records_of_earlier_openings_are_counted_by_their_age() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let first = granted(&store, "first").await;
    let _ = settle(&store, "first", first, unknown(), DAY).await.unwrap();
    granted(&store, "second").await;
    drop(store);

    let store = open(directory.path());
    let changed = async |key| store.get(&id(key)).await.unwrap().map(|it| it.updated_at);
    let counts = async || {
        let stats = store.stats().await.unwrap();
        (stats.by_state[StateName::Unknown as usize], stats.oldest_unknown)
    };
    granted(&store, "third").await;
    assert_eq!(counts().await, (2, changed("first").await));
    let done = Settlement::Complete(outcome("late"));
    let _ = settle(&store, "first", first, done, DAY).await.unwrap();
    assert_eq!(counts().await, (1, changed("second").await));
    let takeover = ClaimRequest { lapsed: Lapsed::Takeover, ..request("second") };
    assert!(matches!(store.claim(&takeover).await.unwrap(), Claim::Granted { .. }));
    assert_eq!(counts().await, (0, None));
}

/// A restart is the only way in which owners die here. With a policy of takeover, their records can
/// be taken over under a higher fence, and the old owners can no longer settle.
#[tokio::test]
async fn what_was_running_is_taken_over_after_a_reopening_where_the_policy_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let first = granted(&store, "running").await;
    drop(store);

    let store = open(directory.path());
    let takeover = ClaimRequest { lapsed: Lapsed::Takeover, ..request("running") };
    let claim = store.claim(&takeover).await.unwrap();
    let Claim::Granted { lease, attempt: 2, .. } = claim else { panic!("{claim:?}") };
    assert!(lease.fence > first.fence);
    assert_eq!(store.stats().await.unwrap().by_state[StateName::Running as usize], 1);
    let done = || Settlement::Complete(outcome("done"));
    assert_eq!(settle(&store, "running", first, done(), DAY).await.unwrap(), Fenced::Stale);
    let second = Holder { owner: takeover.owner, fence: lease.fence };
    assert_eq!(settle(&store, "running", second, done(), DAY).await.unwrap(), Fenced::Applied(()));
    drop(store);
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
}

#[tokio::test]
async fn the_clock_does_not_go_back_behind_what_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let (early, late) = (ManualClock::new(), ManualClock::new());
    late.advance(Duration::from_secs(3_600));
    let store = open_at(directory.path(), Arc::new(late.clone()));
    let first = granted(&store, "first").await;
    drop(store);

    let store = open_at(directory.path(), Arc::new(early.clone()));
    let second = granted(&store, "second").await;
    assert!(second.fence >= first.fence);
    let updated = |it: Option<onceward_core::Record>| it.unwrap().updated_at;
    let before = updated(store.get(&id("second")).await.unwrap());
    assert!(before >= late.now());
    // It continues from there at its normal pace.
    early.advance(Duration::from_secs(5));
    granted(&store, "third").await;
    let after = updated(store.get(&id("third")).await.unwrap());
    assert_eq!(before.until(after), Duration::from_secs(5));
}

#[tokio::test]
async fn fences_increase_after_a_purge_and_a_reopening_with_the_clock_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let short = Retention { keep: Duration::from_secs(1), tombstone: Duration::ZERO };
    let mut last = onceward_core::Fence(0);
    for _ in 0..3 {
        let clock = ManualClock::new();
        let store = open_at(directory.path(), Arc::new(clock.clone()));
        for _ in 0..3 {
            let holder = granted(&store, "key").await;
            assert!(holder.fence > last);
            last = holder.fence;
            let done = Settlement::Complete(outcome("done"));
            let _ = settle(&store, "key", holder, done, short).await.unwrap();
            clock.advance(Duration::from_secs(2));
            assert_eq!(store.purge(10).await.unwrap().removed, 1);
        }
        assert_eq!(store.stats().await.unwrap().records, 0);
    }
    let report = verify(directory.path(), |_| {}).unwrap();
    assert!(report.is_clean() && report.due_entries == 0, "{report:?}");
}

#[tokio::test]
async fn an_outcome_larger_than_a_segment_fits() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let large = "x".repeat(1 << 20);
    complete(&store, "large", &large).await;
    complete(&store, "small", "small").await;
    assert_eq!(replay(&store, "large").await, large);
    drop(store);
    let store = open(directory.path());
    assert_eq!(replay(&store, "large").await, large);
    assert_eq!(replay(&store, "small").await, "small");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_is_taken_or_not_and_never_half() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory.path()));
    for index in 0..200 {
        let key = format!("key {index}");
        let (asked, theirs) = (request(&key), Arc::clone(&store));
        let repeated = asked.clone();
        let task = tokio::spawn(async move { theirs.claim(&asked).await });
        if index % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        // The same token is granted again, whether or not the first call was.
        assert!(matches!(store.claim(&repeated).await.unwrap(), Claim::Granted { .. }));
        let other = store.claim(&request(&key)).await.unwrap();
        assert!(matches!(other, Claim::Running { .. }), "{other:?}");
    }
    drop(store);
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_and_stats_are_right_while_memory_is_written_out_and_cleaned_up() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { memtable_bytes: 16 << 10, ..small() };
    let store = Arc::new(EmbeddedStore::open(directory.path(), settings).unwrap());
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for index in 0..250 {
                    let key = format!("{task} {index}");
                    complete(&*store, &key, &text(index)).await;
                    let old = index / 2;
                    assert_eq!(replay(&*store, &format!("{task} {old}")).await, text(old));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut told = 0;
    store.compact(|_| told += 1).await.unwrap();
    assert!(told > 0);
    assert_eq!(store.stats().await.unwrap().records, 2_000);
    for task in 0..8 {
        assert_eq!(replay(&*store, &format!("{task} 249")).await, text(249));
    }
    drop(store);
    let mut seen = 0;
    let report = verify(directory.path(), |records| seen = records).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.records, seen), (2_000, 2_000));
}

#[tokio::test]
async fn what_was_purged_leaves_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let store = open_at(directory.path(), Arc::new(clock.clone()));
    let bytes = |path: &std::path::Path| walk(path).iter().map(|(_, size)| size).sum::<u64>();
    for index in 0..1_000 {
        complete(&store, &format!("key {index}"), &"x".repeat(2_000)).await;
    }
    let full = bytes(directory.path());
    assert!(full > 2_000_000, "{full}");
    clock.advance(DAY.keep);
    while store.purge(100).await.unwrap().more {}
    assert_eq!(store.stats().await.unwrap().records, 0);
    assert_eq!(store.stats().await.unwrap().bytes, 0);
    store.compact(|_| {}).await.unwrap();
    let empty = bytes(&directory.path().join("tree"));
    assert!(empty < 100_000, "{empty} of {full} bytes stayed");
}

#[tokio::test]
async fn an_invalidated_response_leaves_the_disk() {
    const CANARY: &str = "canary-of-a-response";
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    // Small and large ones are stored apart.
    for (key, times) in [("small", 1), ("large", 200)] {
        complete(&store, key, &CANARY.repeat(times)).await;
    }
    store.compact(|_| {}).await.unwrap();
    let tree = directory.path().join("tree");
    let told = || {
        let files = super::common::files(&tree);
        let holds = |file: &std::path::PathBuf| {
            let bytes = std::fs::read(file).unwrap();
            bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes())
        };
        files.iter().filter(|file| holds(file)).count()
    };
    assert!(told() > 0, "the search finds it");
    for key in ["small", "large"] {
        let fence = store.get(&id(key)).await.unwrap().unwrap().fence;
        let request = InvalidateRequest { id: id(key), fence };
        assert_eq!(store.invalidate(&request).await.unwrap(), Fenced::Applied(()));
    }
    store.compact(|_| {}).await.unwrap();
    drop(store);
    assert_eq!(told(), 0);
    let store = open(directory.path());
    assert_eq!(replay(&store, "small").await, "");
}

fn walk(path: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    super::common::files(path)
        .into_iter()
        .map(|file| {
            let size = file.metadata().map_or(0, |found| found.len());
            (file, size)
        })
        .collect()
}
