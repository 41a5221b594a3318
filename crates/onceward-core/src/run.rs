//! Runs any async function once, with typed results.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::engine::{Begin, BeginError, Engine, Grant, Permit, Rejection, Settled};
use crate::intent::{Intent, InvalidKey, InvalidScope, OperationId};
use crate::policy::{Disposition, InvalidPolicy, OnLapse, Policy};
use crate::record::{Ended, Outcome, Replay, Tag, UnknownCause, Unreadable};

/// An error of the work, classified by its effect.
///
/// `?` on a plain error makes [`Failure::Unclassified`], which the policy's
/// [`failures`](crate::PolicyBuilder::failures) decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<E> {
    /// It failed for good. Every retry gets this error.
    Keep(E),
    /// Nothing happened. The key is free, and a retry runs again.
    Release(E),
    /// It is unknown whether it happened. It is not run again without evidence.
    Unknown(E),
    /// The policy decides.
    Unclassified(E),
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::Unclassified(error)
    }
}

impl<E> Failure<E> {
    fn classify(self, unclassified: Disposition) -> (Disposition, E) {
        match self {
            Self::Keep(error) => (Disposition::Keep, error),
            Self::Release(error) => (Disposition::Release, error),
            Self::Unknown(error) => (Disposition::Unknown, error),
            Self::Unclassified(error) => (unclassified, error),
        }
    }
}

/// A success, now or earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<T> {
    /// The value that the work returned the first time.
    pub value: T,
    /// The operation's id.
    pub operation: OperationId,
    /// True if it is replayed from an earlier run.
    pub replayed: bool,
    /// Durability of the outcome. [`Settled::Pending`]: the work succeeded, and its outcome is
    /// being retried at a store that does not answer.
    pub settled: Settled,
}

/// Why [`Engine::run`] has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work failed for good, now or earlier; every retry gets this error.
    #[error("the operation {operation} failed")]
    Failed {
        /// The work's error.
        error: E,
        /// The operation's id.
        operation: OperationId,
        /// True if it is replayed from an earlier run.
        replayed: bool,
    },
    /// The work failed and nothing happened; a retry with the same key runs it again.
    #[error("the operation did not happen and may be tried again")]
    Released {
        /// The work's error.
        error: E,
    },
    /// It cannot be proved what happened.
    #[error("the outcome of operation {operation} is unknown")]
    Unknown {
        /// The operation's id.
        operation: OperationId,
        /// The work's error, if this call ran it and it returned one.
        error: Option<E>,
    },
    /// The work ran, but its result does not count: the lease was lost, and the operation was
    /// settled without it. Retry with the same key to get the outcome that counts.
    #[error(
        "operation {operation} lost its lease and was settled otherwise; retry with the same key"
    )]
    Superseded {
        /// The operation's id.
        operation: OperationId,
    },
    /// The key is in use, or was used for another request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The engine could not decide; nothing was executed.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The operation was done by another release of the program, whose result this one cannot read.
    #[error("the stored outcome of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's id.
        operation: OperationId,
        /// The reason.
        #[source]
        source: Unreadable,
    },
}

impl<E> RunError<E> {
    /// Returns the work's own error, or why there is none.
    ///
    /// The result does not tell whether the error was kept, released or left unknown, so this is
    /// for functions whose callers see that from the error itself.
    pub fn into_work_error(self) -> Result<E, Refused> {
        match self {
            Self::Failed { error, .. }
            | Self::Released { error }
            | Self::Unknown { error: Some(error), .. } => Ok(error),
            Self::Unknown { error: None, operation } => Err(Refused::Unknown { operation }),
            Self::Superseded { operation } => Err(Refused::Superseded { operation }),
            Self::Rejected(rejection) => Err(Refused::Rejected(rejection)),
            Self::Begin(error) => Err(Refused::Begin(error)),
            Self::Unreadable { operation, source } => {
                Err(Refused::Unreadable { operation, source })
            }
        }
    }
}

/// Why a protected function has neither a value nor an error of its own: every [`RunError`] that is
/// not the work's error, and invalid calls.
///
/// A protected function can return any error type that implements `From<Refused>`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The key is in use, or was used for another request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// It cannot be proved what happened. Look the operation up, do not retry blindly.
    #[error("the outcome of operation {operation} is unknown")]
    Unknown {
        /// The operation's id.
        operation: OperationId,
    },
    /// The work ran, but its result does not count: the lease was lost, and the operation was
    /// settled without it. Retry with the same key to get the outcome that counts.
    #[error(
        "operation {operation} lost its lease and was settled otherwise; retry with the same key"
    )]
    Superseded {
        /// The operation's id.
        operation: OperationId,
    },
    /// The engine could not decide; nothing was executed.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The operation was done before, and its stored result cannot be read.
    #[error("the stored outcome of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's id.
        operation: OperationId,
        /// The reason.
        #[source]
        source: Unreadable,
    },
    /// The key is not valid; nothing was executed.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The tenant or the caller is not valid; nothing was executed.
    #[error(transparent)]
    Scope(#[from] InvalidScope),
    /// The arguments have no fingerprint, because serde cannot serialise them; nothing was
    /// executed.
    #[error("the arguments cannot be serialised for their fingerprint; nothing was executed")]
    Arguments(#[source] serde_json::Error),
    /// The function's retention does not fit the engine's policy; nothing was executed.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
}

impl Refused {
    /// True if a retry with the same key is safe and may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected(Rejection::Running { .. })
            | Self::Superseded { .. }
            | Self::Begin(_) => true,
            Self::Rejected(
                Rejection::Mismatch { .. }
                | Rejection::ReferenceTaken { .. }
                | Rejection::Unknown { .. }
                | Rejection::Contradicted { .. }
                | Rejection::Expired,
            )
            | Self::Unknown { .. }
            | Self::Unreadable { .. }
            | Self::Key(_)
            | Self::Scope(_)
            | Self::Arguments(_)
            | Self::Policy(_) => false,
        }
    }

    /// Time to wait before a retry, where the first attempt is still running.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(Rejection::Running { retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }

    /// The operation's id, where one is known.
    pub fn operation(&self) -> Option<OperationId> {
        match self {
            Self::Rejected(
                Rejection::Running { operation, .. }
                | Rejection::Unknown { operation }
                | Rejection::Contradicted { operation },
            )
            | Self::Unknown { operation }
            | Self::Superseded { operation }
            | Self::Unreadable { operation, .. }
            | Self::Begin(
                BeginError::Rebuild { operation, .. } | BeginError::Unconfirmed { operation },
            ) => Some(*operation),
            _ => None,
        }
    }
}

/// A result that can be stored and replayed.
pub(crate) trait Stored: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Stored for T {}

impl Engine {
    /// Runs work once for an intent, and gives every retry the first result.
    ///
    /// The work runs in its own task, so a caller that goes away does not cancel it. Its result is
    /// stored as JSON before it is returned. If it panics, the outcome is unknown.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onceward_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let intent = Intent::new(
    ///     Scope::new("acme", "checkout", "payments.create")?,
    ///     Key::new("order-17")?,
    ///     Fingerprint::of_value(&("EUR", 42))?,
    /// );
    /// let pay = async |grant: Grant| -> Result<String, Failure<String>> {
    ///     Ok(format!("paid with {}", grant.downstream_key()))
    /// };
    /// let first = engine.run(&intent, pay).await?;
    /// let retry = engine.run(&intent, pay).await?;
    /// assert_eq!((first.replayed, retry.replayed), (false, true));
    /// assert_eq!(first.value, retry.value);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E, F, R>(&self, intent: &Intent, work: F) -> Result<Done<T>, RunError<E>>
    where
        F: FnOnce(Grant) -> R,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Serialize + DeserializeOwned + Send + 'static,
    {
        let permit = match self.start(intent).await {
            Start::Execute(permit) => permit,
            Start::Answer(answer) => return answer,
        };
        let operation = permit.operation();
        let work = work(permit.grant().clone());
        let finish = finish(permit, work, self.policy().clone());
        // A panic drops the permit, which makes the record unknown.
        let panicked = || Err(RunError::Unknown { operation, error: None });
        tokio::spawn(finish.in_current_span()).await.unwrap_or_else(|_| panicked())
    }

    /// Like [`run`](Self::run), in the caller's own task: for work that borrows or is not `Send`.
    ///
    /// Dropping the returned future drops the work at any point, and the outcome is then unknown. A
    /// panic of the work reaches the caller, and the outcome is unknown too. Use `run` where callers
    /// go away, as HTTP clients do.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onceward_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// # let scope = Scope::new("acme", "checkout", "payments.create")?;
    /// # let intent = Intent::new(scope, Key::new("order-17")?, Fingerprint::of_value(&42)?);
    /// let mut log = Vec::new();
    /// let pay = async |_: Grant| -> Result<u32, Failure<String>> {
    ///     log.push("charged"); // borrowed from here
    ///     Ok(42)
    /// };
    /// assert_eq!(engine.run_inline(&intent, pay).await?.value, 42);
    /// assert_eq!(log, ["charged"]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_inline<T, E, F, R>(
        &self,
        intent: &Intent,
        work: F,
    ) -> Result<Done<T>, RunError<E>>
    where
        F: FnOnce(Grant) -> R,
        R: Future<Output = Result<T, Failure<E>>>,
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
    {
        match self.start(intent).await {
            Start::Execute(permit) => {
                let work = work(permit.grant().clone());
                finish(permit, work, self.policy().clone()).await
            }
            Start::Answer(answer) => answer,
        }
    }

    async fn start<T: DeserializeOwned, E: DeserializeOwned>(
        &self,
        intent: &Intent,
    ) -> Start<T, E> {
        Start::Answer(match self.begin(intent).await {
            Ok(Begin::Execute(permit)) => return Start::Execute(permit),
            Ok(Begin::Replay(replay)) => replayed(&replay),
            Ok(Begin::Reject(Rejection::Unknown { operation })) => {
                Err(RunError::Unknown { operation, error: None })
            }
            Ok(Begin::Reject(rejection)) => Err(RunError::Rejected(rejection)),
            Err(error) => Err(RunError::Begin(error)),
        })
    }
}

/// Decision before the work.
enum Start<T, E> {
    Execute(Permit),
    Answer(Result<Done<T>, RunError<E>>),
}

/// Runs the work and settles its permit by the result.
async fn finish<T: Serialize, E: Serialize>(
    permit: Permit,
    work: impl Future<Output = Result<T, Failure<E>>>,
    policy: Policy,
) -> Result<Done<T>, RunError<E>> {
    let (operation, on_lapse) = (permit.operation(), policy.on_lapse());
    match work.await.map_err(|failure| failure.classify(policy.failures())) {
        Ok(value) => {
            let settled = permit.complete(outcome_of(&value, operation)).await;
            check(settled, operation, on_lapse)?;
            Ok(Done { value, operation, replayed: false, settled })
        }
        Err((Disposition::Keep, error)) => {
            let settled = permit.fail(outcome_of(&error, operation)).await;
            check(settled, operation, on_lapse)?;
            Err(RunError::Failed { error, operation, replayed: false })
        }
        Err((Disposition::Release, error)) => {
            let _lapses_if_not_stored = permit.release().await;
            Err(RunError::Released { error })
        }
        Err((Disposition::Unknown, error)) => {
            let _lapses_if_not_stored = permit.unknown(UnknownCause::Reported(None)).await;
            Err(RunError::Unknown { operation, error: Some(error) })
        }
    }
}

/// The outcome of a result. One that cannot be serialised is omitted, and still not run again.
fn outcome_of<T: Serialize>(result: &T, operation: OperationId) -> Outcome {
    Outcome::json(result).unwrap_or_else(|error| {
        tracing::error!(%operation, %error, "the result cannot be serialised");
        Outcome::omitted(Tag::JSON, "")
    })
}

/// Checks that a settlement is the outcome that every retry will get.
fn check<E>(
    settled: Settled,
    operation: OperationId,
    on_lapse: OnLapse,
) -> Result<(), RunError<E>> {
    match settled {
        // The next owner may come to another outcome, so this one is not final.
        Settled::Pending if on_lapse == OnLapse::Takeover => {
            Err(RunError::Unknown { operation, error: None })
        }
        Settled::Durable | Settled::Pending => Ok(()),
        Settled::Superseded | Settled::Missing => Err(RunError::Superseded { operation }),
    }
}

fn replayed<T: DeserializeOwned, E: DeserializeOwned>(
    replay: &Replay,
) -> Result<Done<T>, RunError<E>> {
    let operation = replay.operation;
    let unreadable = |source| RunError::Unreadable { operation, source };
    match replay.ended {
        Ended::Completed => {
            let value = replay.outcome.read_json().map_err(unreadable)?;
            Ok(Done { value, operation, replayed: true, settled: Settled::Durable })
        }
        Ended::Failed => {
            let error = replay.outcome.read_json().map_err(unreadable)?;
            Err(RunError::Failed { error, operation, replayed: true })
        }
    }
}
