//! Orders that are created once, even if a client sends its request several times. The README
//! explains the example.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use onceward::{Engine, MemoryStore};
use onceward_http::{InvalidLayer, Onceward, Operation, ReplayStatus};
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
        // Every request with a known key is a retry. The README shows the disadvantage.
        rules.fingerprint.compare = false;
        // 201 means that this request created the order, 200 that an earlier one did.
        rules.replay.status = ReplayStatus::Ok;
    });
    let once = Onceward::layer(engine)
        .single_tenant() // all callers share one key space
        .operation(create_once)
        .build()?;
    let routes = Router::new().route("/api/orders", post(create).get(list));
    Ok(routes.layer(once).with_state(orders))
}

/// Creates an order. The layer calls the handler once per key.
async fn create(
    State(orders): State<Orders>,
    Json(new): Json<NewOrder>,
) -> (StatusCode, Json<Order>) {
    let NewOrder { customer_id, amount } = new;
    let created_at = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
    let order = Order { id: Uuid::new_v4(), customer_id, amount, status: "pending", created_at };
    orders.lock().await.push(order.clone());
    (StatusCode::CREATED, Json(order))
}

async fn list(State(orders): State<Orders>) -> Json<Vec<Order>> {
    Json(orders.lock().await.clone())
}
