//! The business code: orders of tenants. It does not know about idempotency keys.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Mutex;
use uuid::Uuid;

/// All orders. A real service has a database instead.
pub type Orders = Arc<Mutex<Vec<Order>>>;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewOrder {
    customer_id: Uuid,
    /// Returned unchanged. A service that calculates with amounts should use a decimal type.
    amount: serde_json::Number,
}

/// An order; the response body.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    id: Uuid,
    tenant_id: Uuid,
    customer_id: Uuid,
    amount: serde_json::Number,
    status: &'static str,
    /// Milliseconds since 1970.
    created_at: u64,
}

/// Tenant of the request. Checked here too, because the layer skips requests without a key.
pub(crate) struct Tenant(Uuid);

impl<S: Sync> FromRequestParts<S> for Tenant {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let tenant = parts.headers.get("x-tenant-id").and_then(|value| value.to_str().ok());
        let tenant = tenant.and_then(|tenant| tenant.parse().ok()).map(Tenant);
        tenant.ok_or(Refusal(StatusCode::BAD_REQUEST, "INVALID_TENANT"))
    }
}

/// Error response with a code, which the record of the request has too.
pub(crate) struct Refusal(StatusCode, &'static str);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "code": self.1 }))).into_response()
    }
}

pub(crate) async fn create(
    State(orders): State<Orders>,
    Tenant(tenant_id): Tenant,
    Json(new): Json<NewOrder>,
) -> (StatusCode, Json<Order>) {
    let NewOrder { customer_id, amount } = new;
    let created_at = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
    let (id, status) = (Uuid::new_v4(), "pending");
    let order = Order { id, tenant_id, customer_id, amount, status, created_at };
    orders.lock().await.push(order.clone());
    (StatusCode::CREATED, Json(order))
}

pub(crate) async fn list(State(orders): State<Orders>, Tenant(tenant): Tenant) -> Json<Vec<Order>> {
    let orders = orders.lock().await;
    Json(orders.iter().filter(|order| order.tenant_id == tenant).cloned().collect())
}

/// Cancels an order. A second cancellation is an error, but a retry with the same key is replayed.
pub(crate) async fn cancel(
    State(orders): State<Orders>,
    Tenant(tenant): Tenant,
    Path(id): Path<Uuid>,
) -> Result<Json<Order>, Refusal> {
    let mut orders = orders.lock().await;
    let order = orders.iter_mut().find(|order| order.id == id && order.tenant_id == tenant);
    let order = order.ok_or(Refusal(StatusCode::NOT_FOUND, "ORDER_NOT_FOUND"))?;
    if order.status == "cancelled" {
        return Err(Refusal(StatusCode::CONFLICT, "ORDER_ALREADY_CANCELLED"));
    }
    order.status = "cancelled";
    Ok(Json(order.clone()))
}
