//! A server that lost its data: noticed before a claim is granted because of it.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, RenewRequest, Settlement, Store as _, StoreError, StoreErrorKind,
};
use onceward_services::{Redis, Server, or_skip};
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

    // Also where nobody has looked yet.
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
    // An operator's process, which takes the server for a new one.
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
    // A connection that died with the server says so once.
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
    tell(&server, &["FLUSHALL"]);
    let newcomer = open(&server, &settings).await;
    granted(&newcomer, "granted because nobody told").await;
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
    // Only the marks are gone.
    let script = "for _, key in ipairs(redis.call('KEYS', '*:mark')) do redis.call('DEL', key) end";
    tell(&server, &["EVAL", script, "0"]);
    assert_closed(&store, &["new"]).await;
    assert!(matches!(store.claim(&request("done")).await.unwrap(), Claim::Completed { .. }));
}

#[tokio::test]
async fn a_node_of_a_cluster_that_came_back_empty_closes_its_part_only() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let store = RedisStore::open_cluster(cluster.urls(), settings()).await.unwrap();
    tell(&cluster.nodes[0], &["FLUSHALL"]);
    let (mut closed, mut open) = (0, 0);
    for index in 0..60 {
        match store.claim(&request(&format!("key {index}"))).await {
            Ok(Claim::Granted { .. }) => open += 1,
            Err(error) => {
                quarantine(&error);
                closed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(closed >= 5 && open >= 20, "{closed} closed, {open} open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_has_a_second_effect_when_the_server_is_flushed_under_load() {
    let Some(server) = onceward_services::redis() else { return };
    let settings = settings();
    let stores = [open(&server, &settings).await, open(&server, &settings).await].map(Arc::new);
    let load =
        Load::on(stores.map(|store| store as _), Duration::from_secs(10), Duration::from_millis(1));
    // Every client sends its key again and again, before and after.
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
