//! Handlers in a PostgreSQL transaction, which also contains the claim and the reply: all of it is
//! committed, or nothing.

use http::Extensions;
use onceward_core::{BeginError, Disposition, Ended, Intent, Outcome, Settled};
use onceward_stores::postgres::{self, Closed, TransactionHandle};

pub(crate) use onceward_stores::postgres::{OpenTransaction, Transactions};
pub use onceward_stores::postgres::{PgClient, TransactionEnded};

use super::permit_kind::{Begun, Completion, RunPermit};

/// The transaction of a handler: a request extension, and an axum extractor (feature `axum`). The
/// layer ends it when the handler has answered: earlier statements are part of it, later ones are
/// refused.
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
    /// Returns the transaction of a protected request; `None` if the layer let the request pass, or
    /// has no [`transactions`](crate::LayerBuilder::transactions).
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Returns the connection while the transaction is open. Drop it before the response: the commit
    /// waits for that, but not for long.
    ///
    /// # Errors
    ///
    /// If the transaction has ended.
    pub async fn client(&self) -> Result<PgClient<'_>, TransactionEnded> {
        self.0.client().await
    }
}

/// Adds the transaction to the request's extensions.
pub(super) fn add_extension(open: &OpenTransaction, extensions: &mut Extensions) {
    extensions.insert(PgTransaction(open.handle().clone()));
}

pub(super) async fn begin(all: &Transactions, intent: &Intent) -> Result<Begun, BeginError> {
    Ok(match all.begin(intent).await? {
        postgres::Begun::Execute(open) => Begun::Execute(RunPermit::Transaction(open)),
        postgres::Begun::Replay(replay) => Begun::Replay(replay),
        postgres::Begun::Reject(rejection) => Begun::Reject(rejection),
    })
}

/// Commits the transaction with the outcome.
pub(super) async fn complete(open: OpenTransaction, ended: Ended, outcome: Outcome) -> Completion {
    let closed = match ended {
        Ended::Completed => open.complete(outcome).await,
        Ended::Failed => open.fail(outcome).await,
    };
    match closed {
        Closed::Committed => Completion::Settled(Settled::Durable),
        Closed::RolledBack(error) => {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            tracing::warn!(error, "the transaction was not committed");
            Completion::RolledBack
        }
        Closed::Unknown => Completion::Unknown,
    }
}

/// Rolls back everything that a handler did.
pub(super) async fn roll_back(open: OpenTransaction) -> (Disposition, Settled) {
    match open.roll_back().await {
        Closed::Committed | Closed::RolledBack(_) => (Disposition::Release, Settled::Durable),
        Closed::Unknown => (Disposition::Unknown, Settled::Pending),
    }
}
