//! Orders that are created once, with keys that belong to a tenant and a request. The README
//! explains the example.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use onceward::{Engine, MemoryStore};
use onceward_http::{Execution, InvalidLayer, Onceward, Operation, ReplayStatus, Source};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use uuid::Uuid;

/// All orders. A real service has a database instead.
pub type Orders = Arc<Mutex<Vec<Order>>>;

/// Request body of POST /api/orders.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrder {
    customer_id: Uuid,
    /// Returned unchanged. A service that calculates with amounts should use a decimal type.
    amount: serde_json::Number,
}

/// An order; the response body.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    id: Uuid,
    tenant_id: String,
    customer_id: Uuid,
    amount: serde_json::Number,
    status: &'static str,
    /// Milliseconds since 1970.
    created_at: u64,
}

/// Builds the service.
pub fn app(orders: Orders) -> Result<Router, InvalidLayer> {
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let create_once = Operation::post("/api/orders").with(|rules| {
        rules.key.max = 255; // the default, and the upper limit
        // The default is 422, because some SDKs retry every 409.
        rules.mismatch_status = StatusCode::CONFLICT;
        rules.replay.status = ReplayStatus::Ok;
    });
    let once = Onceward::layer(engine)
        // Use a header only if a proxy in front of the service sets or verifies it.
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .operation(create_once)
        .build()?;
    Ok(Router::new().route("/api/orders", post(create)).layer(once).with_state(orders))
}

/// Creates an order. The layer has already validated the tenant header.
async fn create(
    State(orders): State<Orders>,
    execution: Execution,
    Json(new): Json<NewOrder>,
) -> (StatusCode, Json<Order>) {
    let order = Order {
        id: Uuid::new_v4(),
        tenant_id: execution.scope().tenant().to_owned(),
        customer_id: new.customer_id,
        amount: new.amount,
        status: "pending",
        created_at: UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64,
    };
    orders.lock().await.push(order.clone());
    (StatusCode::CREATED, Json(order))
}
