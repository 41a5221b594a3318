//! The twelve scenarios of the contract, with one layer in front of all routes.

use example_production::{Orders, Settings};
use example_walk::App;
use serde_json::Value;

use crate::instance::{ORDER, OTHER_TENANT, TENANT, create, instance};
use crate::test_store::TestStore;

async fn start(store: &TestStore) -> (App, Orders) {
    let orders = Orders::default();
    (instance(&store.settings(), orders.clone()).await, orders)
}

pub(crate) async fn s01_the_first_call_creates(store: &TestStore) {
    let (app, orders) = start(store).await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((first.status, first.replayed()), (201, false));
    assert_eq!(first.json()["tenantId"], TENANT);
    assert_eq!(orders.lock().await.len(), 1);
}

pub(crate) async fn s02_a_retry_is_answered_by_the_layer(store: &TestStore) {
    let (app, orders) = start(store).await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    for _ in 0..3 {
        let retry = create(&app, TENANT, "order-123", ORDER).await;
        assert_eq!((retry.status, retry.replayed()), (200, true));
        assert_eq!(retry.body, first.body);
    }
    assert_eq!(orders.lock().await.len(), 1);
}

pub(crate) async fn s03_another_payload_is_a_conflict(store: &TestStore) {
    let (app, orders) = start(store).await;
    create(&app, TENANT, "order-123", ORDER).await;
    let changed = create(&app, TENANT, "order-123", &ORDER.replace("99.99", "999.99")).await;
    assert_eq!(changed.status, 409);
    assert_eq!(changed.json()["code"], "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert_eq!(orders.lock().await.len(), 1);
}

pub(crate) async fn s04_another_key_is_another_order(store: &TestStore) {
    let (app, orders) = start(store).await;
    let one = create(&app, TENANT, "order-1", ORDER).await;
    let two = create(&app, TENANT, "order-2", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

pub(crate) async fn s05_without_a_key_every_request_passes_through(store: &TestStore) {
    let (app, orders) = start(store).await;
    for _ in 0..2 {
        let passed = app.post("/api/orders", &[("x-tenant-id", TENANT)], ORDER).await;
        assert_eq!((passed.status, passed.replayed()), (201, false));
    }
    assert_eq!(orders.lock().await.len(), 2);
}

pub(crate) async fn s06_a_missing_tenant_is_refused(store: &TestStore) {
    let (app, orders) = start(store).await;
    let refused = app.post("/api/orders", &[("idempotency-key", "order-123")], ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_TENANT".into()));
    assert_eq!(app.post("/api/orders", &[], ORDER).await.status, 400);
    assert_eq!(orders.lock().await.len(), 0);
}

pub(crate) async fn s07_a_malformed_tenant_is_refused(store: &TestStore) {
    let (app, orders) = start(store).await;
    let refused = create(&app, "acme", "order-123", ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_TENANT".into()));
    assert_eq!(orders.lock().await.len(), 0);
}

pub(crate) async fn s08_an_empty_key_is_refused(store: &TestStore) {
    let (app, orders) = start(store).await;
    let refused = create(&app, TENANT, "", ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_IDEMPOTENCY_KEY".into()));
    assert_eq!(orders.lock().await.len(), 0);
}

pub(crate) async fn s09_an_oversized_key_is_refused(store: &TestStore) {
    let (app, orders) = start(store).await;
    let refused = create(&app, TENANT, &"k".repeat(256), ORDER).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"INVALID_IDEMPOTENCY_KEY".into()));
    assert_eq!(orders.lock().await.len(), 0);
    assert_eq!(create(&app, TENANT, &"k".repeat(255), ORDER).await.status, 201);
}

pub(crate) async fn s10_tenants_are_isolated(store: &TestStore) {
    let (app, orders) = start(store).await;
    let one = create(&app, TENANT, "order-123", ORDER).await;
    let two = create(&app, OTHER_TENANT, "order-123", ORDER).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

/// One of the keys is empty, which would be refused if it were checked.
pub(crate) async fn s11_reading_passes_through(store: &TestStore) {
    let (app, _) = start(store).await;
    create(&app, TENANT, "order-123", ORDER).await;
    for key in ["", "order-123"] {
        let headers = [("x-tenant-id", TENANT), ("idempotency-key", key)];
        let listed = app.get("/api/orders", &headers).await;
        assert_eq!((listed.status, listed.replayed()), (200, false));
        assert_eq!(listed.json().as_array().map(Vec::len), Some(1));
    }
}

/// The first request waits for the database until all others have their response.
pub(crate) async fn s12_of_twenty_at_once_one_creates_and_all_others_conflict(store: &TestStore) {
    let (app, orders) = start(store).await;
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

pub(crate) async fn a_route_without_its_own_operation_is_protected_too(store: &TestStore) {
    let (app, _) = start(store).await;
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

pub(crate) async fn a_response_too_large_to_store_is_sent_once_and_its_order_created_once(
    store: &TestStore,
) {
    let settings = Settings { response_max_bytes: 10, ..store.settings() };
    let orders = Orders::default();
    let app = instance(&settings, orders.clone()).await;
    let first = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((first.status, &first.json()["status"]), (201, &"pending".into()));
    let retry = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!(retry.status, 409);
    assert_eq!(retry.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
    assert_eq!(orders.lock().await.len(), 1);
}
