//! A server that lost its data: detected before a claim is granted because of it.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, Health, LossAccepted, RenewRequest, Settlement, Store as _, StoreAdmin,
    StoreError, StoreErrorKind,
};
use onceward_services::{Redis, Reply, Server, or_skip};
use onceward_stores::redis::{Allow, OnEmpty, Quarantined, RedisStore, Settings};

use super::common::{DAY, complete, granted, id, outcome, request, settings, settle, tell};
use crate::load::Load;

async fn open(server: &Server, settings: &Settings) -> RedisStore {
    RedisStore::open(server.url(), settings.clone()).await.unwrap()
}

fn quarantine(error: &StoreError) -> Quarantined {
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
    *error.source().and_then(|it| it.downcast_ref()).unwrap_or_else(|| panic!("{error:?}"))
}

async fn assert_closed(store: &RedisStore, keys: &[&str]) {
    for key in keys {
        let error = store.claim(&request(key)).await.expect_err(key);
        assert!(quarantine(&error).left > Duration::ZERO, "{key}");
    }
}

const KEYS: [&str; 5] = ["done", "running", "new", "another", "and another"];

#[tokio::test]
async fn after_a_flush_nothing_is_granted_until_an_operator_accepts_the_loss() {
    let Some(server) = onceward_services::redis() else { return };
    let store = open(&server, &settings()).await;
    complete(&store, "done", "done").await;
    let holder = granted(&store, "running").await;
    tell(&server, &["FLUSHALL"]);
    let renewal = RenewRequest { id: id("running"), holder, lease: Duration::from_secs(30) };
    assert_eq!(store.renew(&renewal).await.unwrap(), Fenced::Missing);
    assert_closed(&store, &KEYS).await;
    let done = Settlement::Complete(outcome("late"));
    let late = settle(&store, "running", holder, done, DAY).await.unwrap();
    assert_eq!(late, Fenced::Missing);

    // Also before any process has noticed the loss.
    assert_eq!(store.accept_loss().await.unwrap(), 1024);
    for key in KEYS {
        complete(&store, key, "anew").await;
    }
    assert_eq!(store.accept_loss().await.unwrap(), 0);
}

#[tokio::test]
async fn a_loss_that_was_accepted_is_accepted_for_everybody() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let (one, two) = (open(&server, &settings).await, open(&server, &settings).await);
    tell(&server, &["FLUSHALL"]);
    // The process of an operator, which takes the server for a new one.
    let operator = open(&server, &settings).await;
    operator.accept_loss().await.unwrap();
    for index in 0..100 {
        complete(&one, &format!("one {index}"), "anew").await;
        complete(&two, &format!("two {index}"), "anew").await;
    }
}

#[tokio::test]
async fn a_quarantine_of_no_time_is_none() {
    let Some(server) = onceward_services::redis() else { return };
    let store = open(&server, &Settings { quarantine: Duration::ZERO, ..settings() }).await;
    granted(&store, "key").await;
    tell(&server, &["FLUSHALL"]);
    granted(&store, "key").await;
}

#[tokio::test]
async fn a_quarantine_passes_by_itself() {
    let Some(server) = onceward_services::redis() else { return };
    let short = Settings { quarantine: Duration::from_millis(400), ..settings() };
    let store = open(&server, &short).await;
    tell(&server, &["FLUSHALL"]);
    let left = quarantine(&store.claim(&request("key")).await.unwrap_err()).left;
    assert!(left <= Duration::from_millis(400));
    tokio::time::sleep(left + Duration::from_millis(5)).await;
    granted(&store, "key").await;
}

#[tokio::test]
async fn a_server_that_comes_back_empty_grants_nothing() {
    let Some(server) = or_skip(Redis::default().persistent(false).start()) else { return };
    let allow = Allow { no_persistence: true, ..Allow::default() };
    let store = open(&server, &Settings { allow, ..settings() }).await;
    complete(&store, "done", "done").await;
    server.kill().unwrap();
    let down = store.claim(&request("new")).await.unwrap_err();
    assert_eq!(down.kind, StoreErrorKind::Unavailable, "{down:?}");
    server.start().unwrap();
    // The first call fails with the old connection.
    let _lost = store.claim(&request("new")).await;
    assert_closed(&store, &KEYS).await;
}

#[tokio::test]
async fn a_process_that_starts_after_the_loss_was_noticed_knows_of_it() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let store = open(&server, &settings).await;
    tell(&server, &["FLUSHALL"]);
    assert_closed(&store, &KEYS).await;
    assert_closed(&open(&server, &settings).await, &KEYS).await;
}

#[tokio::test]
async fn who_knew_the_data_closes_what_a_newcomer_took_for_new() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let knows = open(&server, &settings).await;
    // Like a server that comes back without its files.
    tell(&server, &["FUNCTION", "FLUSH"]);
    tell(&server, &["FLUSHALL"]);
    let newcomer = open(&server, &settings).await;
    granted(&newcomer, "granted: the server looked new").await;
    assert_closed(&knows, &KEYS).await;
    assert_closed(&newcomer, &KEYS).await;
}

#[tokio::test]
async fn an_empty_server_can_begin_with_a_quarantine() {
    let Some(server) = onceward_services::redis() else { return };
    let careful = Settings { empty: OnEmpty::Quarantine, ..settings() };
    let store = open(&server, &careful).await;
    assert_closed(&store, &KEYS).await;
    assert_eq!(store.accept_loss().await.unwrap(), 1024);
    granted(&store, "key").await;
}

#[tokio::test]
async fn what_a_closed_store_still_has_is_replayed() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let store = open(&server, &settings).await;
    complete(&store, "done", "done").await;
    // Only the markers are gone.
    let script = "for _, key in ipairs(redis.call('KEYS', '*:mark')) do redis.call('DEL', key) end";
    tell(&server, &["EVAL", script, "0"]);
    assert_closed(&store, &["new"]).await;
    assert!(matches!(store.claim(&request("done")).await.unwrap(), Claim::Completed { .. }));
}

#[tokio::test]
async fn a_node_of_a_cluster_that_came_back_empty_closes_the_whole_store() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let settings = settings();
    let store = RedisStore::open_cluster(cluster.urls(), settings.clone()).await.unwrap();
    let other = RedisStore::open_cluster(cluster.urls(), settings).await.unwrap();
    complete(&store, "done", "done").await;
    tell(&cluster.nodes[0], &["FLUSHALL"]);
    until("the loss is seen", async || store.health().await.unwrap().refuses.is_some()).await;
    for index in 0..60 {
        assert_closed(&other, &[&format!("key {index}")]).await;
    }
}

/// Waits until a store has noticed something by itself.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("never: {what}"));
}

fn known_keys() -> Vec<String> {
    (0..120).map(|index| format!("known {index}")).collect()
}

async fn complete_known(store: &RedisStore) {
    for key in known_keys() {
        complete(store, &key, "done").await;
    }
}

/// The number of known keys that were granted again.
async fn granted_again(store: &RedisStore) -> usize {
    let mut again = 0;
    for key in known_keys() {
        again +=
            usize::from(matches!(store.claim(&request(&key)).await, Ok(Claim::Granted { .. })));
    }
    again
}

/// A gateway that was restarted after a flush, before any claim, once took the server for a new
/// one: 115 of 120 known keys ran again.
#[tokio::test]
async fn a_process_that_starts_after_an_unseen_flush_grants_no_known_key() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let store = open(&server, &settings).await;
    complete_known(&store).await;
    drop(store);
    tell(&server, &["FLUSHALL"]);
    let store = open(&server, &settings).await;
    assert_eq!(granted_again(&store).await, 0);
    let refuses = store.health().await.unwrap().refuses.expect("a refusal");
    assert!(refuses.contains("records were lost") && refuses.contains("accept-loss"), "{refuses}");
    assert_eq!(StoreAdmin::accept_loss(&store).await.unwrap(), LossAccepted::Reopened);
    assert_eq!(StoreAdmin::accept_loss(&store).await.unwrap(), LossAccepted::NothingWasLost);
    assert_eq!(store.health().await.unwrap(), Health::default());
    granted(&store, "known 7").await;
}

/// The library belongs to one prefix and one database.
#[tokio::test]
async fn another_store_on_a_flushed_server_is_new() {
    let Some(server) = onceward_services::redis() else { return };
    drop(open(&server, &settings()).await);
    let other = Settings { prefix: "other".to_owned(), ..settings() };
    granted(&open(&server, &other).await, "key").await;
    let second = format!("{}/1", server.url().trim_end_matches('/'));
    granted(&RedisStore::open(&second, settings()).await.unwrap(), "key").await;
}

/// The quarantine once closed bucket by bucket, as claims reached them.
#[tokio::test]
async fn the_first_sign_of_loss_closes_all_buckets() {
    let Some(server) = onceward_services::redis() else { return };
    let store = open(&server, &settings()).await;
    tell(&server, &["FLUSHALL"]);
    assert_closed(&store, &["one key of one bucket"]).await;
    let script = "local now, closed = tonumber(redis.call('TIME')[1]) * 1000, 0
        for _, mark in ipairs(redis.call('KEYS', '*:mark')) do
            if tonumber(redis.call('HGET', mark, 'open_at')) > now then closed = closed + 1 end
        end
        return closed";
    assert_eq!(tell(&server, &["EVAL", script, "0"]), Reply::from("1024"));
}

#[tokio::test]
async fn a_flush_is_noticed_before_anything_is_claimed() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let store = open(&server, &settings).await;
    tell(&server, &["FUNCTION", "FLUSH"]);
    tell(&server, &["FLUSHALL"]);
    let mark = format!("{}:{{000}}:mark", settings.prefix);
    until("a mark", async || tell(&server, &["EXISTS", &mark]) == Reply::from("1")).await;
    assert_closed(&open(&server, &settings).await, &KEYS).await;
    assert_closed(&store, &KEYS).await;
}

async fn refuses_because(store: &RedisStore, why: &str) -> bool {
    store.health().await.unwrap().refuses.is_some_and(|refuses| refuses.contains(why))
}

/// Eviction that was switched on while a store was open once let 40 keys run twice.
#[tokio::test]
async fn eviction_that_is_switched_on_closes_the_store_until_it_is_off() {
    let Some(server) = onceward_services::redis() else { return };
    let store = open(&server, &settings()).await;
    complete(&store, "done", "done").await;
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let mut attempts = 0..;
    until("refused", async || {
        let key = format!("new {}", attempts.next().unwrap_or(0));
        store.claim(&request(&key)).await.is_err()
    })
    .await;
    let error = store.claim(&request("another")).await.unwrap_err();
    let why = error.source().unwrap().to_string();
    assert!(why.contains("maxmemory-policy is `allkeys-lru`"), "{why}");
    assert!(refuses_because(&store, "CONFIG SET maxmemory-policy noeviction").await);
    assert!(matches!(store.claim(&request("done")).await.unwrap(), Claim::Completed { .. }));
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until("granted", async || store.claim(&request("at last")).await.is_ok()).await;
    assert_eq!(store.health().await.unwrap(), Health::default());
}

#[tokio::test]
async fn keys_that_were_evicted_are_a_loss_also_when_eviction_is_off_again() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let (store, other) = (open(&server, &settings).await, open(&server, &settings).await);
    complete_known(&store).await;
    // Settled records and no markers: only the server's count of evicted keys shows the loss.
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "volatile-random"]);
    tell(&server, &["CONFIG", "SET", "maxmemory", "1mb"]);
    let stats = || format!("{:?}", tell(&server, &["INFO", "stats"]));
    until("evicted", async || !stats().contains("evicted_keys:0")).await;
    tell(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    for store in [&store, &other] {
        until("the loss is seen", async || refuses_because(store, "records were lost").await).await;
        assert_eq!(granted_again(store).await, 0);
    }
    assert_eq!(granted_again(&open(&server, &settings).await).await, 0);
    store.accept_loss().await.unwrap();
    until("granted", async || other.claim(&request("new")).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_has_a_second_effect_when_the_server_is_flushed_under_load() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let stores = [open(&server, &settings).await, open(&server, &settings).await].map(Arc::new);
    let load =
        Load::on(stores.map(|store| store as _), Duration::from_secs(10), Duration::from_millis(1));
    // Every client repeats its key, before and after.
    let keys: Vec<_> = (0..400).map(|index| format!("key {index}")).collect();
    let clients: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(index, key)| {
            let (load, key) = (Arc::clone(&load), key.clone());
            tokio::spawn(async move { load.bounded(index, &key, 40).await })
        })
        .collect();
    while load.completed() < 100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tell(&server, &["FLUSHALL"]);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(load.duplicates(), 0);
    let refused = load.count(|it| *it == onceward_testkit::history::Answer::Unavailable);
    assert!(refused > 100, "the flush came too late: {refused} refused");
}
