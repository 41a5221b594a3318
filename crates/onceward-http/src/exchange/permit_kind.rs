//! The right to run an operation: a permit with a lease, or an open transaction.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use http::Extensions;
use onceward_core::{
    Begin, BeginError, Disposition, Ended, Engine, Grant, Intent, OperationId, Outcome, Permit,
    Rejection, Replay, Settled, UnknownCause,
};

#[cfg(feature = "postgres")]
use super::transaction::{self, OpenTransaction, Transactions};
use crate::handler::Execution;

/// Kind of the permits that an operation's handlers run under.
#[derive(Debug, Clone)]
pub(crate) enum PermitKind {
    /// A permit of the engine, with a lease.
    Leased,
    /// A business transaction, which also contains the claim and the reply.
    #[cfg(feature = "postgres")]
    InTransaction(Transactions),
}

/// The decision about an intent.
pub(crate) enum Begun {
    Execute(RunPermit),
    Replay(Replay),
    Reject(Rejection),
}

/// The right to run an operation. It must be settled.
pub(crate) enum RunPermit {
    Leased(Permit),
    #[cfg(feature = "postgres")]
    Transaction(Box<OpenTransaction>),
}

/// Result of storing a reply.
#[derive(Clone, Copy)]
pub(crate) enum Completion {
    Settled(Settled),
    /// Nothing happened: the handler's rows are rolled back too.
    #[cfg(feature = "postgres")]
    RolledBack,
    /// It is not known whether the transaction was committed.
    #[cfg(feature = "postgres")]
    Unknown,
}

impl PermitKind {
    /// Returns the same kind under the policy of an engine.
    pub(crate) fn under(&self, engine: &Engine) -> Self {
        match self {
            Self::Leased => {
                _ = engine; // permits of an engine have its policy
                Self::Leased
            }
            #[cfg(feature = "postgres")]
            Self::InTransaction(all) => {
                Self::InTransaction(all.with_policy(engine.policy().clone()))
            }
        }
    }

    /// Asks whether to execute, replay or reject.
    pub(super) async fn begin(
        &self,
        engine: &Engine,
        intent: &Intent,
    ) -> Result<Begun, BeginError> {
        match self {
            Self::Leased => Ok(engine.begin(intent).await?.into()),
            #[cfg(feature = "postgres")]
            Self::InTransaction(all) => match transaction::begin(all, intent).boxed().await? {
                Begun::Replay(replay) => Ok(engine.check_replay(replay).await?.into()),
                begun => Ok(begun),
            },
        }
    }
}

impl From<Begin> for Begun {
    fn from(begin: Begin) -> Self {
        match begin {
            Begin::Execute(permit) => Self::Execute(RunPermit::Leased(permit)),
            Begin::Replay(replay) => Self::Replay(replay),
            Begin::Reject(rejection) => Self::Reject(rejection),
        }
    }
}

impl RunPermit {
    pub(super) fn grant(&self) -> &Grant {
        match self {
            Self::Leased(permit) => permit.grant(),
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => open.grant(),
        }
    }

    pub(super) fn operation(&self) -> OperationId {
        self.grant().operation()
    }

    /// Adds the request extensions for the handler.
    pub(super) fn add_extensions(&self, intent: Intent, extensions: &mut Extensions) {
        let Intent { key, scope, .. } = intent;
        extensions.insert(Execution::new(key, scope, self.grant().clone()));
        match self {
            Self::Leased(_) => {}
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => transaction::add_extension(open, extensions),
        }
    }

    /// Stores the outcome for every retry.
    pub(super) fn complete(
        self,
        ended: Ended,
        outcome: Outcome,
    ) -> impl Future<Output = Completion> {
        match self {
            Self::Leased(permit) => {
                let settled = permit.end(ended, outcome).map(Completion::Settled);
                Either::<_, BoxFuture<'static, Completion>>::Left(settled)
            }
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => {
                Either::Right(transaction::complete(*open, ended, outcome).boxed())
            }
        }
    }

    /// Settles without an outcome. Returns the disposition in force, and whether it is stored: a
    /// transaction is rolled back, so nothing happened.
    pub(super) async fn end_without_outcome(self, word: WithoutOutcome) -> (Disposition, Settled) {
        match (self, word) {
            (Self::Leased(permit), WithoutOutcome::Release) => {
                (Disposition::Release, permit.release().await)
            }
            (Self::Leased(permit), WithoutOutcome::Unknown(cause)) => {
                (Disposition::Unknown, permit.unknown(*cause).await)
            }
            #[cfg(feature = "postgres")]
            (Self::Transaction(open), WithoutOutcome::Release | WithoutOutcome::Unknown(_)) => {
                transaction::roll_back(*open).await
            }
        }
    }
}

/// Disposition of a result that is not stored.
#[derive(Debug, Clone)]
pub(crate) enum WithoutOutcome {
    /// Nothing happened.
    Release,
    /// It is not known what happened, for this reason. Boxed, as it travels beside a response.
    Unknown(Box<UnknownCause>),
}

impl WithoutOutcome {
    /// The name of the cause, where the outcome is unknown.
    pub(super) fn cause_name(&self) -> Option<&'static str> {
        match self {
            Self::Release => None,
            Self::Unknown(cause) => Some(cause.name()),
        }
    }
}
