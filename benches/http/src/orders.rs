//! The handlers that every server runs, and how often they ran.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::header::{HeaderMap, LOCATION};
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use deadpool_postgres::Pool;
use serde::{Deserialize, Serialize};

use crate::Fallible;

/// A client's order, about 200 bytes.
pub(crate) const BODY: &str = concat!(
    r#"{"customer":"cus_8Zk2Qm41","currency":"EUR","lines":["#,
    r#"{"sku":"TEA-GREEN-250","quantity":2,"price_cents":1295},"#,
    r#"{"sku":"CUP-BLUE-03","quantity":1,"price_cents":890}],"#,
    r#""note":"Leave it with the neighbours."}"#,
);

/// The same with another quantity.
pub(crate) const CHANGED: &str = concat!(
    r#"{"customer":"cus_8Zk2Qm41","currency":"EUR","lines":["#,
    r#"{"sku":"TEA-GREEN-250","quantity":9,"price_cents":1295},"#,
    r#"{"sku":"CUP-BLUE-03","quantity":1,"price_cents":890}],"#,
    r#""note":"Leave it with the neighbours."}"#,
);

/// The handlers under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Handler {
    /// Reads JSON and writes JSON, and does nothing else: against it, a layer costs most
    Quick,
    /// The same, and it writes the order into PostgreSQL: the least that is worth guarding
    Writing,
}

impl Handler {
    pub(crate) const ALL: [Self; 2] = [Self::Quick, Self::Writing];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Quick => "/orders",
            Self::Writing => "/written",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Quick => "a handler that does nothing but read and write JSON",
            Self::Writing => "a handler that writes a row into PostgreSQL",
        }
    }
}

/// Where `/written` writes to.
pub(crate) const TABLE: &str =
    "CREATE TABLE orders (number bigint PRIMARY KEY, customer text NOT NULL, note text NOT NULL)";

/// How long `/slow` takes after its effect: long enough for duplicates to come meanwhile.
pub(crate) const SLOW: Duration = Duration::from_millis(5);

pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// Executions of the handlers, and their database.
#[derive(Debug, Default)]
pub(crate) struct Executions {
    /// Connections of `/written`.
    database: Option<Pool>,
    total: AtomicU64,
    /// Only of `/slow` and `/failing`: at full load a shared map would slow down what all
    /// others are compared with.
    by_key: Mutex<HashMap<String, u64>>,
}

/// The routes, the counters outside of whatever guards the others.
pub(crate) fn routes(database: Option<Pool>, guard: impl FnOnce(Router) -> Router) -> Router {
    let executions = Arc::new(Executions { database, ..Executions::default() });
    let orders = Router::new()
        .route(Handler::Quick.path(), post(create))
        .route(Handler::Writing.path(), post(written))
        .route("/slow", post(slow))
        .route("/failing", post(failing))
        .with_state(Arc::clone(&executions));
    let counters = Router::new()
        .route("/executions", get(total))
        .route("/executions/{key}", get(of_key))
        .with_state(executions);
    guard(orders).merge(counters)
}

impl Executions {
    fn count(&self) -> u64 {
        self.total.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn write(&self, wanted: &Wanted, number: u64) -> Fallible<()> {
        let database = self.database.as_ref().ok_or("it was started without a database")?;
        let client = database.get().await?;
        let sql = "INSERT INTO orders VALUES ($1, $2, $3)";
        let statement = client.prepare_cached(sql).await?;
        let number = i64::try_from(number)?;
        client.execute(&statement, &[&number, &wanted.customer, &wanted.note]).await?;
        Ok(())
    }

    /// Counts one of a key; returns how many it were before.
    fn count_of(&self, headers: &HeaderMap) -> u64 {
        let key = headers.get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_key.entry(key.to_owned()).or_default();
        *count += 1;
        *count - 1
    }
}

#[derive(Debug, Deserialize)]
struct Wanted {
    customer: String,
    currency: String,
    lines: Vec<Line>,
    note: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Line {
    sku: String,
    quantity: u64,
    price_cents: u64,
}

#[derive(Debug, Serialize)]
struct Order {
    id: String,
    status: &'static str,
    customer: String,
    currency: String,
    total_cents: u64,
    lines: Vec<Line>,
    note: String,
}

async fn create(
    State(executions): State<Arc<Executions>>,
    Json(wanted): Json<Wanted>,
) -> impl IntoResponse {
    ordered(wanted, executions.count())
}

/// The order is there when it is answered.
async fn written(
    State(executions): State<Arc<Executions>>,
    Json(wanted): Json<Wanted>,
) -> Result<impl IntoResponse, StatusCode> {
    let number = executions.count();
    match executions.write(&wanted, number).await {
        Ok(()) => Ok(ordered(wanted, number)),
        Err(error) => {
            eprintln!("an order was not written: {error}");
            Err(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

fn ordered(wanted: Wanted, number: u64) -> impl IntoResponse {
    let Wanted { customer, currency, lines, note } = wanted;
    let id = format!("ord_{number:016x}");
    let total_cents = lines.iter().map(|line| line.quantity * line.price_cents).sum();
    let location = [(LOCATION, format!("/orders/{id}"))];
    let order = Order { id, status: "accepted", customer, currency, total_cents, lines, note };
    (StatusCode::CREATED, location, Json(order))
}

/// The effect first, and then something that takes its time.
async fn slow(
    State(executions): State<Arc<Executions>>,
    headers: HeaderMap,
    Json(wanted): Json<Wanted>,
) -> impl IntoResponse {
    executions.count_of(&headers);
    tokio::time::sleep(SLOW).await;
    ordered(wanted, executions.count())
}

/// Has its effect and answers 500 the first time.
async fn failing(
    State(executions): State<Arc<Executions>>,
    headers: HeaderMap,
    Json(wanted): Json<Wanted>,
) -> axum::response::Response {
    if executions.count_of(&headers) == 0 {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    ordered(wanted, executions.count()).into_response()
}

async fn total(State(executions): State<Arc<Executions>>) -> String {
    executions.total.load(Ordering::Relaxed).to_string()
}

async fn of_key(State(executions): State<Arc<Executions>>, Path(key): Path<String>) -> String {
    let by_key = executions.by_key.lock().unwrap_or_else(PoisonError::into_inner);
    by_key.get(&key).copied().unwrap_or_default().to_string()
}
