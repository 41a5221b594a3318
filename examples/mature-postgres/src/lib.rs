//! Orders in PostgreSQL, each committed together with the response that its retries get. The README
//! explains the example.

use std::error::Error;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use onceward::Engine;
use onceward::http::{Execution, Fate, Onceward, Operation, PgTransaction, Source};
use onceward::stores::postgres::tokio_postgres::{Client, NoTls, connect};
use onceward::stores::postgres::{PostgresStore, Settings};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Credit limit of a customer.
const CREDIT_CENTS: i64 = 100_000;

const CREATE_TABLES: &str = "CREATE TABLE IF NOT EXISTS orders (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    customer uuid NOT NULL,
    amount_cents bigint NOT NULL
)";

type BoxError = Box<dyn Error + Send + Sync>;

/// Request body of POST /api/orders.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrder {
    customer_id: Uuid,
    amount_cents: i64,
}

/// Response body of POST /api/orders.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    id: Uuid,
    amount_cents: i64,
    owed_cents: i64,
}

/// Response body of GET /api/orders.
#[derive(Debug, Serialize)]
pub struct OrderCount {
    orders: i64,
}

/// Builds the service on a database.
pub async fn app(database_url: &str) -> Result<Router, BoxError> {
    let client = connect_client(database_url).await?;
    // Onceward's tables are in a separate schema of the same database.
    let store = Arc::new(PostgresStore::open(database_url, Settings::default()).await?);
    let once = Onceward::layer(Engine::new(store.clone()))
        .transactions(&store)
        // Use a header only if a proxy in front of the service sets or verifies it.
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .operation(Operation::post("/api/orders"))
        .build()?;
    let orders = post(create).layer(once).get(count);
    Ok(Router::new().route("/api/orders", orders).with_state(client))
}

/// Creates an order. The rows that it writes through `tx` are committed together with its response.
/// If the response is an error, only the response is committed.
async fn create(
    tx: PgTransaction,
    execution: Execution,
    Json(new): Json<NewOrder>,
) -> Result<Response, Unavailable> {
    let (id, tenant) = (Uuid::new_v4(), execution.scope().tenant());
    let NewOrder { customer_id, amount_cents } = new;
    let client = tx.client().await?;
    let insert = "INSERT INTO orders VALUES ($1, $2, $3, $4)";
    client.execute(insert, &[&id, &tenant, &customer_id, &amount_cents]).await?;
    let owed = "SELECT sum(amount_cents)::bigint FROM orders WHERE tenant = $1 AND customer = $2";
    let owed_cents = client.query_one(owed, &[&tenant, &customer_id]).await?.get(0);
    if owed_cents > CREDIT_CENTS {
        // The row is rolled back, and every retry gets this response.
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "no credit").into_response());
    }
    let order = Order { id, amount_cents, owed_cents };
    Ok((StatusCode::CREATED, Json(order)).into_response())
}

async fn count(State(client): State<Arc<Client>>) -> Result<Json<OrderCount>, Unavailable> {
    let row = client.query_one("SELECT count(*) FROM orders", &[]).await?;
    Ok(Json(OrderCount { orders: row.get(0) }))
}

/// The database failed. Nothing is committed, and a retry is executed.
struct Unavailable;

impl<E: Error> From<E> for Unavailable {
    fn from(error: E) -> Self {
        eprintln!("{error}");
        Self
    }
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        (Fate::NothingHappened, StatusCode::SERVICE_UNAVAILABLE).into_response()
    }
}

/// Connection for GET requests, outside of the transactions. Also creates the tables.
async fn connect_client(database_url: &str) -> Result<Arc<Client>, BoxError> {
    let (client, connection) = connect(database_url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(CREATE_TABLES).await?;
    Ok(Arc::new(client))
}
