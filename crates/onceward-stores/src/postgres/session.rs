//! Connections, and asking the server over them.

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
use super::row::Columns;
use super::settings::Settings;
use super::sql::Statement;

/// How long an operator's statement may take: it reads many rows.
pub(super) const ADMIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections by what they are for, so that none of it keeps the others waiting.
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

/// Calls always go by an index; a plan made while the table was small must not scan it when
/// it is large.
fn calls(statement: Duration, lock: Duration) -> String {
    let plans = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
    format!("{}; {plans}", timeouts(statement, lock))
}

/// The work's statements are the user's. A transaction whose process hangs ends by itself.
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

/// An acknowledged commit is on the disk; where the server wants more than that, it stays so.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

fn setup(session: String) -> Hook {
    Hook::async_fn(move |client, _| {
        let session = session.clone();
        Box::pin(async move { client.batch_execute(&session).await.map_err(HookError::Backend) })
    })
}

/// A connection of a pool, in time. The pool's own limits do not cover all it does to make one.
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

/// Whoever carries statements to the server.
pub(super) trait Ask: Sync {
    /// What comes back.
    type Row: Columns + Send;

    /// Sends one statement and returns its rows when it is committed, or, in a transaction,
    /// done.
    fn ask(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Fault>> + Send;
}

/// A connection of ours, one statement a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'a> {
    client: &'a ClientWrapper,
    /// Whether statements can be prepared by name: not behind PgBouncer.
    named: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(client: &'a ClientWrapper, settings: &Settings) -> Self {
        Self { client, named: !settings.pgbouncer }
    }
}

impl Ask for Session<'_> {
    type Row = Row;

    async fn ask(
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
            // The tables were changed under a prepared statement: prepare it anew next time.
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

impl Ask for Transaction<'_> {
    type Row = Row;

    async fn ask(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        // Not prepared: the connection is its owner's, and PgBouncer may be before it. Nothing
        // counts before the commit.
        let answered = self.query_typed(&statement.text, &typed(statement, values)).await;
        answered.map_err(|error| Fault::of(error).harmless())
    }
}

type Typed<'a> = (&'a (dyn ToSql + Sync), tokio_postgres::types::Type);

fn typed<'a>(statement: &Statement, values: &[&'a (dyn ToSql + Sync)]) -> Vec<Typed<'a>> {
    values.iter().copied().zip(statement.types.iter().cloned()).collect()
}
