//! Cases with a life cycle from draft to paid. Keys make retries safe, expected versions make
//! transitions safe, and neither replaces the other. The README explains the example.
//!
//! | file | contents |
//! |---|---|
//! | `lib` | the service: its stores, its routes, and one case at a time |
//! | `bulk`, `bulk_item` | many cases under one key, and the results of the items |
//! | `case` | the life cycle, the same in every store |
//! | `case_store` | what stores the cases: `case_log` (memory, file), `case_tables` (PostgreSQL) |
//! | `settings`, `checkpoint` | environment variables; where tests stop the service |

mod bulk;
mod bulk_item;
mod case;
mod case_log;
mod case_store;
mod case_tables;
mod checkpoint;
mod settings;

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use onceward::http::{Fate, Onceward, OncewardLayer, Operation, PgTransaction, Source};
use onceward::stores::postgres::PostgresStore;
use onceward::stores::{SharedStore, connect, embedded_at, postgres_at};
use onceward::{BoxError, Engine, OnLapse, Policy};
use serde::Deserialize;
use serde_json::json;

pub use checkpoint::Checkpoint;
pub use settings::{InvalidSetting, Settings};

use case::Step;
use case_log::CaseLog;
use case_store::CaseStore;
use case_tables::CaseTables;
use checkpoint::CheckpointHook;

/// The service, with its settings.
#[derive(Debug)]
pub struct CaseService {
    settings: Settings,
    on_checkpoint: CheckpointHook,
}

/// State of the handlers.
#[derive(Clone)]
struct Service {
    engine: Engine,
    cases: Arc<dyn CaseStore>,
    /// Tells the callers of a bulk apart.
    once: OncewardLayer,
    bulk_items_max: usize,
    bulk_concurrency: usize,
    on_checkpoint: CheckpointHook,
}

/// The stores of the service: records and cases, kept in the same place.
struct Stores {
    engine: Engine,
    cases: Arc<dyn CaseStore>,
    /// The records, if they are in PostgreSQL: requests can run in its transactions.
    postgres: Option<Arc<PostgresStore>>,
}

impl CaseService {
    /// A service with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, on_checkpoint: CheckpointHook::none() }
    }

    /// Awaits a function at each checkpoint of each bulk, with the item's id, for tests.
    #[must_use]
    pub fn on_checkpoint<R>(
        mut self,
        hook: impl Fn(Checkpoint, &str) -> R + Send + Sync + 'static,
    ) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_checkpoint = CheckpointHook::new(hook);
        self
    }

    /// Opens the stores and builds the routes.
    pub async fn into_router(self) -> Result<Router, BoxError> {
        let Self { settings, on_checkpoint } = self;
        let stores = Stores::open(&settings, &on_checkpoint).await?;
        let Stores { engine, cases, postgres } = stores;
        // The defaults keep a 409 of the handler as they keep a success: a refusal for reasons of
        // the business is an outcome, and a retry of the same intent gets the same one.
        let mut single = Onceward::layer(engine.clone()).caller(Source::credentials());
        if let Some(postgres) = &postgres {
            single = single.transactions(postgres);
        }
        let single = single
            .operation(Operation::post("/cases").named("cases.create"))
            .operation(Operation::post("/cases/{id}/{step}").named("cases.step"))
            .build()?;
        // A bulk may be taken over after a crash, because each of its items is guarded.
        let bulk = Operation::post("/cases:bulkApprove").named(bulk::OPERATION);
        let bulk = bulk.with(|rules| rules.on_lapse = Some(OnLapse::Takeover));
        let once = Onceward::layer(engine.clone())
            .caller(Source::credentials())
            .operation(bulk)
            .only_named()
            .build()?;
        let service = Service {
            engine,
            cases,
            once: once.clone(),
            bulk_items_max: settings.bulk_items_max,
            bulk_concurrency: settings.bulk_concurrency,
            on_checkpoint,
        };
        Ok(Router::new()
            .route("/cases", post(create))
            .route("/cases/{id}/{step}", post(take))
            .layer(single)
            .route("/cases/{id}", get(show))
            .route("/cases:bulkApprove", post(bulk::approve))
            .route("/cases/bulk/{operation}", get(bulk::show))
            .layer(once)
            .with_state(service))
    }
}

impl Stores {
    async fn open(settings: &Settings, hook: &CheckpointHook) -> Result<Self, BoxError> {
        let (url, hook) = (settings.store.as_str(), hook.clone());
        let policy = Policy::builder().lease(settings.lease).build();
        let policy = policy.map_err(|error| format!("LEASE: {error}"))?;
        let engine = |store: SharedStore| Engine::builder(store).policy(policy.clone()).build();
        let wrong = |error| format!("STORE: {error}");
        check_scheme(url)?;
        if let Some((url, postgres)) = postgres_at(url).map_err(wrong)? {
            if settings.bulk_concurrency > postgres.transactions_max {
                let value = settings.bulk_concurrency.to_string();
                let expected = "at most `transactions_max` of STORE (8 if not set)";
                return Err(InvalidSetting { name: "BULK_CONCURRENCY", value, expected }.into());
            }
            let store = Arc::new(PostgresStore::open(&url, postgres.clone()).await?);
            let engine = engine(store.clone());
            let transactions = store.transactions(engine.identity().clone(), policy);
            let cases = CaseTables::open((&url, postgres), transactions, hook).await?;
            return Ok(Self { engine, cases: Arc::new(cases), postgres: Some(store) });
        }
        let directory = embedded_at(url).map_err(wrong)?.map(|(directory, _)| directory);
        // First the records: their lock keeps other processes from the log.
        let engine = engine(connect(url).await.map_err(wrong)?);
        let cases = match directory {
            Some(directory) => CaseLog::open(&log_beside(&directory), hook)?,
            None => CaseLog::in_memory(hook),
        };
        Ok(Self { engine, cases: Arc::new(cases), postgres: None })
    }
}

/// Refuses stores that cannot have the cases beside the records. The rest of the URL may have a
/// password.
fn check_scheme(url: &str) -> Result<(), InvalidSetting> {
    let value = match url.split_once(':') {
        Some(("memory" | "file" | "postgres" | "postgresql", _)) => return Ok(()),
        Some((scheme, _)) => format!("a `{scheme}:` URL"),
        None => "a text without a scheme".into(),
    };
    let expected = "`memory:`, a `file:` or a `postgres:` URL, where the cases are stored too";
    Err(InvalidSetting { name: "STORE", value, expected })
}

/// The log of cases: a file beside the directory of the records, which has no other files.
fn log_beside(directory: &FilePath) -> std::path::PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".cases");
    name.into()
}

#[derive(Debug, Deserialize)]
struct NewCase {
    title: String,
}

/// In the body and not in `If-Match`: so it is part of the fingerprint, and a key that comes again
/// with another version is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    expected_version: i64,
}

/// The transaction of a request, if the cases are in PostgreSQL. The layer commits it together with
/// the response.
type RequestTransaction = Option<Extension<PgTransaction>>;

async fn create(
    State(service): State<Service>,
    tx: RequestTransaction,
    Json(new): Json<NewCase>,
) -> Response {
    if new.title.contains('\0') {
        let message = "`title` must not contain the character U+0000";
        return (StatusCode::BAD_REQUEST, Json(json!({ "message": message }))).into_response();
    }
    match service.cases.create(tx.as_deref(), new.title).await {
        Ok(case) => {
            let location = [("location", format!("/cases/{}", case.id))];
            (StatusCode::CREATED, location, Json(case)).into_response()
        }
        Err(error) => unavailable(&*error).into_response(),
    }
}

async fn show(State(service): State<Service>, Path(id): Path<i64>) -> Response {
    match service.cases.find(id).await {
        Ok(Some(case)) => Json(case).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unavailable(&*error).into_response(),
    }
}

/// Takes a step. The store compares the version and changes the case in one step, like
/// `UPDATE … WHERE id = ? AND version = ?`.
async fn take(
    State(service): State<Service>,
    tx: RequestTransaction,
    Path((id, step)): Path<(i64, Step)>,
    Json(Expected { expected_version }): Json<Expected>,
) -> Response {
    match service.cases.take(tx.as_deref(), id, step, expected_version).await {
        Ok(Some(Ok(case))) => Json(case).into_response(),
        Ok(Some(Err(refusal))) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unavailable(&*error).into_response(),
    }
}

/// The cases cannot be read or written. A request in a transaction is rolled back, so its retry is
/// executed.
fn unavailable(error: &dyn std::error::Error) -> impl IntoResponse + use<> {
    eprintln!("the cases are unavailable: {error}");
    (StatusCode::SERVICE_UNAVAILABLE, Fate::Unknown, [("retry-after", "1")])
}
