//! The right to run an operation: a permit with a lease, or a transaction.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use http::Extensions;
use onceward_core::{
    Begin, BeginError, Disposition, Ended, Engine, Grant, Intent, OperationId, Outcome, Permit,
    Rejection, Replay, Settled,
};

use crate::speak::Execution;
#[cfg(feature = "postgres")]
use crate::transaction::{self, OpenTransaction, Transactions};

/// How the right is given.
#[derive(Debug, Clone)]
pub(crate) enum Grants {
    /// By the engine, with a lease.
    Leased,
    /// In a transaction of the business, which also carries the claim and the reply.
    #[cfg(feature = "postgres")]
    InTransaction(Transactions),
}

/// What to do about an intent.
pub(crate) enum Begun {
    Execute(Right),
    Replay(Replay),
    Reject(Rejection),
}

/// The right to run an operation, and the duty to say what came of it.
pub(crate) enum Right {
    Permit(Permit),
    #[cfg(feature = "postgres")]
    Transaction(Box<OpenTransaction>),
}

/// What became of a reply that was to be kept.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    Settled(Settled),
    /// Nothing happened, the handler's rows included.
    #[cfg(feature = "postgres")]
    RolledBack,
    /// Nobody knows whether anything happened.
    #[cfg(feature = "postgres")]
    Unknown,
}

impl Grants {
    /// The same under the policy of an engine.
    pub(crate) fn under(&self, engine: &Engine) -> Self {
        match self {
            Self::Leased => {
                _ = engine; // has its policy already
                Self::Leased
            }
            #[cfg(feature = "postgres")]
            Self::InTransaction(all) => {
                Self::InTransaction(all.with_policy(engine.policy().clone()))
            }
        }
    }

    pub(crate) async fn begin(
        &self,
        engine: &Engine,
        intent: &Intent,
    ) -> Result<Begun, BeginError> {
        match self {
            Self::Leased => Ok(match engine.begin(intent).await? {
                Begin::Execute(permit) => Begun::Execute(Right::Permit(permit)),
                Begin::Replay(replay) => Begun::Replay(replay),
                Begin::Reject(rejection) => Begun::Reject(rejection),
            }),
            #[cfg(feature = "postgres")]
            Self::InTransaction(all) => transaction::begin(all, intent).boxed().await,
        }
    }
}

impl Right {
    pub(crate) fn grant(&self) -> &Grant {
        match self {
            Self::Permit(permit) => permit.grant(),
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => open.grant(),
        }
    }

    pub(crate) fn operation(&self) -> OperationId {
        self.grant().operation()
    }

    /// Hands the handler of an intent what it works by.
    pub(crate) fn equip(&self, intent: Intent, extensions: &mut Extensions) {
        let Intent { key, scope, .. } = intent;
        extensions.insert(Execution::new(key, scope, self.grant().clone()));
        match self {
            Self::Permit(_) => {}
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => transaction::equip(open, extensions),
        }
    }

    /// It ended in this way and came to this, for every retry.
    pub(crate) fn keep(self, ended: Ended, outcome: Outcome) -> impl Future<Output = Kept> {
        match self {
            Self::Permit(permit) => {
                let settled = permit.end(ended, outcome).map(Kept::Settled);
                Either::<_, BoxFuture<'static, Kept>>::Left(settled)
            }
            #[cfg(feature = "postgres")]
            Self::Transaction(open) => {
                Either::Right(transaction::keep(*open, ended, outcome).boxed())
            }
        }
    }

    /// Nothing happened, or nobody knows. Says what was written down of the two, and whether
    /// it counts: whatever a transaction did is undone, so nothing happened.
    pub(crate) async fn let_go(self, said: LetGo) -> (Disposition, Settled) {
        match (self, said) {
            (Self::Permit(permit), LetGo::Release) => {
                (Disposition::Release, permit.release().await)
            }
            (Self::Permit(permit), LetGo::Unknown) => {
                (Disposition::Unknown, permit.unknown().await)
            }
            #[cfg(feature = "postgres")]
            (Self::Transaction(open), LetGo::Release | LetGo::Unknown) => {
                transaction::undo(*open).await
            }
        }
    }
}

/// What is said of an operation whose reply is not kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LetGo {
    /// Nothing happened.
    Release,
    /// Nobody knows.
    Unknown,
}
