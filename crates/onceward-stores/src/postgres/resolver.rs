//! A resolver that queries the tables of the service.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use onceward_core::{
    BoxError, Clock as _, Finding, Identity, OperationId, Outcome, Placeholder, Record, Resolver,
    Since, StoreError, SystemAmbient, Template, Verdict,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::error::OpenError;
use super::session::{Pools, connection};
use super::settings::Settings;
use super::{Server, tokio_postgres};

/// Finds out by a query on the service's PostgreSQL what became of an operation: a row means that
/// it happened, no row that it did not.
///
/// The query has placeholders such as `{operation}` and `{reference}` (see [`Template`]), each of
/// which is a text: `SELECT id FROM payment WHERE operation = {operation}::uuid`. It runs in a
/// read-only transaction. The outcome stays unknown if the record lacks what the query needs, and
/// if there are several rows.
///
/// A missing row is evidence **only** once no process can write it any more: see
/// [`grace`](Self::grace), and prefer tables that refuse fences other than the latest. It counts
/// for operations that are not older than the resolver ([`since`](Self::since)), and while the
/// query finds rows of completed operations: on the wrong table it finds none.
pub struct SqlResolver {
    pool: Pool,
    limit: Duration,
    query: Template,
    statement: String,
    places: Vec<Placeholder>,
    identity: Identity,
    address: String,
    grace: Duration,
    since: Since,
    read: Box<Read>,
}

type Read = dyn Fn(&Row) -> Result<Outcome, BoxError> + Send + Sync;

/// Longer than statements and their retries take.
const GRACE: Duration = Duration::from_secs(60);

impl SqlResolver {
    /// Creates a resolver for a query at a URL. `read` makes an outcome of a row. Connects later:
    /// see [`check`](Self::check).
    pub fn new(
        url: &str,
        query: Template,
        identity: Identity,
        read: impl Fn(&Row) -> Result<Outcome, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        if !query.names_operation() {
            return Err(OpenError::NoOperation);
        }
        let settings = Settings::default().sane();
        let server = Server::new(url, &settings)?;
        let pool = Pools::new(&server.config, &server.tls, &settings).admin;
        let (limit, mut places) = (settings.call_timeout, Vec::new());
        let statement = query.fill(|about| {
            places.push(about);
            Some(format!("${}", places.len()))
        });
        let statement = statement.unwrap_or_default();
        let (address, read) = (address(&server, &query), Box::new(read));
        let (grace, since) = (GRACE, Since::default());
        Ok(Self { pool, limit, query, statement, places, identity, address, grace, since, read })
    }

    /// Sets how long after the last sign of an attempt a missing row counts as evidence. Until then
    /// it may still be written. The default is one minute.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the operations for which a missing row counts as evidence. The default is those since
    /// the first use of the resolver.
    #[must_use]
    pub fn since(mut self, since: Since) -> Self {
        self.since = since;
        self
    }

    /// Checks that the server answers, that it understands the query, and that there is no row
    /// about an operation that does not exist.
    pub async fn check(&self) -> Result<(), BoxError> {
        let operation = OperationId::of_no_record();
        let values: Vec<_> = self.places.iter().map(|it| it.of_no_record(&operation)).collect();
        match self.rows(&values).await?.len() {
            0 => Ok(()),
            rows => Err(format!(
                "the query returns {rows} row(s) about operation {operation}, which does not \
                 exist; it must select by the operation"
            )
            .into()),
        }
    }

    async fn rows(&self, values: &[String]) -> Result<Vec<Row>, BoxError> {
        let connected = connection(&self.pool, self.limit).await;
        let mut client = connected.map_err(StoreError::from)?;
        let tx = client.build_transaction().read_only(true).start().await?;
        let values = values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT));
        let rows = tx.query_typed(&self.statement, &values.collect::<Vec<_>>()).await?;
        tx.rollback().await?;
        Ok(rows)
    }

    fn is_late(&self, record: &Record) -> bool {
        SystemAmbient::new().now() >= record.updated_at + self.grace
    }
}

#[async_trait]
impl Resolver for SqlResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let values = self.places.iter().map(|about| about.of(record, &self.identity));
        let Some(values) = values.collect::<Option<Vec<_>>>() else {
            return Ok(Finding::new(Verdict::StillUnknown, "the record has no reference"));
        };
        let rows = self.rows(&values).await?;
        Ok(match &rows[..] {
            [] if self.is_late(record) => Finding::new(Verdict::DidNotHappen, "no row"),
            [] => Finding::new(Verdict::StillUnknown, "no row yet"),
            [row] => Finding::new(Verdict::Happened((self.read)(row)?), "one row"),
            rows => Finding::new(Verdict::StillUnknown, format!("{} rows", rows.len())),
        })
    }

    fn name(&self) -> &str {
        "sql"
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn since(&self) -> Since {
        self.since
    }

    fn goes_by_absence(&self) -> bool {
        true
    }
}

/// Server, database and query, without the login.
fn address(server: &Server, query: &Template) -> String {
    let Server { config, .. } = server;
    let (hosts, ports, database) = (config.get_hosts(), config.get_ports(), config.get_dbname());
    format!("{hosts:?} {ports:?} {database:?} {query}")
}

impl fmt::Debug for SqlResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlResolver").field("query", &self.query).finish_non_exhaustive()
    }
}
