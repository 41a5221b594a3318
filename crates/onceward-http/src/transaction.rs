//! Handlers that work in a transaction of PostgreSQL, which also carries the claim and the
//! reply: all of it is committed, or nothing.

use http::Extensions;
use onceward_core::{BeginError, Disposition, Ended, Intent, Outcome, Settled};
use onceward_stores::postgres::{self, Closed, PostgresStore, TransactionHandle};

pub(crate) use onceward_stores::postgres::{OpenTransaction, Transactions};
pub use onceward_stores::postgres::{PgClient, TransactionEnded};

use crate::layer::LayerBuilder;
use crate::right::{Begun, Grants, Kept, Right};

/// The transaction that a handler works in: found in the request's extensions, or taken as an
/// axum extractor (feature `axum`). The layer ends it when the handler has answered: statements
/// until then are part of it, later ones are refused.
///
/// ```
/// use http::Response;
/// use onceward_http::PgTransaction;
///
/// async fn create(tx: PgTransaction) -> Result<Response<String>, Box<dyn std::error::Error>> {
///     let client = tx.client().await?;
///     let sql = "INSERT INTO orders DEFAULT VALUES RETURNING id::text";
///     let id = client.query_one(sql, &[]).await?.get(0);
///     Ok(Response::builder().status(201).body(id)?)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PgTransaction(TransactionHandle);

impl PgTransaction {
    /// The transaction of a guarded request; `None` where the layer let it pass, or has no
    /// [`transactions`](LayerBuilder::transactions).
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The connection, as long as the transaction goes on. Let go of it before the response:
    /// the commit waits for that, and not for long.
    ///
    /// # Errors
    ///
    /// If the transaction has ended.
    pub async fn client(&self) -> Result<PgClient<'_>, TransactionEnded> {
        self.0.client().await
    }
}

impl<S> LayerBuilder<S> {
    /// Runs every guarded handler in a transaction on this store, which it finds as a
    /// [`PgTransaction`] in the request's extensions, or takes as an axum extractor (feature
    /// `axum`). The rows that it writes there and its reply are committed at once.
    ///
    /// - A reply that is kept and is no error commits both. One that is kept and is an error
    ///   (4xx, 5xx) commits the reply and rolls the rows back.
    /// - A reply that is not kept rolls everything back, *unknown* or not; so do a panic and an
    ///   error of the handler. Nothing happened, and that is known.
    /// - What cannot be committed is answered by
    ///   [`RolledBack`](crate::Code::RolledBack), and only where the fate of a commit cannot
    ///   be asked by [`OutcomeUnknown`](crate::Code::OutcomeUnknown).
    ///
    /// Such a handler must have no effect outside of its transaction. The engine's identity and
    /// policy count, its own store is not asked; leases and what comes of them have no part.
    /// A transaction holds a connection while its handler runs
    /// ([`transactions_max`](postgres::Settings::transactions_max)).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use onceward_core::Engine;
    /// use onceward_http::{Onceward, Operation};
    /// use onceward_stores::postgres::{PostgresStore, Settings};
    ///
    /// let store = PostgresStore::open("postgres://localhost/app", Settings::default()).await?;
    /// let store = Arc::new(store);
    /// let layer = Onceward::layer(Engine::new(store.clone()))
    ///     .transactions(&store)
    ///     .single_tenant()
    ///     .operation(Operation::post("/orders"))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transactions(self, store: &PostgresStore) -> Self {
        let (identity, policy) = (self.engine().identity().clone(), self.engine().policy().clone());
        self.granted_by(Grants::InTransaction(store.transactions(identity, policy)))
    }
}

/// Hands the transaction to its handler.
pub(crate) fn equip(open: &OpenTransaction, extensions: &mut Extensions) {
    extensions.insert(PgTransaction(open.handle().clone()));
}

pub(crate) async fn begin(all: &Transactions, intent: &Intent) -> Result<Begun, BeginError> {
    Ok(match all.begin(intent).await? {
        postgres::Begun::Execute(open) => Begun::Execute(Right::Transaction(open)),
        postgres::Begun::Replay(replay) => Begun::Replay(replay),
        postgres::Begun::Reject(rejection) => Begun::Reject(rejection),
    })
}

pub(crate) async fn keep(open: OpenTransaction, ended: Ended, outcome: Outcome) -> Kept {
    let closed = match ended {
        Ended::Completed => open.complete(outcome).await,
        Ended::Failed => open.fail(outcome).await,
    };
    match closed {
        Closed::Committed => Kept::Settled(Settled::Durable),
        Closed::RolledBack(error) => {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            tracing::warn!(error, "not committed");
            Kept::RolledBack
        }
        Closed::Unknown => Kept::Unknown,
    }
}

/// Undoes all that a handler did.
pub(crate) async fn undo(open: OpenTransaction) -> (Disposition, Settled) {
    match open.roll_back().await {
        Closed::Committed | Closed::RolledBack(_) => (Disposition::Release, Settled::Durable),
        Closed::Unknown => (Disposition::Unknown, Settled::Pending),
    }
}
