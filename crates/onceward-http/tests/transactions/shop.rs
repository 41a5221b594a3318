//! A shop with orders as rows in the same database, and a layer that commits both together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use onceward_core::{
    BoxError, Engine, Finding, Outcome, Policy, Query, Record, Recovery, Resolver, Since,
    StateName, StoreAdmin as _, Tag, Verdict,
};
use onceward_http::axum::Key;
use onceward_http::{Onceward, PgTransaction, Rules};
use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::tokio_postgres::types::Type;
use onceward_stores::postgres::tokio_postgres::{self, Client, NoTls};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tower::ServiceExt as _;

/// One PostgreSQL for all tests, without fsync, which they do not test.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| or_skip(Postgres::default().fsync(false).start())).as_ref()
}

/// A schema that no other test of this process has, and few connections.
pub(crate) fn settings() -> Settings {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let schema = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let schema = Schema::new(schema).unwrap();
    Settings { schema, connections: 2, ..Settings::default() }
}

pub(crate) async fn plain(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Polls until a condition holds, for at most ten seconds.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// The shop, called without a network.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) client: Arc<Client>,
    pub(crate) table: Arc<str>,
    /// Handlers that have written their row and wait for `go_on`.
    pub(crate) begun: Arc<Semaphore>,
    pub(crate) go_on: Arc<Semaphore>,
    /// A handle that its handler did not drop.
    pub(crate) kept: Arc<Mutex<Option<PgTransaction>>>,
    app: Router,
}

/// Looks for the row of an order.
struct OrdersResolver {
    client: Arc<Client>,
    table: Arc<str>,
}

#[async_trait]
impl Resolver for OrdersResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let sql = format!("SELECT count(*) FROM {} WHERE key = $1", self.table);
        let key = record.key.as_ref().map(onceward_core::Key::expose);
        let rows: i64 = self.client.query_one(&sql, &[&key]).await?.get(0);
        Ok(match rows {
            0 => Verdict::DidNotHappen,
            _ => Verdict::Happened(Outcome::omitted(Tag::from_static("test"), "")),
        }
        .into())
    }

    fn since(&self) -> Since {
        Since::Always
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    pub(crate) replayed: bool,
}

impl Answer {
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Shop {
    pub(crate) async fn fresh(server: &Server) -> Self {
        Self::open(server.url(), settings()).await
    }

    pub(crate) async fn open(url: &str, settings: Settings) -> Self {
        Self::with(url, url, settings, Rules::default()).await
    }

    /// A shop whose layer connects to `url`, while checks connect to `direct`.
    pub(crate) async fn with(direct: &str, url: &str, settings: Settings, rules: Rules) -> Self {
        let client = Arc::new(plain(direct).await);
        let table: Arc<str> = format!("{}.orders", settings.schema).into();
        let store = Arc::new(PostgresStore::open(url, settings).await.unwrap());
        let sql = format!("CREATE TABLE IF NOT EXISTS {table} (key text NOT NULL)");
        client.batch_execute(&sql).await.unwrap();
        let policy = Policy::builder().keep_key(true).build().unwrap();
        let mut engine = Engine::builder(store.clone()).policy(policy);
        if rules.replay_check.is_some() {
            let orders = OrdersResolver { client: Arc::clone(&client), table: Arc::clone(&table) };
            engine = engine.recovery(Recovery::new(store.clone(), Arc::new(orders)));
        }
        let engine = engine.build();
        let layer = Onceward::layer(engine).transactions(&store).single_tenant().others(rules);
        let [begun, go_on] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let kept = Arc::default();
        let orders = Orders {
            table: Arc::clone(&table),
            begun: Arc::clone(&begun),
            go_on: Arc::clone(&go_on),
            kept: Arc::clone(&kept),
        };
        let app = Router::new()
            .route("/orders", post(create))
            .layer(layer.build().unwrap())
            .with_state(orders);
        Self { store, client, table, begun, go_on, kept, app }
    }

    /// Orders with a key; `how` controls the handler.
    pub(crate) async fn order(&self, key: &str, how: &str) -> Answer {
        let request = Request::post("/orders").header("idempotency-key", key).header("x-how", how);
        let request = request.body(Body::empty()).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let status = response.status().as_u16();
        Answer { status, body: response.into_body().collect().await.unwrap().to_bytes(), replayed }
    }

    pub(crate) async fn rows(&self, key: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {} WHERE key = $1", self.table);
        self.client.query_one(&sql, &[&key]).await.unwrap().get(0)
    }

    /// All keys that have a row, one each.
    pub(crate) async fn ordered(&self) -> Vec<String> {
        let sql = format!("SELECT key FROM {} ORDER BY key", self.table);
        self.client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// All keys whose record is in that state.
    pub(crate) async fn recorded(&self, standing: StateName) -> Vec<String> {
        let mut query = Query { standing: Some(standing), ..Query::default() };
        let mut keys = Vec::new();
        loop {
            let page = self.store.list(&query).await.unwrap();
            let key = |key: &onceward_core::Key| key.expose().to_owned();
            keys.extend(page.records.iter().filter_map(|it| it.key.as_ref().map(key)));
            query.after = page.next;
            if query.after.is_none() {
                keys.sort();
                return keys;
            }
        }
    }

    /// The state of one key's record.
    pub(crate) async fn state(&self, key: &str) -> Option<StateName> {
        for state in StateName::ALL {
            if self.recorded(state).await.iter().any(|it| it == key) {
                return Some(state);
            }
        }
        None
    }

    /// Returns true if row and record exist, false if neither does; panics otherwise.
    pub(crate) async fn together(&self, key: &str) -> bool {
        match (self.rows(key).await, self.state(key).await) {
            (1, Some(StateName::Completed)) => true,
            (0, None) => false,
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Waits until no transaction is open on the table.
    pub(crate) async fn nothing_is_open(&self) {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass";
        let none = async || {
            self.client.query_one(sql, &[&&*self.table]).await.unwrap().get::<_, i64>(0) == 0
        };
        eventually("nothing is open", none).await;
    }
}

#[derive(Clone)]
struct Orders {
    table: Arc<str>,
    begun: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
    kept: Arc<Mutex<Option<PgTransaction>>>,
}

impl Orders {
    async fn insert(&self, tx: &PgTransaction, key: &str) -> Result<(), String> {
        let client = tx.client().await.map_err(|error| error.to_string())?;
        let sql = format!("INSERT INTO {} VALUES ($1)", self.table);
        let values = [(&key as _, Type::TEXT)];
        let inserting = client.execute_typed(&sql, &values);
        let inserted = timeout(Duration::from_secs(1), inserting).await;
        inserted.map_err(|late| late.to_string())?.map(drop).map_err(|error| error.to_string())
    }

    async fn wait(&self) {
        self.begun.add_permits(1);
        self.go_on.acquire().await.unwrap().forget();
    }
}

/// Writes a row, then behaves as `x-how` says.
async fn create(
    axum::extract::State(orders): axum::extract::State<Orders>,
    tx: PgTransaction,
    Key(key): Key,
    headers: HeaderMap,
) -> Response {
    let key = key.expose();
    let inserted = orders.insert(&tx, key).await;
    let (how, value) = headers["x-how"].to_str().unwrap().split_once('=').unwrap_or_default();
    match (how, value) {
        ("status", status) => (status.parse::<StatusCode>().unwrap(), "as told").into_response(),
        ("outcome", fate) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [("onceward-outcome", fate.to_owned())])
                .into_response()
        }
        ("panic", _) => panic!("of the test"),
        ("break", _) => {
            let broken = [Ok("half"), Err(std::io::Error::other("of the test"))];
            Body::from_stream(futures_util::stream::iter(broken)).into_response()
        }
        ("wait", _) => {
            orders.wait().await;
            (StatusCode::CREATED, format!("ordered {key}")).into_response()
        }
        ("keep", _) => {
            *orders.kept.lock().unwrap() = Some(tx);
            StatusCode::CREATED.into_response()
        }
        ("hold", _) => {
            let (held, is_held) = oneshot::channel();
            tokio::spawn(async move {
                let client = tx.client().await.unwrap();
                held.send(()).unwrap();
                orders.wait().await;
                drop(client);
            });
            is_held.await.unwrap();
            StatusCode::CREATED.into_response()
        }
        ("sql", sql) => {
            let client = tx.client().await.unwrap();
            let failed = client.batch_execute(sql).await.is_err();
            (StatusCode::CREATED, failed.to_string()).into_response()
        }
        _ => match inserted {
            Ok(()) => (StatusCode::CREATED, format!("ordered {key}")).into_response(),
            // The database cannot be reached.
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
        },
    }
}
