//! Publishing: with the commit or not at all, in the order of commits, under ids that stay.

use std::time::Duration;

use onceward_core::{Failure, Fingerprint, Identity, Intent, Key, Policy, Scope};
use onceward_events::{Event, EventId, Outbox, OutboxSettings, PublishError, Published};
use onceward_stores::postgres::tokio_postgres::Client;
use tokio::time::timeout;

use super::common::{Fixture, event, fresh_schema, plain, shared};

fn intent(key: &str) -> Intent {
    let scope = Scope::new("tenant", "caller", "orders.create").unwrap();
    Intent::new(scope, Key::new(key).unwrap(), Fingerprint::of_parts(&[b"request"]))
}

fn named(order: &str, event_type: &str, name: &str) -> Event {
    event(order, event_type).with_id(EventId::of_name(name))
}

/// Publishes within a transaction of its own.
async fn publish(outbox: &Outbox, client: &mut Client, event: &Event) -> Published {
    let tx = client.transaction().await.unwrap();
    let published = outbox.publish(&tx, event).await.unwrap();
    tx.commit().await.unwrap();
    published
}

#[tokio::test]
async fn tables_that_are_up_to_date_are_left_alone() {
    let Some(server) = shared() else { return };
    let it = Fixture::new(server).await;
    assert_eq!(it.outbox.migrate(&mut plain(server).await).await.unwrap(), 0, "nothing to do");
}

#[tokio::test]
async fn an_event_is_there_if_its_transaction_commits_and_only_then() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let tx = it.client.transaction().await.unwrap();
    let _ = it.outbox.publish(&tx, &named("1", "OrderCreated", "a")).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(it.types_of("1").await.is_empty());
    let published = publish(&it.outbox, &mut it.client, &named("1", "OrderCreated", "a")).await;
    assert_eq!(published, Published::New(EventId::of_name("a")));
    assert_eq!(it.types_of("1").await, ["OrderCreated"]);
}

#[tokio::test]
async fn ids_are_derived_from_the_operation_and_the_number_of_the_event() {
    let Some(server) = shared() else { return };
    let it = Fixture::new(server).await;
    let transactions = it.store(server).await.transactions(Identity::unkeyed(), Policy::default());
    let work = async |key: &str| {
        transactions
            .transact(&intent(key), async |tx| {
                let mut ids = Vec::new();
                for event_type in ["OrderCreated", "OrderPaid"] {
                    let published = it.outbox.publish(tx, &event("1", event_type)).await;
                    let published = published.map_err(|it| Failure::Release(it.to_string()))?;
                    ids.push(published.id().to_string());
                }
                Ok::<_, Failure<String>>(ids)
            })
            .await
            .unwrap()
    };
    let first = work("k").await;
    let expected = [1, 2].map(|number| EventId::of_operation(&first.operation, number).to_string());
    assert_eq!(first.value, expected);
    assert_eq!(it.types_of("1").await, ["OrderCreated", "OrderPaid"]);
    let retry = work("k").await;
    assert!(retry.replayed && retry.value == expected, "a retry publishes nothing");
    assert_eq!(it.types_of("1").await.len(), 2);
    assert_ne!(work("l").await.value, expected);
}

#[tokio::test]
async fn a_number_is_used_again_only_if_its_savepoint_was_rolled_back() {
    let Some(server) = shared() else { return };
    let it = Fixture::new(server).await;
    let transactions = it.store(server).await.transactions(Identity::unkeyed(), Policy::default());
    let done = transactions
        .transact(&intent("k"), async |tx| {
            let release = |it: PublishError| Failure::Release(it.to_string());
            let inner = tx.savepoint("part").await.unwrap();
            let _ = it.outbox.publish(&inner, &event("1", "Abandoned")).await.map_err(release)?;
            inner.rollback().await.unwrap();
            let all = [event("1", "OrderCreated"), event("2", "OrderCreated")];
            let _ = it.outbox.publish_all(tx, &all).await.map_err(release)?;
            let third = it.outbox.publish(tx, &event("1", "OrderPaid")).await.map_err(release)?;
            Ok::<_, Failure<String>>(third.id().to_string())
        })
        .await
        .unwrap();
    assert_eq!(done.value, EventId::of_operation(&done.operation, 3).to_string());
    assert_eq!(it.types_of("1").await, ["OrderCreated", "OrderPaid"]);
}

#[tokio::test]
async fn without_an_operation_an_event_needs_an_id() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let tx = it.client.transaction().await.unwrap();
    let refused = it.outbox.publish(&tx, &event("1", "OrderCreated")).await.unwrap_err();
    assert!(matches!(refused, PublishError::NoId { .. }), "{refused}");
    assert!(refused.to_string().contains("Event::with_id"), "{refused}");
    tx.commit().await.unwrap();
    assert!(it.types_of("1").await.is_empty());
}

#[tokio::test]
async fn an_event_that_is_published_again_is_one_and_an_id_belongs_to_one_event() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let first = named("1", "OrderCreated", "a");
    let _ = publish(&it.outbox, &mut it.client, &first).await;
    let again = publish(&it.outbox, &mut it.client, &first).await;
    assert_eq!(again, Published::Before(EventId::of_name("a")));
    assert_eq!(it.types_of("1").await.len(), 1);
    let with_header = first.clone().header("trace", "1").unwrap();
    for other in [named("2", "OrderCreated", "a"), named("1", "OrderPaid", "a"), with_header] {
        let tx = it.client.transaction().await.unwrap();
        let refused = it.outbox.publish(&tx, &other).await.unwrap_err();
        assert!(matches!(refused, PublishError::IdTaken { .. }), "{refused}");
    }
}

/// Positions are drawn under the aggregate's lock. Otherwise the first of two transactions could
/// commit last, and its event would come before one that consumers have seen already.
#[tokio::test]
async fn positions_of_an_aggregate_follow_its_commits_and_others_do_not_wait() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let (mut second, mut third) = (plain(server).await, plain(server).await);
    let open = it.client.transaction().await.unwrap();
    let _ = it.outbox.publish(&open, &named("1", "First", "a")).await.unwrap();
    // Another aggregate is not held up.
    let _ = publish(&it.outbox, &mut third, &named("2", "Other", "b")).await;
    let outbox = it.outbox.clone();
    let waiting = async move { publish(&outbox, &mut second, &named("1", "Second", "c")).await };
    let mut waiting = tokio::spawn(waiting);
    assert!(timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "did not wait");
    open.commit().await.unwrap();
    let _ = waiting.await.unwrap();
    assert_eq!(it.types_of("1").await, ["First", "Second"]);
}

#[tokio::test]
async fn payloads_come_back_as_they_were_published() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let bytes = Event::bytes("order", "1", "Raw", "application/protobuf", vec![0, 255, 1]).unwrap();
    let bytes = bytes.with_id(EventId::of_name("a")).header("tenant", "acme").unwrap();
    let _ = publish(&it.outbox, &mut it.client, &bytes).await;
    let sql = format!(
        "SELECT payload_bytes, content_type, headers::text, lane FROM {}.outbox_event",
        it.schema
    );
    let row = it.client.query_one(&sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<u8>>(0), [0, 255, 1]);
    assert_eq!(row.get::<_, String>(1), "application/protobuf");
    assert_eq!(row.get::<_, String>(2), r#"{"tenant": "acme"}"#);
    assert_eq!(row.get::<_, i16>(3), bytes.aggregate().lane().number().cast_signed());
}

#[tokio::test]
async fn errors_name_the_cause_and_the_fix() {
    let Some(server) = shared() else { return };
    let mut client = plain(server).await;
    let schema = fresh_schema();
    let missing = OutboxSettings { schema: schema.clone(), event_bytes_max: 10 };
    let outbox = Outbox::new(missing);
    let tx = client.transaction().await.unwrap();
    let small = Event::json("order", "1", "OrderCreated", "x").unwrap();
    let refused = outbox.publish(&tx, &small.with_id(EventId::of_name("a"))).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("no outbox in the schema `{schema}`")));
    let refused = outbox.publish(&tx, &event("1", "OrderCreated")).await.unwrap_err();
    assert!(refused.to_string().contains("event_bytes_max"), "{refused}");
    let plan = outbox.migration_plan();
    assert!(plan.contains(&format!("\"{schema}\".outbox_event")) && plan.ends_with("COMMIT;\n"));
}
