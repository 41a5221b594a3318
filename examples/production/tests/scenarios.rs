//! The twelve scenarios of the contract, with one layer in front of all routes.

use std::sync::Arc;

use example_production::{Orders, Settings, app, engine};
use example_walk::{App, Response};
use onceward::MemoryStore;
use serde_json::Value;

const ORDER: &str = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
const TENANT: &str = "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da";
const OTHER_TENANT: &str = "7f0c1c5e-52a7-4b0b-9d0a-6f1f4f3f8a11";

async fn start_with(settings: &Settings) -> (App, Orders) {
    let orders = Orders::default();
    let engine = engine(Arc::new(MemoryStore::new()), settings).unwrap();
    (App::start(app(engine, orders.clone(), settings).unwrap()).await, orders)
}

async fn start() -> (App, Orders) {
    start_with(&Settings::default()).await
}

async fn create(app: &App, tenant: &str, key: &str, order: &str) -> Response {
    app.post("/api/orders", &[("x-tenant-id", tenant), ("idempotency-key", key)], order).await
}

#[tokio::test]
async fn s01_the_first_call_creates() {
    let (app, orders) = start().await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((first.status, first.replayed()), (201, false));
    assert_eq!(first.json()["tenantId"], TENANT);
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn s02_a_retry_is_answered_by_the_layer() {
    let (app, orders) = start().await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    for _ in 0..3 {
        let retry = create(&app, TENANT, "order-123", ORDER).await;
        assert_eq!((retry.status, retry.replayed()), (200, true));
        assert_eq!(retry.body, first.body);
    }
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn s03_another_payload_is_a_conflict() {
    let (app, orders) = start().await;
    create(&app, TENANT, "order-123", ORDER).await;
    let changed = create(&app, TENANT, "order-123", &ORDER.replace("99.99", "999.99")).await;
    assert_eq!(changed.status, 409);
    assert_eq!(changed.json()["code"], "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn s04_another_key_is_another_order() {
    let (app, orders) = start().await;
    let one = create(&app, TENANT, "order-1", ORDER).await;
    let two = create(&app, TENANT, "order-2", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn s05_without_a_key_every_request_passes_through() {
    let (app, orders) = start().await;
    for _ in 0..2 {
        let passed = app.post("/api/orders", &[("x-tenant-id", TENANT)], ORDER).await;
        assert_eq!((passed.status, passed.replayed()), (201, false));
    }
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn s06_a_missing_tenant_is_refused() {
    let (app, orders) = start().await;
    let refused = app.post("/api/orders", &[("idempotency-key", "order-123")], ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_TENANT".into()));
    assert_eq!(app.post("/api/orders", &[], ORDER).await.status, 400);
    assert_eq!(orders.lock().await.len(), 0);
}

#[tokio::test]
async fn s07_a_malformed_tenant_is_refused() {
    let (app, orders) = start().await;
    let refused = create(&app, "acme", "order-123", ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_TENANT".into()));
    assert_eq!(orders.lock().await.len(), 0);
}

#[tokio::test]
async fn s08_an_empty_key_is_refused() {
    let (app, orders) = start().await;
    let refused = create(&app, TENANT, "", ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_IDEMPOTENCY_KEY".into()));
    assert_eq!(orders.lock().await.len(), 0);
}

#[tokio::test]
async fn s09_an_oversized_key_is_refused() {
    let (app, orders) = start().await;
    let refused = create(&app, TENANT, &"k".repeat(256), ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_IDEMPOTENCY_KEY".into()));
    assert_eq!(orders.lock().await.len(), 0);
    assert_eq!(create(&app, TENANT, &"k".repeat(255), ORDER).await.status, 201);
}

#[tokio::test]
async fn s10_tenants_are_isolated() {
    let (app, orders) = start().await;
    let one = create(&app, TENANT, "order-123", ORDER).await;
    let two = create(&app, OTHER_TENANT, "order-123", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

/// One of the keys is empty, which would be refused if it were checked.
#[tokio::test]
async fn s11_reading_passes_through() {
    let (app, _) = start().await;
    create(&app, TENANT, "order-123", ORDER).await;
    for key in ["", "order-123"] {
        let headers = [("x-tenant-id", TENANT), ("idempotency-key", key)];
        let listed = app.get("/api/orders", &headers).await;
        assert_eq!((listed.status, listed.replayed()), (200, false));
        assert_eq!(listed.json().as_array().map(Vec::len), Some(1));
    }
}

/// The first request waits for the database until all others have their response.
#[tokio::test]
async fn s12_of_twenty_at_once_one_creates_and_all_others_conflict() {
    let (app, orders) = start().await;
    let database = orders.lock().await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        requests.spawn(async move { create(&app, TENANT, "order-123", ORDER).await });
    }
    for _ in 0..19 {
        let other = requests.join_next().await.unwrap().unwrap();
        assert_eq!((other.status, other.header("retry-after")), (409, Some("1")));
        assert_eq!(other.json()["code"], "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    }
    drop(database);
    let winner = requests.join_next().await.unwrap().unwrap();
    assert_eq!(winner.status, 201);
    assert_eq!(create(&app, TENANT, "order-123", ORDER).await.body, winner.body);
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn a_route_without_its_own_operation_is_protected_too() {
    let (app, _) = start().await;
    let order = create(&app, TENANT, "order-123", ORDER).await.json();
    let Value::String(id) = &order["id"] else { panic!("{order}") };
    let cancel = async |key: Option<&str>| {
        let mut headers = vec![("x-tenant-id", TENANT)];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        app.post(&format!("/api/orders/{id}/cancel"), &headers, "").await
    };
    let first = cancel(Some("cancel-1")).await;
    assert_eq!((first.status, &first.json()["status"]), (200, &"cancelled".into()));
    assert_eq!(cancel(None).await.status, 409, "cancelling again is an error");
    let retry = cancel(Some("cancel-1")).await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (200, true, first.body));
}

#[tokio::test]
async fn a_response_too_large_to_store_is_sent_once_and_its_order_created_once() {
    let (app, orders) =
        start_with(&Settings { response_max_bytes: 10, ..Settings::default() }).await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((first.status, &first.json()["status"]), (201, &"pending".into()));
    let retry = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!(retry.status, 409);
    assert_eq!(retry.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
    assert_eq!(orders.lock().await.len(), 1);
}
