//! Records as the server stores them, and records that cannot be read.

use std::collections::HashMap;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Effect, ErrorCode, Key, Lapsed, Query, Retention, Settlement, Sketch,
    State, Store as _, StoreAdmin as _, StoreErrorKind, UnknownCause,
};
use onceward_services::{Reply, Server};
use onceward_stores::redis::{RedisStore, Settings};

use super::common::{DAY, complete, granted, id, outcome, request, settings, settle, shared, tell};
use crate::calls::unknown;

async fn opened() -> Option<(&'static Server, RedisStore, String)> {
    let (server, settings) = (shared()?, settings());
    let prefix = settings.prefix.clone();
    Some((server, RedisStore::open(server.url(), settings).await.unwrap(), prefix))
}

/// The name of a key; its hash tag is the first ten bits of its id.
fn name(prefix: &str, key: &str) -> String {
    let id = id(key);
    let [first, second, ..] = *id.as_bytes();
    format!("{prefix}:{{{:03x}}}:{id}", u16::from_be_bytes([first, second]) >> 6)
}

fn fields(server: &Server, name: &str) -> HashMap<String, String> {
    let Reply::List(words) = tell(server, &["HGETALL", name]) else { panic!() };
    let text = |reply: &Reply| match reply {
        Reply::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    words.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[tokio::test]
async fn a_record_is_a_hash_that_people_can_read() {
    let Some((server, store, prefix)) = opened().await else { return };
    let request = ClaimRequest {
        key: Some(Key::new("order-7").unwrap()),
        sketch: Sketch::from_stored(b"sketch"),
        path: None,
        ..request("key")
    };
    let Claim::Granted { lease, .. } = store.claim(&request).await.unwrap() else { panic!() };
    let found = fields(server, &name(&prefix, "key"));
    for (field, value) in [
        ("format", "1/1".to_owned()),
        ("state", "running".to_owned()),
        ("fence", lease.fence.to_string()),
        ("lease_until", lease.until.as_millis().to_string()),
        ("operation", request.operation.to_string()),
        ("tenant", "tenant".to_owned()),
        ("caller", "caller".to_owned()),
        ("operation_name", "operation".to_owned()),
        ("key", "order-7".to_owned()),
        ("attempts", "1".to_owned()),
    ] {
        assert_eq!(found.get(field), Some(&value), "{field} of {found:#?}");
    }
    assert_eq!((found["fingerprint"].len(), found["owner"].len()), (64, 32));
    assert_eq!(lease.until.as_millis() - found["updated_at"].parse::<u64>().unwrap(), 30_000);
    let record = store.get(&request.id).await.unwrap().unwrap();
    assert_eq!((record.key, record.sketch), (request.key, request.sketch));
    assert_eq!((record.owner, record.fence), (request.owner, lease.fence));

    let holder = onceward_core::Holder { owner: request.owner, fence: lease.fence };
    let unclear = Settlement::Unknown(UnknownCause::Status(502));
    let _ = settle(&store, "key", holder, unclear, DAY).await.unwrap();
    assert_eq!(fields(server, &name(&prefix, "key"))["unknown_cause"], "status 502");
    // As an earlier release leaves it.
    tell(server, &["HDEL", &name(&prefix, "key"), "unknown_cause"]);
    let earlier = store.get(&request.id).await.unwrap().unwrap().state;
    assert_eq!(earlier, State::Unknown { cause: UnknownCause::Unrecorded });

    let done = outcome("paid").with_resource("payment", "pay_7").with_status(201);
    let done = Settlement::Complete(done.with_error_code(ErrorCode::new("none")));
    let _ = settle(&store, "key", holder, done, DAY).await.unwrap();
    let found = fields(server, &name(&prefix, "key"));
    assert_eq!((&*found["status"], &*found["error_code"]), ("201", "none"));
    assert!(!found.contains_key("unknown_cause"), "{found:#?}");
    assert_eq!((&*found["state"], &*found["outcome"]), ("completed", "paid"));
    assert_eq!((&*found["content"], &*found["tag"]), ("whole", "text/v1"));
    assert_eq!((&*found["resource_kind"], &*found["resource_id"]), ("payment", "pay_7"));
    assert!(!found.contains_key("lease_until"), "{found:#?}");
}

/// Milliseconds that a key has left; -1 means that it never expires.
fn left(server: &Server, name: &str) -> i64 {
    match tell(server, &["PTTL", name]) {
        Reply::Text(digits) => digits.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_settled_records_have_a_time_to_live_and_it_is_longer_than_promised() {
    let Some(server) = shared() else { return };
    let settings = Settings { margin: Duration::from_secs(100), ..settings() };
    let prefix = settings.prefix.clone();
    let store = RedisStore::open(server.url(), settings).await.unwrap();
    let retention =
        Retention { keep: Duration::from_secs(1_000), tombstone: Duration::from_secs(10_000) };
    let key = name(&prefix, "key");
    let near =
        |left: i64, seconds: i64| (seconds * 1_000 - 60_000..=seconds * 1_000).contains(&left);

    let holder = granted(&store, "key").await;
    assert_eq!(left(server, &key), -1, "running");
    let _ = settle(&store, "key", holder, Settlement::Release, retention).await.unwrap();
    assert!(near(left(server, &key), 1_100), "released: {}", left(server, &key));
    let holder = granted(&store, "key").await;
    assert_eq!(left(server, &key), -1, "running again");
    let _ = settle(&store, "key", holder, unknown(), retention).await.unwrap();
    assert_eq!(left(server, &key), -1, "unknown");
    let done = Settlement::Complete(outcome("done"));
    let _ = settle(&store, "key", holder, done, retention).await.unwrap();
    assert!(near(left(server, &key), 11_100), "completed: {}", left(server, &key));
}

#[tokio::test]
async fn what_is_kept_for_ever_is_kept() {
    let Some((_, store, _)) = opened().await else { return };
    let holder = granted(&store, "key").await;
    let ever = Retention { keep: Duration::MAX, tombstone: Duration::MAX };
    let _ = settle(&store, "key", holder, Settlement::Fail(outcome("no")), ever).await.unwrap();
    assert!(matches!(store.claim(&request("key")).await.unwrap(), Claim::Failed { .. }));
    assert_eq!(store.purge(100).await.unwrap().removed, 0);
    let long = ClaimRequest { lease: Duration::MAX, ..request("long") };
    assert!(matches!(store.claim(&long).await.unwrap(), Claim::Granted { .. }));
    assert!(matches!(store.claim(&request("long")).await.unwrap(), Claim::Running { .. }));
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_never_absent_and_does_not_hide_the_others() {
    let Some((server, store, prefix)) = opened().await else { return };
    for key in ["good", "bad", "worse", "newer", "other type"] {
        complete(&store, key, "done").await;
    }
    tell(server, &["HSET", &name(&prefix, "bad"), "state", "paused"]);
    tell(server, &["HDEL", &name(&prefix, "worse"), "format"]);
    tell(server, &["HSET", &name(&prefix, "newer"), "format", "3/2"]);
    tell(server, &["SET", &name(&prefix, "other type"), "text"]);
    for key in ["bad", "worse", "newer", "other type"] {
        for lapsed in [Lapsed::Unknown, Lapsed::Takeover] {
            let claim = ClaimRequest { lapsed, ..request(key) };
            let error = store.claim(&claim).await.expect_err(key);
            let told = (error.kind, error.effect);
            assert_eq!(told, (StoreErrorKind::Undecodable, Effect::NotApplied), "{key}: {error:?}");
        }
        let error = store.get(&id(key)).await.expect_err(key);
        assert_eq!(error.kind, StoreErrorKind::Undecodable, "{key}");
    }
    let page = store.list(&Query::default()).await.unwrap();
    assert_eq!(page.records.iter().map(|it| it.id).collect::<Vec<_>>(), [id("good")]);
    let mut bad = page.undecodable;
    bad.sort_unstable();
    let mut expected = ["bad", "worse", "newer", "other type"].map(id);
    expected.sort_unstable();
    assert_eq!(bad, expected);
}

#[tokio::test]
async fn what_a_newer_release_added_is_left_alone_if_it_allows_that() {
    let Some((server, store, prefix)) = opened().await else { return };
    complete(&store, "key", "done").await;
    tell(server, &["HSET", &name(&prefix, "key"), "format", "2/1", "new_field", "new"]);
    assert_eq!(super::common::replay(&store, "key").await, "done");
    assert!(store.get(&id("key")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_record_that_is_due_and_cannot_be_read_does_not_stop_the_purge() {
    let Some((server, store, prefix)) = opened().await else { return };
    let short = Retention { keep: Duration::from_millis(1), tombstone: Duration::ZERO };
    for key in ["a", "b", "c"] {
        let holder = granted(&store, key).await;
        let done = Settlement::Complete(outcome("done"));
        let _ = settle(&store, key, holder, done, short).await.unwrap();
    }
    tell(server, &["HSET", &name(&prefix, "b"), "state", "paused"]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut removed = 0;
    for _ in 0..4 {
        removed += store.purge(1).await.unwrap().removed;
    }
    assert_eq!(removed, 2);
    assert_eq!(store.list(&Query::default()).await.unwrap().undecodable, [id("b")]);
}

#[tokio::test]
async fn fences_increase_when_records_vanish_and_the_clock_was_set_back() {
    let Some((server, store, prefix)) = opened().await else { return };
    let first = granted(&store, "key").await;
    // As if the clock had been an hour ahead: the marker remembers the highest fence.
    let mark = name(&prefix, "key").rsplit_once(':').map(|(tag, _)| format!("{tag}:mark")).unwrap();
    let ahead = first.fence.0 + 3_600_000;
    tell(server, &["HSET", &mark, "fence", &ahead.to_string()]);
    tell(server, &["DEL", &name(&prefix, "key")]);
    let second = granted(&store, "key").await;
    assert!(second.fence.0 > ahead, "{} after {ahead}", second.fence);
    tell(server, &["DEL", &name(&prefix, "key")]);
    assert!(granted(&store, "key").await.fence > second.fence);
}

#[tokio::test]
async fn a_purge_forgets_what_the_server_forgot_by_itself() {
    let Some((server, store, prefix)) = opened().await else { return };
    let short = Retention { keep: Duration::from_millis(1), tombstone: Duration::ZERO };
    let holder = granted(&store, "key").await;
    let _ = settle(&store, "key", holder, Settlement::Release, short).await.unwrap();
    tell(server, &["DEL", &name(&prefix, "key")]);
    assert_eq!(store.stats().await.unwrap().records, 1);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(store.purge(10).await.unwrap().removed, 1);
    assert_eq!(store.stats().await.unwrap().records, 0);
    assert_eq!(store.list(&Query::default()).await.unwrap().records.len(), 0);
}
