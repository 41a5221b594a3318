//! An instance of the service, and requests to it.

use example_production::{Orders, Settings, app, engine};
use example_walk::{App, Response};

pub(crate) const ORDER: &str =
    r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
pub(crate) const TENANT: &str = "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da";
pub(crate) const OTHER_TENANT: &str = "7f0c1c5e-52a7-4b0b-9d0a-6f1f4f3f8a11";

/// Starts an instance, which opens the store of its settings. Several instances share their orders,
/// as they would share a database.
pub(crate) async fn instance(settings: &Settings, orders: Orders) -> App {
    let engine = engine(settings.store.open().await.unwrap(), settings).unwrap();
    App::start(app(engine, orders, settings).unwrap()).await
}

pub(crate) async fn create(app: &App, tenant: &str, key: &str, order: &str) -> Response {
    app.post("/api/orders", &[("x-tenant-id", tenant), ("idempotency-key", key)], order).await
}
