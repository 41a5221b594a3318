//! Requests, and the tier that answers each.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    CachedCopies, Claim, ClaimRequest, Fenced, Fingerprint, Holder, RenewRequest, ResolveRequest,
    Retention, Settlement, Store as _, StoreAdmin as _, Verdict,
};
use onceward_services::{Postgres, or_skip};
use onceward_stores::postgres::PostgresStore;
use onceward_stores::tiered::{Settings, TieredStore};

use super::common::{Tiers, settings};
use crate::calls::{
    DAY, complete, eventually, granted, id, outcome, replay, request, settle, unknown,
};
use crate::postgres::common::small;
use crate::redis::common::shared;

#[tokio::test]
async fn a_replay_needs_no_postgresql() {
    let Some(redis) = shared() else { return };
    let Some(server) = or_skip(Postgres::default().fsync(false).start()) else { return };
    let settings = Settings { trust: Duration::from_secs(600), ..settings() };
    let postgres = small();
    let open = async || {
        let authority = PostgresStore::open(server.url(), postgres.clone()).await.unwrap();
        TieredStore::open(Arc::new(authority), redis.url(), settings.clone()).await.unwrap()
    };
    let (one, other) = (open().await, open().await);
    complete(&one, "key", "done").await;
    server.pause();
    assert_eq!(replay(&one, "key").await, "done");
    assert_eq!(replay(&other, "key").await, "done");
    // No claim is granted either.
    assert!(one.claim(&request("new")).await.is_err());
    server.resume();
}

#[tokio::test]
async fn what_redis_has_lost_is_there_again_after_one_replay() {
    let Some(tiers) = Tiers::shared() else { return };
    let store = tiers.open().await;
    complete(&store, "key", "done").await;
    assert!(tiers.has_entry("key"));
    crate::redis::common::tell(tiers.redis, &["DEL", &tiers.name("key")]);
    assert_eq!(replay(&store, "key").await, "done");
    eventually("it is fetched", async || tiers.has_entry("key")).await;
    assert_eq!(replay(&store, "key").await, "done");
}

#[tokio::test]
async fn large_outcomes_stay_in_postgresql() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.outcome_bytes_max = 10;
    let store = tiers.open().await;
    complete(&store, "key", "longer than ten bytes").await;
    assert_eq!(replay(&store, "key").await, "longer than ten bytes");
    assert!(!tiers.has_entry("key"));
}

/// Claims as another client, and checks that the answer is *busy*.
async fn busy(store: &TieredStore, key: &str) {
    let claim = store.claim(&request(key)).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
}

#[tokio::test]
async fn its_own_holder_is_granted_again_although_redis_says_busy() {
    let Some(tiers) = Tiers::shared() else { return };
    let store = tiers.open().await;
    let own = request("key");
    let first = store.claim(&own).await.unwrap();
    busy(&store, "key").await;
    eventually("busy is kept", async || tiers.has_entry("key")).await;
    busy(&store, "key").await;
    assert_eq!(store.claim(&own).await.unwrap(), first);
}

#[tokio::test]
async fn busy_is_over_when_it_is_settled_or_renewed() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.busy = Duration::from_secs(600);
    let (one, other) = (tiers.open().await, tiers.open().await);
    let ends = [Settlement::Complete(outcome("done")), Settlement::Release, unknown()];
    for (number, settlement) in ends.into_iter().enumerate() {
        let key = format!("key {number}");
        let holder = granted(&one, &key).await;
        busy(&other, &key).await;
        eventually("busy is kept", async || tiers.has_entry(&key)).await;
        let settled = settle(&one, &key, holder, settlement.clone(), DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()));
        let claim = other.claim(&request(&key)).await.unwrap();
        assert!(!matches!(claim, Claim::Running { .. }), "{settlement:?}: {claim:?}");
    }
    let holder = granted(&one, "renewed").await;
    busy(&other, "renewed").await;
    eventually("busy is kept", async || tiers.has_entry("renewed")).await;
    let renewal = RenewRequest { id: id("renewed"), holder, lease: Duration::from_secs(3_000) };
    assert!(matches!(one.renew(&renewal).await.unwrap(), Fenced::Applied(_)));
    let Claim::Running { lease_left, .. } = other.claim(&request("renewed")).await.unwrap() else {
        panic!("it is running");
    };
    assert!(lease_left > Duration::from_secs(1_000), "{lease_left:?}");
}

#[tokio::test]
async fn another_request_under_the_key_is_refused_whatever_redis_has() {
    let Some(tiers) = Tiers::shared() else { return };
    let store = tiers.open().await;
    complete(&store, "key", "done").await;
    let other = ClaimRequest { fingerprint: Fingerprint::of_parts(&[b"other"]), ..request("key") };
    let claim = store.claim(&other).await.unwrap();
    assert!(matches!(claim, Claim::Mismatch { .. }), "{claim:?}");
}

/// A record that is unknown in PostgreSQL and *busy* in Redis.
async fn unknown_and_busy(tiers: &Tiers, store: &TieredStore) -> (Holder, Vec<u8>) {
    let holder = granted(store, "key").await;
    busy(store, "key").await;
    eventually("busy is kept", async || tiers.has_entry("key")).await;
    let entry = tiers.entry("key").await.unwrap();
    let settled = settle(store, "key", holder, unknown(), DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
    tiers.put_entry("key", &entry).await;
    (holder, entry)
}

#[tokio::test]
async fn an_operators_release_is_seen_at_once_although_redis_lies() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.busy = Duration::from_secs(600);
    tiers.settings.trust = Duration::ZERO;
    let (one, other) = (tiers.open().await, tiers.open().await);
    let (holder, entry) = unknown_and_busy(&tiers, &one).await;
    // The stale entry is believed, which the generation prevents.
    busy(&other, "key").await;
    let (verdict, retention) = (Verdict::DidNotHappen, DAY);
    let release = ResolveRequest { id: id("key"), fence: holder.fence, verdict, retention };
    assert_eq!(one.resolve(&release).await.unwrap(), Fenced::Applied(()));
    tiers.put_entry("key", &entry).await;
    let claim = other.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Granted { .. }), "{claim:?}");
}

#[tokio::test]
async fn nobody_believes_what_was_there_before_a_new_generation() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.trust = Duration::from_millis(300);
    let (one, other) = (tiers.open().await, tiers.open().await);
    complete(&one, "key", "done").await;
    assert_eq!(replay(&other, "key").await, "done");
    // An operator changes the record by hand.
    let forget = format!(
        "DELETE FROM {}.idempotency_record WHERE operation_name <> 'sentinel'",
        tiers.schema()
    );
    onceward_services::query(tiers.server(), &forget).unwrap();
    assert_eq!(replay(&other, "key").await, "done");
    one.invalidate_cache(&CachedCopies::All).await.unwrap();
    let claim = other.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Granted { .. }), "{claim:?}");
}

#[tokio::test]
async fn busy_ends_in_time_although_redis_keeps_it() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.busy = Duration::from_millis(300);
    let store = tiers.open().await;
    let (_, _busy) = unknown_and_busy(&tiers, &store).await;
    tokio::time::sleep(tiers.settings.busy + tiers.settings.trust).await;
    let claim = store.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Unknown { .. }), "{claim:?}");
}

#[tokio::test]
async fn an_entry_ends_with_its_retention_although_redis_keeps_it() {
    let Some(mut tiers) = Tiers::shared() else { return };
    tiers.settings.trust = Duration::from_millis(50);
    let store = tiers.open().await;
    let holder = granted(&store, "key").await;
    let short = Retention { keep: Duration::from_millis(400), tombstone: Duration::ZERO };
    let done = Settlement::Complete(outcome("done"));
    assert_eq!(settle(&store, "key", holder, done, short).await.unwrap(), Fenced::Applied(()));
    let entry = tiers.entry("key").await.unwrap();
    tokio::time::sleep(short.keep).await;
    tiers.put_entry("key", &entry).await;
    let claim = store.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Granted { .. }), "{claim:?}");
}

#[tokio::test]
async fn an_entry_of_another_key_or_changed_is_nobodys() {
    let Some(tiers) = Tiers::shared() else { return };
    let store = tiers.open().await;
    complete(&store, "one", "one").await;
    complete(&store, "two", "two").await;
    let (one, two) = (tiers.entry("one").await.unwrap(), tiers.entry("two").await.unwrap());
    tiers.put_entry("one", &two).await;
    tiers.put_entry("three", &one).await;
    assert_eq!(replay(&store, "one").await, "one");
    granted(&store, "three").await;
    let mut changed = two;
    *changed.last_mut().unwrap() ^= 1;
    tiers.put_entry("two", &changed).await;
    assert_eq!(replay(&store, "two").await, "two");
    tiers.put_entry("two", &[]).await;
    assert_eq!(replay(&store, "two").await, "two");
}
