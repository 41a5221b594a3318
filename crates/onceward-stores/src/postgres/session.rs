//! Connection pools, and statements over their connections.

use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError,
    RecyclingMethod, Runtime,
};
use onceward_core::{Effect, StoreErrorKind};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Transaction};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::Fault;
use super::row::DriverRow;
use super::settings::Settings;
use super::sql::Statement;

/// Longest time for an operator's statement, which may read many rows.
pub(super) const ADMIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections by purpose, so that no purpose makes the others wait.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) calls: Pool,
    pub(super) admin: Pool,
    pub(super) transactions: Pool,
}

impl Pools {
    pub(super) fn new(config: &Config, tls: &MakeRustlsConnect, settings: &Settings) -> Self {
        let pool = |size, wait, session: String| {
            let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(config.clone(), tls.clone(), how);
            let pool = Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1);
            let pool = pool.wait_timeout(Some(wait)).create_timeout(Some(settings.connect_timeout));
            let pool = if settings.pgbouncer { pool } else { pool.post_create(setup(session)) };
            #[expect(clippy::expect_used, reason = "fails only without a runtime, which it has")]
            pool.build().expect("a pool with a runtime")
        };
        let (call, lock) = (settings.call_timeout, settings.lock_timeout);
        Self {
            calls: pool(settings.connections, call, calls(settings.statement_timeout, lock)),
            admin: pool(2, ADMIN_TIMEOUT, timeouts(ADMIN_TIMEOUT, lock)),
            transactions: pool(settings.transactions_max, call, transactions(lock)),
        }
    }
}

/// Calls always use an index: a plan that was made for a small table must not scan a large one.
fn calls(statement: Duration, lock: Duration) -> String {
    let plans = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
    format!("{}; {plans}", timeouts(statement, lock))
}

/// The statements are the service's own. A transaction whose process hangs is ended by the server.
fn transactions(lock: Duration) -> String {
    let (idle, lock) = (60_000, lock.as_millis());
    format!(
        "{DURABLE}; SET lock_timeout = {lock}; SET idle_in_transaction_session_timeout = {idle}"
    )
}

fn timeouts(statement: Duration, lock: Duration) -> String {
    let (statement, lock) = (statement.as_millis(), lock.as_millis());
    format!("{DURABLE}; SET statement_timeout = {statement}; SET lock_timeout = {lock}")
}

/// An acknowledged commit is on disk. A server that requires more than that keeps its setting.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

fn setup(session: String) -> Hook {
    Hook::async_fn(move |client, _| {
        let session = session.clone();
        Box::pin(async move { client.batch_execute(&session).await.map_err(HookError::Backend) })
    })
}

/// A connection of a pool, within a time limit: the pool's own limits do not cover all it does.
pub(super) async fn connection(pool: &Pool, limit: Duration) -> Result<Object, Fault> {
    match timeout(limit, pool.get()).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error @ PoolError::Timeout(_))) => {
            Err(Fault::late(Effect::NotApplied).caused_by(error))
        }
        Ok(Err(error)) => Err(Fault::unreached(error)),
        Err(_) => Err(Fault::late(Effect::NotApplied)),
    }
}

/// A connection or a transaction that runs statements.
pub(super) trait SqlClient: Sync {
    /// The driver's rows.
    type Row: DriverRow + Send;

    /// Runs one statement. Returns its rows once it is committed or, in a transaction, done.
    fn run(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Fault>> + Send;
}

/// A connection of a pool, where each statement is its own transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'a> {
    client: &'a ClientWrapper,
    /// Whether statements are prepared by name, which does not work behind PgBouncer.
    named: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(client: &'a ClientWrapper, settings: &Settings) -> Self {
        Self { client, named: !settings.pgbouncer }
    }
}

impl SqlClient for Session<'_> {
    type Row = Row;

    async fn run(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        if self.client.is_closed() {
            return Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied));
        }
        if !self.named {
            return self
                .client
                .query_typed(&statement.text, &typed(statement, values))
                .await
                .map_err(Fault::of);
        }
        let prepared = self.client.prepare_typed_cached(&statement.text, &statement.types).await;
        let prepared = prepared.map_err(|error| Fault::of(error).harmless())?;
        self.client.query(&prepared, values).await.map_err(|error| {
            // The tables have changed since the statement was prepared: prepare it again next time.
            if matches!(
                error.code(),
                Some(&SqlState::FEATURE_NOT_SUPPORTED | &SqlState::INVALID_SQL_STATEMENT_NAME)
            ) {
                self.client.statement_cache.clear();
            }
            Fault::of(error)
        })
    }
}

impl SqlClient for Transaction<'_> {
    type Row = Row;

    async fn run(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        // Not prepared, as the connection is the caller's and may go through PgBouncer. Nothing
        // counts before the commit.
        let answered = self.query_typed(&statement.text, &typed(statement, values)).await;
        answered.map_err(|error| Fault::of(error).harmless())
    }
}

type Typed<'a> = (&'a (dyn ToSql + Sync), tokio_postgres::types::Type);

fn typed<'a>(statement: &Statement, values: &[&'a (dyn ToSql + Sync)]) -> Vec<Typed<'a>> {
    values.iter().copied().zip(statement.types.iter().cloned()).collect()
}
