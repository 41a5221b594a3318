//! Orders that are created once, however often a client sends its request. The README walks
//! through it.

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

/// All orders. Stands for the database of a real service.
pub type Orders = Arc<Mutex<Vec<Order>>>;

/// What a client asks for.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrder {
    customer_id: Uuid,
    /// Passed on as it came. A service that calculates takes a decimal type.
    amount: serde_json::Number,
}

/// What it gets.
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

/// The service.
pub fn app(orders: Orders) -> Result<Router, InvalidLayer> {
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let create_once = Operation::post("/api/orders").with(|rules| {
        // Whatever comes under a known key is a retry. See the README for what that costs.
        rules.fingerprint.compare = false;
        // 201 tells the client that its request created the order, 200 that an earlier one did.
        rules.replay.status = ReplayStatus::Ok;
    });
    let once = Onceward::layer(engine)
        .single_tenant() // all callers share one set of keys
        .operation(create_once)
        .build()?;
    let routes = Router::new().route("/api/orders", post(create).get(list));
    Ok(routes.layer(once).with_state(orders))
}

/// Knows nothing about keys: it is called once for each.
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
