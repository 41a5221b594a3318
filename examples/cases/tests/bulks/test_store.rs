//! The stores that the tests run on, and requests that they all send.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use example_cases::Settings;
use example_walk::{App, Response};
use onceward_services::{Server, query, query_in};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Short, so that a dead service is noticed soon, and long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(600);

/// A store of its own for a test.
pub(crate) enum TestStore {
    Memory,
    File(TempDir),
    /// The name of a database on the shared server.
    Postgres(&'static Server, String),
}

impl TestStore {
    pub(crate) fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// A new database on a server that all tests share; `None` if there is no PostgreSQL.
    pub(crate) fn postgres() -> Option<Self> {
        static SERVER: OnceLock<Option<Server>> = OnceLock::new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = SERVER.get_or_init(onceward_services::postgres).as_ref()?;
        let database = format!("cases_{}", DATABASES.fetch_add(1, Ordering::SeqCst));
        query(server, &format!("CREATE DATABASE {database}")).unwrap();
        Some(Self::Postgres(server, database))
    }

    /// One of each kind that this machine has.
    pub(crate) fn all() -> Vec<Self> {
        [Self::Memory, Self::file()].into_iter().chain(Self::postgres()).collect()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory => "memory:".into(),
            Self::File(directory) => format!("file:{}", directory.path().join("records").display()),
            Self::Postgres(server, database) => {
                format!("postgres://postgres@127.0.0.1:{}/{database}", server.port())
            }
        }
    }

    /// The service's settings: items run one after the other.
    pub(crate) fn settings(&self) -> Settings {
        let store = self.url();
        Settings { port: 0, store, lease: LEASE, bulk_concurrency: 1, ..Settings::default() }
    }

    /// Runs a statement in the database of a PostgreSQL store.
    pub(crate) fn sql(&self, statement: &str) -> String {
        let Self::Postgres(server, database) = self else { panic!("not PostgreSQL") };
        query_in(server, database, statement).unwrap()
    }

    /// Begins to count the changes of cases, where the store needs that.
    pub(crate) fn begin_ledger(&self) {
        if self.is_postgres() {
            self.sql(
                "CREATE TABLE ledger (case_id bigint, status text);
                 CREATE FUNCTION entry() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO ledger VALUES (NEW.id, NEW.status); RETURN NEW; END $$;
                 CREATE TRIGGER entry AFTER UPDATE ON cases FOR EACH ROW EXECUTE FUNCTION entry()",
            );
        }
    }

    /// How often each case was approved, counted without the service: by a trigger of the database,
    /// or in the lines of the log.
    pub(crate) fn approvals(&self) -> BTreeMap<i64, usize> {
        let mut approvals = BTreeMap::new();
        let mut count = |case: i64| *approvals.entry(case).or_default() += 1;
        match self {
            Self::Memory => panic!("nothing counts in memory"),
            Self::File(directory) => {
                let log = std::fs::read_to_string(directory.path().join("records.cases")).unwrap();
                let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let changed =
                    entries.flat_map(|it| [it["Case"].clone(), it["Item"]["case"].clone()]);
                let approved = changed.filter(|case| case["status"] == "approved");
                approved.for_each(|case| count(case["id"].as_i64().unwrap()));
            }
            Self::Postgres(..) => {
                let ids = "SELECT case_id FROM ledger WHERE status = 'approved'";
                self.sql(ids).lines().for_each(|id| count(id.parse().unwrap()));
            }
        }
        approvals
    }
}

/// Creates cases from number 1 on, and submits them, except the last `drafts`.
pub(crate) async fn create_cases(app: &App, count: usize, drafts: usize) {
    for id in 1..=count {
        let key = format!("new-{id}");
        let created = app.post("/cases", &[("idempotency-key", &key)], r#"{"title":"A"}"#).await;
        assert_eq!(created.json()["id"], id, "{}", created.body);
    }
    for id in 1..=count - drafts {
        submit(app, id).await;
    }
}

pub(crate) async fn submit(app: &App, id: usize) {
    let (key, path) = (format!("submit-{id}"), format!("/cases/{id}/submit"));
    let taken = app.post(&path, &[("idempotency-key", &key)], r#"{"expectedVersion":1}"#).await;
    assert_eq!(taken.status, 200, "{}", taken.body);
}

/// Items `line-001`, `line-002` and so on, one for each case.
pub(crate) fn lines(cases: impl IntoIterator<Item = usize>) -> Vec<Value> {
    let line = |id| json!({ "clientItemId": format!("line-{id:03}"), "caseId": id });
    cases.into_iter().map(line).collect()
}

pub(crate) async fn approve(app: &App, key: &str, lines: &[Value]) -> Response {
    let body = json!({ "items": lines }).to_string();
    app.post("/cases:bulkApprove", &[("idempotency-key", key)], &body).await
}

pub(crate) async fn case(app: &App, id: usize) -> Value {
    app.get(&format!("/cases/{id}"), &[]).await.json()
}

/// The page of a bulk.
pub(crate) async fn page(app: &App, operation: &Value) -> Value {
    let path = format!("/cases/bulk/{}", operation.as_str().unwrap());
    let page = app.get(&path, &[]).await;
    assert_eq!(page.status, 200, "{}", page.body);
    page.json()
}

/// The states of the items of a response or a page, in their order.
pub(crate) fn states(bulk: &Value) -> Vec<&str> {
    let items = bulk["items"].as_array().unwrap_or_else(|| panic!("no items: {bulk}"));
    items.iter().map(|item| item["state"].as_str().unwrap()).collect()
}
