//! A store in PostgreSQL, for services on several machines, and for effects that are rows of the
//! same database.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onceward_stores::postgres::{PostgresStore, Settings};
//!
//! let store = PostgresStore::open("postgres://localhost/app", Settings::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A call is answered after its change was committed, with `synchronous_commit` at least `on`.
//!   Acknowledged calls survive the death of this process and of the server.
//! - All processes on one schema share one store. Only the server's clock judges leases and
//!   retention.
//! - An error says *not applied* only if the server replied that it rolled back, or if nothing was
//!   sent. If the reply was lost it says *may have been applied*.
//! - A call is one statement and does not end with its caller, so it never leaves a transaction or
//!   a lock behind.
//! - [`Transactions`] put the claim, the rows of the work and its outcome into one commit.
//!
//! # How it works
//!
//! Each record is a row. A claim is one statement, which inserts a new row and returns existing
//! ones. A renewal and a settlement are one update each. These three restate the common edges of
//! the truth table. All others are decided by `machine.rs` itself, on the row as it was read and at
//! the server's time, and written by compare-and-set on fence and version. So there are no
//! installed functions that two releases on one database could disagree about, no lock is held
//! across a round trip, and PgBouncer is no obstacle.
//!
//! Calls that arrive while all connections are busy share a statement. See `docs/stores.md` for
//! the tables and the settings.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the store: opening, operators' calls |
//! | `batcher` | queue and connections: concurrent calls share a statement |
//! | `executor` | calls as statements; `machine.rs` and compare-and-set for the uncommon ones |
//! | `sql/`, `sql`, `columns`, `row` | statements, their parameters, and records from rows |
//! | `transactions`, `transaction_claim` | claim, rows and outcome in one commit, around a closure |
//! | `open_transaction`, `transaction_handle` | the same, begun and ended by calls |
//! | `sqlx_transaction` | the same in transactions of sqlx |
//! | `notifications` | waiters, and the connection that listens for them |
//! | `migrations/`, `migrate`, `schema` | the tables, and how they are brought up to date |
//! | `server`, `session`, `tls` | connections, their pools and their settings |
//! | `cache_generation` | the generation of valid entries of a cache |
//! | `resolver` | a query that tells what became of an operation |
//! | `settings`, `error` | limits; what an error says about the effect |

mod batcher;
#[cfg(feature = "tiered")]
mod cache_generation;
mod columns;
mod error;
mod executor;
mod migrate;
mod notifications;
mod open_transaction;
mod resolver;
mod row;
mod schema;
mod server;
mod session;
mod settings;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx_transaction;
mod tls;
mod transaction_claim;
mod transaction_handle;
mod transactions;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, DUE_BYTES_MAX, Due, Effect, Fenced, Health, Imported, InvalidateRequest,
    Lease, LossAccepted, Page, Purged, Query, Record, RecordId, RecordVersion, RenewRequest,
    ResolveRequest, SettleRequest, StateName, Stats, Store, StoreAdmin, StoreError,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

pub use error::{OpenError, RecordsLost};
pub use migrate::{Migration, Migrations, migration_plan};
pub use open_transaction::{Begun, Closed, OpenTransaction};
pub use resolver::SqlResolver;
pub use schema::{InvalidSchema, Schema};
pub use server::{Server, ServerConnection};
pub use settings::{Listen, Settings};
#[cfg(feature = "sqlx")]
pub use sqlx;
pub use tokio_postgres;
pub use transaction_handle::{PgClient, TransactionEnded, TransactionHandle};
pub use transactions::Transactions;

#[cfg(feature = "tiered")]
pub(crate) use cache_generation::CacheGeneration;

use batcher::{Batcher, Job};
use columns::VersionColumns;
use error::Fault;
use executor::Executor;
pub(crate) use executor::RetainedUntil;
use migrate::RECORDS;
use notifications::Notifications;
use row::RowSnapshot;
use session::{ADMIN_TIMEOUT, Pools, Session, SqlClient as _, connection};
use sql::Statement;

/// Rows that one statement of a purge visits: enough to be cheap, and few enough to be over before
/// a call waits for it.
const PURGE_CHUNK: usize = 250;

/// A store in PostgreSQL. See the [module](self) for its guarantees.
pub struct PostgresStore {
    executor: Arc<Executor>,
    pools: Arc<Pools>,
    batcher: Batcher,
    notifications: Notifications,
}

impl PostgresStore {
    /// Opens the store at a URL (`postgres://user:password@host:port/database`), and brings its
    /// tables up to date unless the settings say not to.
    ///
    /// It belongs to the tokio runtime that opened it. The URL may have the parameters of
    /// tokio-postgres.
    pub async fn open(url: &str, settings: Settings) -> Result<Self, OpenError> {
        let settings = settings.sane();
        let server = Server::new(url, &settings)?;
        let mut client = server.connect(&settings).await?;
        match settings.migrate {
            true => drop(RECORDS.run(&mut client, &settings.schema).await?),
            false => RECORDS.check(&client, &settings.schema).await?,
        }
        if settings.pgbouncer {
            check_durable(&client).await?;
        }
        let notifications = Notifications::new(server.listen_source(&settings)?);
        let pools = Arc::new(Pools::new(&server.config, &server.tls, &settings));
        let executor = Arc::new(Executor::new(settings));
        let batcher = Batcher::start(&executor, &pools);
        Ok(Self { executor, pools, batcher, notifications })
    }

    /// Brings the tables at a URL up to date. Returns how many migrations that took. Any number of
    /// processes may run it at the same time.
    pub async fn migrate(url: &str, settings: &Settings) -> Result<usize, OpenError> {
        let mut client = Server::new(url, settings)?.connect(settings).await?;
        RECORDS.run(&mut client, &settings.schema).await
    }

    /// Returns the SQL that [`migrate`](Self::migrate) would run, without running it; empty if the
    /// tables are up to date.
    pub async fn pending_migrations(url: &str, settings: &Settings) -> Result<String, OpenError> {
        let client = Server::new(url, settings)?.connect(settings).await?;
        RECORDS.pending(&client, &settings.schema).await
    }

    /// Runs one statement on an operator's connection.
    async fn admin(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        self.with_admin(async |session| session.run(statement, values).await).await
    }

    /// Does work on an operator's connection, within a time limit.
    async fn with_admin<A>(
        &self,
        work: impl AsyncFnOnce(&Session<'_>) -> Result<A, Fault>,
    ) -> Result<A, Fault> {
        let client = connection(&self.pools.admin, ADMIN_TIMEOUT).await?;
        let session = Session::new(&client, &self.executor.settings);
        match timeout(ADMIN_TIMEOUT, work(&session)).await {
            Ok(done) => done,
            Err(_) => {
                drop(deadpool_postgres::Object::take(client));
                Err(Fault::late(Effect::MayHaveBeenApplied))
            }
        }
    }

    /// Settles, and returns the end of the retention.
    pub(crate) async fn settle_with_retention(
        &self,
        request: &SettleRequest,
    ) -> Result<Fenced<RetainedUntil>, StoreError> {
        self.batcher
            .send(&self.executor, |reply| Job::Settle(Box::new(request.clone()), reply))
            .await
    }

    /// Marks a record as awaited. Returns whether the caller should wait.
    async fn mark_awaited(&self, id: &RecordId) -> bool {
        let id = id.as_bytes().as_slice();
        match self.admin(&self.executor.statements.mark_awaited, &[&id]).await {
            Ok(rows) => rows.first().is_some_and(|row| row.get(0)),
            // The engine polls beside this, and need not do so any faster.
            Err(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("settings", &self.executor.settings)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.batcher
            .send(&self.executor, |reply| Job::Claim(Box::new(request.clone()), reply))
            .await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.batcher.send(&self.executor, |reply| Job::Renew(*request, reply)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        Ok(self.settle_with_retention(request).await?.map(drop))
    }

    /// The server notifies only for records that were marked as awaited. A settlement without
    /// waiters costs no notification, for which all commits of a database queue up.
    async fn changed(&self, id: &RecordId) {
        match self.notifications.wait_for(id) {
            Some(waiter) => waiter.wait_after(self.mark_awaited(id)).await,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl StoreAdmin for PostgresStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let seen =
            self.with_admin(async |session| self.executor.read(session, &[*id]).await).await?;
        let stored = seen.into_iter().next().map(|seen| seen.stored).transpose();
        Ok(stored.map_err(Fault::from)?.map(|stored| stored.record))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(|id| id.as_bytes().as_slice());
        let standing = query.standing.map(row::state_name);
        // One more row than fits shows whether there is another page.
        let limit = i64::try_from(query.page_size()).unwrap_or(i64::MAX - 1) + 1;
        let values: [&(dyn ToSql + Sync); 5] =
            [&after, &standing, &query.tenant, &query.operation_name, &limit];
        let rows = self.admin(&self.executor.statements.list, &values).await?;
        Ok(page(&rows, query)?)
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let resolving = async |session: &Session<'_>| self.executor.resolve(session, request).await;
        Ok(self.with_admin(resolving).await?)
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        let invalidating =
            async |session: &Session<'_>| self.executor.invalidate(session, request).await;
        Ok(self.with_admin(invalidating).await?)
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        loop {
            let left = limit.saturating_sub(purged.removed + purged.tombstoned);
            if left == 0 {
                let due = self.admin(&self.executor.statements.due, &[]).await?;
                purged.more = due.first().is_some_and(|row| row.get(0));
                return Ok(purged);
            }
            let chunk = i64::try_from(left.min(PURGE_CHUNK)).unwrap_or(i64::MAX);
            let began = Instant::now();
            let rows = self.admin(&self.executor.statements.purge, &[&chunk]).await?;
            let took = began.elapsed();
            let seen = add_purged(&rows, &mut purged);
            if seen < chunk {
                return Ok(purged);
            }
            // Rests as long as the work took, so claims get at least half of the server's time.
            sleep(took).await;
        }
    }

    fn archives(&self) -> bool {
        true
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let statements = &self.executor.statements;
        let chunk = i64::try_from(limit.min(PURGE_CHUNK)).unwrap_or(i64::MAX);
        self.admin(&statements.postpone, &[&chunk]).await?;
        let bytes = i64::try_from(DUE_BYTES_MAX).unwrap_or(i64::MAX);
        let rows = self.admin(&statements.due_records, &[&chunk, &bytes]).await?;
        let visited = rows.first().map_or(0, |row| row.get::<_, i64>("visited"));
        let more = visited == chunk || visited > i64::try_from(rows.len()).unwrap_or(i64::MAX);
        let (mut due, mut unreadable) = (Due { more, ..Due::default() }, Vec::new());
        for row in &rows {
            let seen = RowSnapshot::read(row).map_err(Fault::from)?;
            match seen.stored {
                Ok(stored) => due.records.push(stored.record),
                Err(_) => {
                    tracing::error!(id = %seen.id, "a due record cannot be read and is kept");
                    unreadable.push(seen.id);
                }
            }
        }
        if !unreadable.is_empty() {
            let ids: Vec<&[u8]> = unreadable.iter().map(|id| id.as_bytes().as_slice()).collect();
            self.admin(&statements.defer, &[&ids]).await?;
        }
        Ok(due)
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        if versions.is_empty() {
            return Ok(purged);
        }
        let columns = VersionColumns::new(versions);
        let began = Instant::now();
        let rows = self.admin(&self.executor.statements.purge_versions, &columns.values()).await?;
        let took = began.elapsed();
        add_purged(&rows, &mut purged);
        // Rests as long as the work took, as `purge` does.
        sleep(took).await;
        Ok(purged)
    }

    /// Counts all records. For operators, occasionally.
    async fn stats(&self) -> Result<Stats, StoreError> {
        let rows = self.admin(&self.executor.statements.stats, &[]).await?;
        let mut stats = Stats::default();
        for row in &rows {
            let records = u64::try_from(row.get::<_, i64>("records")).unwrap_or(0);
            stats.records += records;
            stats.bytes = u64::try_from(row.get::<_, i64>("bytes")).unwrap_or(0);
            let name = StateName::ALL
                .into_iter()
                .find(|it| row::state_name(*it) == row.get::<_, &str>("state"));
            if let Some(name) = name {
                stats.by_state[name as usize] += records;
            }
            if name == Some(StateName::Unknown) {
                stats.oldest_unknown = row.get::<_, Option<_>>("oldest").map(row::timestamp);
            }
        }
        Ok(stats)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let importing = async |session: &Session<'_>| self.executor.import(session, record).await;
        Ok(self.with_admin(importing).await?)
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let looking = async |session: &Session<'_>| self.executor.must_have_sentinel(session).await;
        match self.with_admin(looking).await {
            Ok(()) => Ok(Health::default()),
            Err(fault) => {
                fault.lost().map(|lost| Health::refusing(lost.to_string())).ok_or(fault.into())
            }
        }
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        let made = self.admin(&self.executor.statements.new_sentinel, &[]).await?;
        Ok(match made.is_empty() {
            true => LossAccepted::NothingWasLost,
            false => {
                tracing::warn!("an operator accepted that all records were lost");
                LossAccepted::Reopened
            }
        })
    }
}

/// Adds the counts of a purge. Returns how many rows it visited.
fn add_purged(rows: &[Row], purged: &mut Purged) -> i64 {
    let count = |column| rows.first().map_or(0, |row| row.get::<_, i64>(column));
    purged.removed += usize::try_from(count("removed")).unwrap_or(0);
    purged.tombstoned += usize::try_from(count("buried")).unwrap_or(0);
    count("seen")
}

/// Builds a page from one row more than fits on it.
fn page(rows: &[Row], query: &Query) -> Result<Page, Fault> {
    let mut page = Page::default();
    let mut last = None;
    for (position, row) in rows.iter().enumerate() {
        if position == query.page_size() {
            page.next = last;
            break;
        }
        let seen = RowSnapshot::read(row)?;
        last = Some(seen.id);
        match seen.stored {
            Ok(stored) if query.matches(&stored.record, seen.now) => {
                page.records.push(stored.record);
            }
            // Its retention is over: the query excludes it, and the page is that much shorter.
            Ok(_) => {}
            Err(_) => page.undecodable.push(seen.id),
        }
    }
    Ok(page)
}

/// Behind PgBouncer a session cannot turn on durable commits.
async fn check_durable(client: &Client) -> Result<(), OpenError> {
    let off = migrate::value(client, "SHOW synchronous_commit").await?.as_deref() == Some("off");
    if off { Err(OpenError::NotDurable) } else { Ok(()) }
}
