//! A table of records that was emptied: detected before a claim is granted because of it.

use std::error::Error as _;

use onceward_core::{
    Claim, Effect, Health, Identity, Intent, Key, LossAccepted, Policy, Query, Store as _,
    StoreAdmin as _, StoreErrorKind,
};
use onceward_services::{Server, query};
use onceward_stores::postgres::{PostgresStore, Settings};

use super::common::{complete, granted, replay, request, scope, shared, small};

fn known_keys() -> Vec<String> {
    (0..171).map(|index| format!("known {index}")).collect()
}

/// A store with known keys, whose table was emptied afterwards.
async fn emptied(server: &Server, how: &str) -> (PostgresStore, Settings) {
    let settings = small();
    let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    for key in known_keys() {
        complete(&store, &key, "done").await;
    }
    let table = format!("{}.idempotency_record", settings.schema);
    query(server, &how.replace("TABLE", &table)).unwrap();
    (store, settings)
}

/// Asserts that no known key is granted.
async fn assert_closed(store: &PostgresStore) {
    for key in known_keys() {
        let error = store.claim(&request(&key)).await.expect_err(&key);
        assert_eq!((error.kind, error.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
        let text = error.source().unwrap().to_string();
        assert!(text.contains("onceward store accept-loss"), "{text}");
    }
    let refuses = store.health().await.unwrap().refuses.expect("a refusal");
    assert!(refuses.contains("all records in the schema"), "{refuses}");
}

/// A truncated table once counted as an empty store: 171 of 171 known keys ran again.
#[tokio::test]
async fn after_the_table_was_emptied_no_process_grants_anything_until_the_loss_is_accepted() {
    let Some(server) = shared() else { return };
    for how in ["TRUNCATE TABLE", "DELETE FROM TABLE"] {
        let (store, settings) = emptied(server, how).await;
        assert_closed(&store).await;
        let later = PostgresStore::open(server.url(), settings).await.unwrap();
        assert_closed(&later).await;
        assert_eq!(later.accept_loss().await.unwrap(), LossAccepted::Reopened);
        assert_eq!(later.accept_loss().await.unwrap(), LossAccepted::NothingWasLost);
        assert_eq!(store.health().await.unwrap(), Health::default());
        granted(&store, "known 7").await;
    }
}

#[tokio::test]
async fn a_transaction_claims_nothing_in_a_table_that_was_emptied() {
    let Some(server) = shared() else { return };
    let (store, _) = emptied(server, "TRUNCATE TABLE").await;
    let pg = store.transactions(Identity::unkeyed(), Policy::default());
    let (key, fingerprint) = (Key::new("known 7").unwrap(), request("known 7").fingerprint);
    let intent = Intent::new(scope(), key, fingerprint);
    let ran = pg.transact(&intent, async |_| -> Result<(), onceward_core::Failure<String>> {
        panic!("it ran")
    });
    let refused = format!("{:?}", ran.await.expect_err("a refusal"));
    assert!(refused.contains("RecordsLost"), "{refused}");
}

#[tokio::test]
async fn records_that_are_left_are_replayed_and_those_that_come_back_are_too() {
    let Some(server) = shared() else { return };
    let settings = small();
    let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    complete(&store, "kept", "done").await;
    let (schema, scratch) = (&settings.schema, format!("{}_copy", settings.schema));
    let table = format!("{schema}.idempotency_record");
    query(server, &format!("CREATE TABLE {scratch} AS SELECT * FROM {table}")).unwrap();
    query(server, &format!("DELETE FROM {table} WHERE operation_name = 'sentinel'")).unwrap();
    assert_eq!(replay(&store, "kept").await, "done");
    assert!(store.claim(&request("new")).await.is_err());
    // A backup contains the sentinel, so the store is open again.
    query(server, &format!("TRUNCATE {table}; INSERT INTO {table} SELECT * FROM {scratch}"))
        .unwrap();
    assert!(matches!(store.claim(&request("kept")).await.unwrap(), Claim::Completed { .. }));
    granted(&store, "new").await;
}

#[tokio::test]
async fn nobody_sees_or_counts_the_sentinel() {
    let Some(server) = shared() else { return };
    let store = PostgresStore::open(server.url(), small()).await.unwrap();
    assert_eq!(store.list(&Query::default()).await.unwrap().records.len(), 0);
    assert_eq!(store.stats().await.unwrap().records, 0);
    assert_eq!(store.purge(10).await.unwrap().removed, 0);
    granted(&store, "key").await;
}
