//! The scenarios of the contract, for one protected operation.

use example_mature::{Orders, app};
use example_walk::{App, Response};

const ORDER: &str = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
const TENANT: &str = "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da";
const OTHER_TENANT: &str = "7f0c1c5e-52a7-4b0b-9d0a-6f1f4f3f8a11";

async fn start() -> (App, Orders) {
    let orders = Orders::default();
    (App::start(app(orders.clone()).unwrap()).await, orders)
}

async fn create(app: &App, tenant: &str, key: &str, order: &str) -> Response {
    app.post("/api/orders", &[("x-tenant-id", tenant), ("idempotency-key", key)], order).await
}

#[tokio::test]
async fn a_retry_gets_the_first_order_back() {
    let (app, orders) = start().await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((first.status, first.replayed()), (201, false));
    let retry = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((retry.status, retry.replayed()), (200, true));
    assert_eq!(retry.body, first.body);
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn another_payload_is_a_conflict_and_the_original_still_replays() {
    let (app, orders) = start().await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    let changed = create(&app, TENANT, "order-123", &ORDER.replace("99.99", "999.99")).await;
    assert_eq!((changed.status, changed.replayed()), (409, false));
    assert_eq!(changed.json()["code"], "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert!(!changed.body.contains("999.99") && !changed.body.contains("order-123"));
    let retry = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((retry.status, retry.body), (200, first.body));
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn another_key_is_another_order() {
    let (app, orders) = start().await;
    let one = create(&app, TENANT, "order-1", ORDER).await;
    let two = create(&app, TENANT, "order-2", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let (app, orders) = start().await;
    let one = create(&app, TENANT, "order-123", ORDER).await;
    let two = create(&app, OTHER_TENANT, "order-123", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_eq!(one.json()["tenantId"], TENANT);
    assert_eq!(two.json()["tenantId"], OTHER_TENANT);
    assert_eq!(create(&app, OTHER_TENANT, "order-123", ORDER).await.body, two.body);
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn a_missing_or_malformed_tenant_is_refused() {
    let (app, orders) = start().await;
    let missing = app.post("/api/orders", &[("idempotency-key", "order-123")], ORDER).await;
    let malformed = create(&app, "acme", "order-123", ORDER).await;
    for refused in [missing, malformed] {
        assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_TENANT".into()));
    }
    assert_eq!(orders.lock().await.len(), 0);
}

#[tokio::test]
async fn a_key_that_is_missing_empty_or_too_long_is_refused() {
    let (app, orders) = start().await;
    let missing = app.post("/api/orders", &[("x-tenant-id", TENANT)], ORDER).await;
    assert_eq!(missing.status, 400);
    assert_eq!(missing.json()["code"], "MISSING_IDEMPOTENCY_KEY");
    for key in [String::new(), "k".repeat(256)] {
        let refused = create(&app, TENANT, &key, ORDER).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.json()["code"], "INVALID_IDEMPOTENCY_KEY");
    }
    assert_eq!(orders.lock().await.len(), 0);
    assert_eq!(create(&app, TENANT, &"k".repeat(255), ORDER).await.status, 201);
}

/// The first request waits for the database until all others have their response.
#[tokio::test]
async fn one_of_twenty_concurrent_requests_creates_the_order() {
    let (app, orders) = start().await;
    let database = orders.lock().await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        requests.spawn(async move { create(&app, TENANT, "order-123", ORDER).await });
    }
    for _ in 0..19 {
        let other = requests.join_next().await.unwrap().unwrap();
        assert_eq!(other.status, 409);
        assert_eq!(other.json()["code"], "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    }
    drop(database);
    let winner = requests.join_next().await.unwrap().unwrap();
    assert_eq!(winner.status, 201);
    assert_eq!(create(&app, TENANT, "order-123", ORDER).await.body, winner.body);
    assert_eq!(orders.lock().await.len(), 1);
}
