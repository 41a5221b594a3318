//! The guarantees that one commit adds to the contract.

use example_mature_postgres::app;
use example_walk::App;
use onceward_services::{Server, query};

const TENANT: &str = "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da";

fn order(cents: u32) -> String {
    format!(r#"{{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amountCents":{cents}}}"#)
}

async fn create(app: &App, key: &str, cents: u32) -> (u16, bool) {
    let headers = [("x-tenant-id", TENANT), ("idempotency-key", key)];
    let response = app.post("/api/orders", &headers, &order(cents)).await;
    (response.status, response.replayed())
}

fn count_orders(postgres: &Server) -> String {
    query(postgres, "SELECT count(*) FROM orders").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_twenty_concurrent_requests_creates_the_order() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let app = App::start(app(postgres.url()).await.unwrap()).await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        requests.spawn(async move { create(&app, "order-123", 100).await });
    }
    let responses = requests.join_all().await;
    assert_eq!(responses.iter().filter(|it| **it == (201, false)).count(), 1);
    assert!(responses.iter().all(|it| matches!(it, (201, _) | (409, false))), "{responses:?}");
    assert_eq!(count_orders(&postgres), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_replayed_and_leaves_no_row() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let app = App::start(app(postgres.url()).await.unwrap()).await;
    assert_eq!(create(&app, "order-1", 200_000).await, (422, false));
    assert_eq!(create(&app, "order-1", 200_000).await, (422, true));
    assert_eq!(count_orders(&postgres), "0");
    assert_eq!(create(&app, "order-2", 100_000).await, (201, false));
}

/// The database is killed and restarted: committed orders are still there and are replayed.
#[tokio::test(flavor = "multi_thread")]
async fn committed_orders_survive_a_crash_of_the_database() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let app = App::start(app(postgres.url()).await.unwrap()).await;
    assert_eq!(create(&app, "order-1", 100).await, (201, false));
    postgres.kill().unwrap();
    assert_eq!(create(&app, "order-2", 100).await, (503, false));
    postgres.start().unwrap();
    let replayed = async || create(&app, "order-1", 100).await == (201, true);
    while !replayed().await {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(count_orders(&postgres), "1");
}
