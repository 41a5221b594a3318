//! A transaction that has claimed its intent, and that the caller ends.

use std::fmt;

use onceward_core::{
    Effect, Grant, Holder, Outcome, RecordId, Rejection, Replay, Retention, SettleRequest,
    Settlement, StoreError,
};

use super::error::Fault;
use super::session::Session;
use super::transaction_handle::{TransactionConnection, TransactionHandle};
use super::transactions::{EndError, Transactions};

/// The result of beginning a transaction.
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// Do the work in this transaction, and end it.
    Execute(Box<OpenTransaction>),
    /// The work was done before, with this outcome.
    Replay(Replay),
    /// The work must not be done now.
    Reject(Rejection),
}

/// A transaction that has claimed its intent. Work in it by its [`handle`](Self::handle), then end
/// it. Dropped, it is rolled back, and the intent is as if it had never come.
#[must_use = "dropping it rolls back"]
pub struct OpenTransaction {
    transactions: Transactions,
    handle: TransactionHandle,
    grant: Grant,
    id: RecordId,
    retention: Retention,
    holder: Holder,
}

/// How a transaction ended.
#[derive(Debug)]
#[must_use]
pub enum Closed {
    /// It is committed: every retry will see it.
    Committed,
    /// Nothing happened, and the key is free: as requested, or because of this error.
    RolledBack(Option<StoreError>),
    /// It may be committed or rolled back: the reply to the commit was lost and the server could
    /// not be asked in time, or the work ended the transaction by a statement of its own.
    Unknown,
}

/// The work runs behind a savepoint, so that a failure can be kept without its rows.
const KEEP_ROWS: &str = "RELEASE SAVEPOINT onceward_work";
const UNDO_ROWS: &str = "ROLLBACK TO SAVEPOINT onceward_work";
/// Fails if the work has ended the transaction, where a plain ROLLBACK would only warn.
const UNDO_ALL: &str = "ROLLBACK TO SAVEPOINT onceward_work; ROLLBACK";

impl OpenTransaction {
    pub(super) fn new(
        transactions: Transactions,
        connection: TransactionConnection,
        grant: Grant,
        (id, retention): (RecordId, Retention),
        holder: Holder,
    ) -> Self {
        Self {
            transactions,
            handle: TransactionHandle::new(connection),
            grant,
            id,
            retention,
            holder,
        }
    }

    /// The transaction, for the work.
    pub fn handle(&self) -> &TransactionHandle {
        &self.handle
    }

    /// The grant, for the work.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Commits the rows of the work together with its outcome, which every retry gets.
    pub async fn complete(self, outcome: Outcome) -> Closed {
        self.settle(Settlement::Complete(outcome), KEEP_ROWS).await
    }

    /// Rolls the rows of the work back, and commits the outcome of its failure, which every retry
    /// gets.
    pub async fn fail(self, outcome: Outcome) -> Closed {
        self.settle(Settlement::Fail(outcome), UNDO_ROWS).await
    }

    /// Rolls everything back: nothing happened.
    pub async fn roll_back(self) -> Closed {
        // The work still holds the connection: nothing of it is ever committed.
        let Some(connection) = self.take_back().await else { return Closed::RolledBack(None) };
        match self.end_work(&connection, UNDO_ALL).await {
            Ok(()) => {
                connection.give_back();
                Closed::RolledBack(None)
            }
            // The connection is dropped, which rolls back as well.
            Err(Closed::RolledBack(_)) => Closed::RolledBack(None),
            Err(closed) => closed,
        }
    }

    async fn settle(self, settlement: Settlement, end_of_work: &'static str) -> Closed {
        let Some(connection) = self.take_back().await else {
            let operation = self.grant.operation();
            tracing::error!(%operation, "the work still holds the connection of its transaction after its end");
            return rolled_back(Fault::late(Effect::NotApplied));
        };
        let closed = match self.end_work(&connection, end_of_work).await {
            Ok(()) => self.commit(&connection, settlement).await,
            Err(closed) => closed,
        };
        match closed {
            Closed::Committed => connection.give_back(),
            // Now, so that a retry does not find the claim's lock held.
            Closed::RolledBack(_) => self.end_rolled_back(connection).await,
            Closed::Unknown => {}
        }
        closed
    }

    /// Ends a transaction that cannot be committed. If that fails, its connection is dropped, and
    /// the server ends it a moment later.
    async fn end_rolled_back(&self, connection: TransactionConnection) {
        let rollback = async { connection.batch_execute("ROLLBACK").await.map_err(Fault::of) };
        if self.transactions.in_time(rollback).await.is_ok() {
            connection.give_back();
        }
    }

    async fn commit(&self, connection: &TransactionConnection, settlement: Settlement) -> Closed {
        let (transactions, retention) = (&self.transactions, self.retention);
        let settle = SettleRequest { id: self.id, holder: self.holder, settlement, retention };
        let session = Session::new(connection, &transactions.executor.settings);
        let id = match transactions.in_time(transactions.settle(&session, &settle)).await {
            Ok(id) => id,
            Err(fault) => return rolled_back(fault),
        };
        match transactions.commit(connection.batch_execute("COMMIT"), &id).await {
            Ok(()) => Closed::Committed,
            Err(fault) if fault.is_harmless() => rolled_back(fault),
            Err(_) => Closed::Unknown,
        }
    }

    async fn take_back(&self) -> Option<TransactionConnection> {
        self.handle.take_back(self.transactions.executor.settings.call_timeout).await
    }

    async fn end_work(&self, connection: &TransactionConnection, how: &str) -> Result<(), Closed> {
        let ended = self.transactions.end_work(connection.batch_execute(how)).await;
        ended.map_err(|unended| match unended {
            EndError::EndedByWork => Closed::Unknown,
            EndError::Failed(fault) => rolled_back(fault),
        })
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        self.handle.abandon();
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction").field("grant", &self.grant).finish_non_exhaustive()
    }
}

fn rolled_back(fault: Fault) -> Closed {
    Closed::RolledBack(Some(fault.into()))
}
