//! Orders as rows of PostgreSQL, each committed together with the reply that its retries get.
//! The README walks through it.

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

/// Most that a customer may owe.
const CREDIT_CENTS: i64 = 100_000;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS orders (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    customer uuid NOT NULL,
    amount_cents bigint NOT NULL
)";

type BoxError = Box<dyn Error + Send + Sync>;

/// What a client asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrder {
    customer_id: Uuid,
    amount_cents: i64,
}

/// What it gets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    id: Uuid,
    amount_cents: i64,
    owed_cents: i64,
}

/// What everybody may see.
#[derive(Debug, Serialize)]
pub struct Count {
    orders: i64,
}

/// The service, on the database at a URL.
pub async fn app(database: &str) -> Result<Router, BoxError> {
    let reads = reader(database).await?;
    // Onceward's own table is in a schema of its own, beside the orders.
    let store = Arc::new(PostgresStore::open(database, Settings::default()).await?);
    let once = Onceward::layer(Engine::new(store.clone()))
        .transactions(&store)
        // A header is right only where something in front of the service has checked it.
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .operation(Operation::post("/api/orders"))
        .build()?;
    let orders = post(create).layer(once).get(count);
    Ok(Router::new().route("/api/orders", orders).with_state(reads))
}

/// Whatever it writes by `tx` is committed with its answer; if that is an error, only the
/// answer is.
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
        // Every retry is told the same, and the row is gone.
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "no credit").into_response());
    }
    let order = Order { id, amount_cents, owed_cents };
    Ok((StatusCode::CREATED, Json(order)).into_response())
}

async fn count(State(reads): State<Arc<Client>>) -> Result<Json<Count>, Unavailable> {
    let row = reads.query_one("SELECT count(*) FROM orders", &[]).await?;
    Ok(Json(Count { orders: row.get(0) }))
}

/// The database failed: nothing is committed, and a retry may run again.
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

/// A connection for what needs no guard.
async fn reader(database: &str) -> Result<Arc<Client>, BoxError> {
    let (client, connection) = connect(database, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(TABLES).await?;
    Ok(Arc::new(client))
}
