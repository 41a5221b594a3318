//! The scenarios of the contract that need only a key.

use example_easy::{Orders, app};
use example_walk::{App, Response};

const ORDER: &str = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;

async fn start() -> (App, Orders) {
    let orders = Orders::default();
    (App::start(app(orders.clone()).unwrap()).await, orders)
}

async fn create(app: &App, key: &str) -> Response {
    app.post("/api/orders", &[("idempotency-key", key)], ORDER).await
}

#[tokio::test]
async fn a_retry_gets_the_first_order_back() {
    let (app, orders) = start().await;
    let first = create(&app, "order-123").await;
    assert_eq!((first.status, first.replayed()), (201, false));
    let retry = create(&app, "order-123").await;
    assert_eq!((retry.status, retry.replayed()), (200, true));
    assert_eq!(retry.body, first.body);
    assert!(first.json()["id"].is_string() && first.json()["createdAt"].is_u64());
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn another_key_is_another_order() {
    let (app, orders) = start().await;
    let (one, two) = (create(&app, "order-1").await, create(&app, "order-2").await);
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn the_payload_is_not_compared() {
    let (app, orders) = start().await;
    let first = create(&app, "order-123").await;
    let other = ORDER.replace("99.99", "999.99");
    let retry = app.post("/api/orders", &[("idempotency-key", "order-123")], &other).await;
    assert_eq!((retry.status, retry.body), (200, first.body));
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn a_key_that_is_missing_empty_or_too_long_is_refused() {
    let (app, orders) = start().await;
    assert_eq!(app.post("/api/orders", &[], ORDER).await.status, 400);
    assert_eq!(create(&app, "").await.status, 400);
    assert_eq!(create(&app, &"k".repeat(256)).await.status, 400);
    assert_eq!(orders.lock().await.len(), 0);
    assert_eq!(create(&app, &"k".repeat(255)).await.status, 201);
}

#[tokio::test]
async fn get_requests_pass_through() {
    let (app, _) = start().await;
    let key = [("idempotency-key", "order-123")];
    assert_eq!(app.get("/api/orders", &key).await.json().as_array().map(Vec::len), Some(0));
    create(&app, "order-123").await;
    let listed = app.get("/api/orders", &key).await;
    assert_eq!(listed.json().as_array().map(Vec::len), Some(1));
    assert!(!listed.replayed());
}

/// The first request waits for the database until all others have their response.
#[tokio::test]
async fn one_of_twenty_concurrent_requests_creates_the_order() {
    let (app, orders) = start().await;
    let database = orders.lock().await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        requests.spawn(async move { create(&app, "order-123").await });
    }
    for _ in 0..19 {
        let other = requests.join_next().await.unwrap().unwrap();
        assert_eq!((other.status, other.header("retry-after")), (409, Some("1")));
    }
    drop(database);
    let winner = requests.join_next().await.unwrap().unwrap();
    assert_eq!(winner.status, 201);
    assert_eq!(create(&app, "order-123").await.body, winner.body);
    assert_eq!(orders.lock().await.len(), 1);
}
