//! A transaction that has claimed its intent and is to be ended.

use std::fmt;

use onceward_core::{
    Effect, Grant, Holder, Outcome, RecordId, Rejection, Replay, Retention, SettleRequest,
    Settlement, StoreError,
};

use super::error::Fault;
use super::handle::{Lent, TransactionHandle};
use super::session::Session;
use super::transactions::{Transactions, Unended};

/// What to do about an intent.
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// Run it in this transaction, and end that.
    Execute(Box<OpenTransaction>),
    /// It was done before: this is what came of it.
    Replay(Replay),
    /// Neither.
    Reject(Rejection),
}

/// A transaction that has claimed its intent: work in it by its [`handle`](Self::handle), then
/// say how it ended. Dropped, it is rolled back, and the intent is as if it had never come.
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
    /// Nothing happened, and the key is free: as it was told, or because of this error.
    RolledBack(Option<StoreError>),
    /// Nobody knows: the reply to the commit was lost and the server could not be asked in
    /// time, or the work ended the transaction by a statement of its own.
    Unknown,
}

/// The work is done behind a savepoint, so that a failure can be kept without its rows.
const KEEP_ROWS: &str = "RELEASE SAVEPOINT onceward_work";
const UNDO_ROWS: &str = "ROLLBACK TO SAVEPOINT onceward_work";
/// Fails where the work has ended the transaction; a plain ROLLBACK would only warn.
const UNDO_ALL: &str = "ROLLBACK TO SAVEPOINT onceward_work; ROLLBACK";

impl OpenTransaction {
    pub(super) fn new(
        transactions: Transactions,
        lent: Lent,
        grant: Grant,
        (id, retention): (RecordId, Retention),
        holder: Holder,
    ) -> Self {
        Self { transactions, handle: TransactionHandle::new(lent), grant, id, retention, holder }
    }

    /// The transaction, for the work.
    pub fn handle(&self) -> &TransactionHandle {
        &self.handle
    }

    /// What the work may know.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// It succeeded: commits its rows together with the outcome, which every retry gets.
    pub async fn complete(self, outcome: Outcome) -> Closed {
        self.settle(Settlement::Complete(outcome), KEEP_ROWS).await
    }

    /// It failed for good: rolls its rows back and commits the outcome, which every retry gets.
    pub async fn fail(self, outcome: Outcome) -> Closed {
        self.settle(Settlement::Fail(outcome), UNDO_ROWS).await
    }

    /// Nothing is to have happened: rolls everything back.
    pub async fn roll_back(self) -> Closed {
        // Somebody still has it: nothing is ever committed of it.
        let Some(lent) = self.take_back().await else { return Closed::RolledBack(None) };
        match self.end_work(&lent, UNDO_ALL).await {
            Ok(()) => {
                lent.give_back();
                Closed::RolledBack(None)
            }
            // The connection is dropped, which rolls back as well.
            Err(Closed::RolledBack(_)) => Closed::RolledBack(None),
            Err(closed) => closed,
        }
    }

    async fn settle(self, settlement: Settlement, end_of_work: &'static str) -> Closed {
        let Some(lent) = self.take_back().await else {
            let operation = self.grant.operation();
            tracing::error!(%operation, "the work has a hold on its transaction after its end");
            return rolled_back(Fault::late(Effect::NotApplied));
        };
        if let Err(closed) = self.end_work(&lent, end_of_work).await {
            return closed;
        }
        let closed = self.commit(&lent, settlement).await;
        if matches!(closed, Closed::Committed) {
            lent.give_back();
        }
        closed
    }

    async fn commit(&self, lent: &Lent, settlement: Settlement) -> Closed {
        let (transactions, retention) = (&self.transactions, self.retention);
        let settle = SettleRequest { id: self.id, holder: self.holder, settlement, retention };
        let session = Session::new(lent, &transactions.steps.settings);
        let ticket = match transactions.in_time(transactions.settle(&session, &settle)).await {
            Ok(ticket) => ticket,
            Err(fault) => return rolled_back(fault),
        };
        match transactions.commit(lent.batch_execute("COMMIT"), &ticket).await {
            Ok(()) => Closed::Committed,
            Err(fault) if fault.is_harmless() => rolled_back(fault),
            Err(_) => Closed::Unknown,
        }
    }

    async fn take_back(&self) -> Option<Lent> {
        self.handle.take_back(self.transactions.steps.settings.call_timeout).await
    }

    async fn end_work(&self, lent: &Lent, how: &str) -> Result<(), Closed> {
        let ended = self.transactions.ended(lent.batch_execute(how)).await;
        ended.map_err(|unended| match unended {
            Unended::Gone => Closed::Unknown,
            Unended::Failed(fault) => rolled_back(fault),
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
