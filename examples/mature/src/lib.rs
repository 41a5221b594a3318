//! Orders that are created once, for many tenants, and never answered with somebody else's.
//! The README walks through it.

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
    tenant_id: String,
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
        rules.key.max = 255; // the default, and the most there can be
        // The default is 422, because some SDKs retry every 409 by themselves.
        rules.mismatch_status = StatusCode::CONFLICT;
        rules.replay.status = ReplayStatus::Ok;
    });
    let once = Onceward::layer(engine)
        // A header is right only where something in front of the service has checked it.
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .operation(create_once)
        .build()?;
    Ok(Router::new().route("/api/orders", post(create)).layer(once).with_state(orders))
}

/// The layer has found out whose request it is; the handler need not look again.
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
