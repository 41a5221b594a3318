//! Corrections of data: records that were changed by hand, and responses that must not be replayed
//! any more.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    CachedCopies, Claim, Fenced, Imported, InvalidateRequest, Outcome, Record, State, Store as _,
    StoreAdmin as _,
};
use onceward_stores::tiered::TieredStore;

use super::common::Tiers;
use crate::calls::{complete, eventually, granted, id, outcome, replay, request};
use crate::postgres::common::plain;

/// Tiers in which a process knows a new generation at once.
fn tiers() -> Option<Tiers> {
    let mut tiers = Tiers::shared()?;
    tiers.settings.trust = Duration::ZERO;
    Some(tiers)
}

/// Deletes all records by hand.
fn delete_records(tiers: &Tiers) {
    let sql = format!(
        "DELETE FROM {}.idempotency_record WHERE operation_name <> 'sentinel'",
        tiers.schema()
    );
    onceward_services::query(tiers.server(), &sql).unwrap();
}

async fn is_granted(store: &TieredStore, key: &str) -> bool {
    matches!(store.claim(&request(key)).await.unwrap(), Claim::Granted { .. })
}

#[tokio::test]
async fn copies_of_deleted_records_leave_redis_and_are_not_answered() {
    let Some(tiers) = tiers() else { return };
    let (one, other) = (tiers.open().await, tiers.open().await);
    complete(&one, "done", "done").await;
    complete(&one, "else", "else").await;
    granted(&one, "busy").await;
    let busy = other.claim(&request("busy")).await.unwrap();
    assert!(matches!(busy, Claim::Running { .. }), "{busy:?}");
    eventually("busy is kept", async || tiers.has_entry("busy")).await;
    delete_records(&tiers);
    assert_eq!(replay(&other, "done").await, "done", "Redis answers");
    assert!(one.has_cache());
    one.invalidate_cache(&CachedCopies::Of(vec![id("done"), id("busy")])).await.unwrap();
    for key in ["done", "busy"] {
        assert!(!tiers.has_entry(key), "{key}");
        assert!(is_granted(&other, key).await, "{key}");
    }
    assert!(tiers.has_entry("else"), "it is only not valid any more");
    assert!(is_granted(&other, "else").await);
}

/// A process that read a record before it was deleted writes its copy afterwards.
#[tokio::test]
async fn a_slow_process_cannot_put_back_a_copy_that_counts() {
    for copies in [CachedCopies::All, CachedCopies::Of(vec![id("key")])] {
        let Some(tiers) = tiers() else { return };
        let (one, other) = (tiers.open().await, tiers.open().await);
        complete(&one, "key", "done").await;
        let late = tiers.entry("key").await.unwrap();
        delete_records(&tiers);
        one.invalidate_cache(&copies).await.unwrap();
        tiers.put_entry("key", &late).await;
        assert!(is_granted(&other, "key").await, "{copies:?}");
    }
}

/// The outcome that a key replays.
async fn replayed(store: &TieredStore, key: &str) -> Outcome {
    match store.claim(&request(key)).await.unwrap() {
        Claim::Completed { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_invalidated_response_is_not_replayed_although_redis_lies() {
    let Some(tiers) = tiers() else { return };
    let (one, other) = (tiers.open().await, tiers.open().await);
    let fence = granted(&one, "key").await.fence;
    let record = one.get(&id("key")).await.unwrap().unwrap();
    assert_eq!(record.fence, fence);
    settle_as_done(&one, &record).await;
    assert_eq!(replay(&other, "key").await, "done");
    let stale = tiers.entry("key").await.unwrap();
    let request = InvalidateRequest { id: id("key"), fence };
    assert_eq!(one.invalidate(&request).await.unwrap(), Fenced::Applied(()));
    let invalidated = outcome("done").invalidated();
    assert_eq!(replayed(&other, "key").await, invalidated);
    tiers.put_entry("key", &stale).await;
    assert_eq!(replayed(&other, "key").await, invalidated);
    eventually("what remains is cached", async || tiers.has_entry("key")).await;
    assert_eq!(replayed(&other, "key").await, invalidated);
}

/// As a store that moves imports it.
#[tokio::test]
async fn an_imported_invalidation_is_one_although_redis_lies() {
    let Some(tiers) = tiers() else { return };
    let (one, other) = (tiers.open().await, tiers.open().await);
    complete(&one, "key", "done").await;
    let stale = tiers.entry("key").await.unwrap();
    let stored = one.get(&id("key")).await.unwrap().unwrap();
    let retained = stored.state.retained().unwrap();
    let outcome = outcome("done").invalidated();
    let state = State::Completed { outcome: outcome.clone(), retained };
    let updated_at = stored.updated_at + Duration::from_millis(1);
    let invalidated = Record { state, updated_at, ..stored };
    assert_eq!(one.import(&invalidated).await.unwrap(), Imported::Written);
    tiers.put_entry("key", &stale).await;
    assert_eq!(replayed(&other, "key").await, outcome);
}

async fn settle_as_done(store: &TieredStore, record: &Record) {
    let holder = onceward_core::Holder { owner: record.owner, fence: record.fence };
    let done = onceward_core::Settlement::Complete(outcome("done"));
    let settled = crate::calls::settle(store, "key", holder, done, crate::calls::DAY).await;
    assert_eq!(settled.unwrap(), Fenced::Applied(()));
}

/// The generation begins after the change. Begun before it, a copy that another process makes
/// between the two would count, and with it the response from before.
#[tokio::test]
async fn a_copy_made_while_a_response_is_invalidated_does_not_count() {
    let Some(mut tiers) = tiers() else { return };
    // The invalidation waits for the test, however slow the machine is.
    tiers.wait_for_locks(Duration::from_secs(60));
    let (one, other) = (Arc::new(tiers.open().await), tiers.open().await);
    complete(&*one, "else", "else").await;
    granted(&*one, "key").await;
    let record = one.get(&id("key")).await.unwrap().unwrap();
    settle_as_done(&one, &record).await;
    crate::redis::common::tell(tiers.redis, &["DEL", &tiers.name("key")]);

    let mut client = plain(tiers.server().url()).await;
    let lock = client.transaction().await.unwrap();
    let sql = format!("SELECT FROM {}.idempotency_record FOR UPDATE", tiers.schema());
    lock.execute(&sql, &[]).await.unwrap();
    let request = InvalidateRequest { id: id("key"), fence: record.fence };
    let invalidating = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.invalidate(&request).await.unwrap() }
    });
    let watch = plain(tiers.server().url()).await;
    let waiting = format!(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'",
        tiers.schema()
    );
    let waits = async || !watch.query(&waiting, &[]).await.unwrap().is_empty();
    eventually("the invalidation waits", waits).await;
    // Reads the generation, as every answer from Redis does.
    assert_eq!(replay(&other, "else").await, "else");
    assert_eq!(replay(&other, "key").await, "done", "it is not invalidated yet");
    eventually("it is cached", async || tiers.has_entry("key")).await;
    let late = tiers.entry("key").await.unwrap();
    lock.commit().await.unwrap();
    assert_eq!(invalidating.await.unwrap(), Fenced::Applied(()));
    tiers.put_entry("key", &late).await;
    assert_eq!(replayed(&other, "key").await, outcome("done").invalidated());
}
