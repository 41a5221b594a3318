//! Running any async work once, with typed results.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::engine::{Begin, BeginError, Engine, Grant, Permit, Rejection, Settled};
use crate::intent::{Intent, InvalidKey, InvalidScope, OperationId};
use crate::policy::{Disposition, InvalidPolicy, OnLapse, Policy};
use crate::record::{Ended, Outcome, Replay, Tag, Unreadable};

/// A handler's error, with what it says about the effect.
///
/// `?` on a plain error makes [`Failure::Unclassified`], which the policy's
/// [`failures`](crate::PolicyBuilder::failures) decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<E> {
    /// It failed for good. Every retry gets this error.
    Keep(E),
    /// Nothing happened. The key is free, and a retry runs again.
    Release(E),
    /// Nobody knows whether it happened. It is not run again without evidence.
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

/// A success, now or from before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<T> {
    /// What the work returned, the first time.
    pub value: T,
    /// The operation's name.
    pub operation: OperationId,
    /// Whether it comes from before.
    pub replayed: bool,
    /// Whether the outcome is stored yet. [`Settled::Pending`] means that the work
    /// succeeded and its outcome is still on its way into a store that does not answer.
    pub settled: Settled,
}

/// Why [`Engine::run`] has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work failed for good, now or before; every retry gets this.
    #[error("the operation {operation} failed")]
    Failed {
        /// The work's error.
        error: E,
        /// The operation's name.
        operation: OperationId,
        /// Whether it comes from before.
        replayed: bool,
    },
    /// The work failed and nothing happened; a retry with the same key runs it again.
    #[error("the operation did not happen and may be tried again")]
    Released {
        /// The work's error.
        error: E,
    },
    /// Nobody can prove what happened.
    #[error("the outcome of operation {operation} is unknown")]
    Unknown {
        /// The operation's name.
        operation: OperationId,
        /// The work's error, if it was this call that ran it and came back with one.
        error: Option<E>,
    },
    /// The work ran, but its word does not count any more: the lease was lost and somebody
    /// else settled the matter. Ask again with the same key for the outcome that counts.
    #[error("the outcome of operation {operation} was settled by somebody else")]
    Superseded {
        /// The operation's name.
        operation: OperationId,
    },
    /// The key is taken, or was used differently.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// It could not be decided; nothing was executed.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// It was done before, by a release of the program whose result this one cannot read.
    #[error("the stored outcome of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's name.
        operation: OperationId,
        /// What is wrong with it.
        #[source]
        source: Unreadable,
    },
}

impl<E> RunError<E> {
    /// The work's own error, or else why there is none.
    ///
    /// Whether the error was kept, released or left unknown is no longer told, so this is
    /// for functions whose callers know that from the error itself.
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

/// Why a guarded function has neither a value nor an error of its own: everything in
/// [`RunError`] that is not the work's, and what makes a call impossible to guard.
///
/// An error type that takes this by `From` can be returned by a guarded function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The key is taken, or was used differently.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nobody can prove what happened. Look at the operation, do not retry blindly.
    #[error("the outcome of operation {operation} is unknown")]
    Unknown {
        /// The operation's name.
        operation: OperationId,
    },
    /// The work ran, but somebody else settled the matter. Ask again with the same key for
    /// the outcome that counts.
    #[error("the outcome of operation {operation} was settled by somebody else")]
    Superseded {
        /// The operation's name.
        operation: OperationId,
    },
    /// It could not be decided; nothing was executed.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// It was done before, and what is stored of it cannot be read as the result.
    #[error("the stored outcome of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's name.
        operation: OperationId,
        /// What is wrong with it.
        #[source]
        source: Unreadable,
    },
    /// The key is none; nothing was executed.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The tenant or the caller cannot be part of a scope; nothing was executed.
    #[error(transparent)]
    Scope(#[from] InvalidScope),
    /// The arguments have no fingerprint, because serde cannot write them; nothing was
    /// executed.
    #[error("the arguments cannot be serialised for their fingerprint; nothing was executed")]
    Arguments(#[source] serde_json::Error),
    /// The function's retention does not fit the engine's policy; nothing was executed.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
}

impl Refused {
    /// Whether the same call with the same key is safe and may get an answer.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected(Rejection::Running { .. })
            | Self::Superseded { .. }
            | Self::Begin(_) => true,
            Self::Rejected(
                Rejection::Mismatch { .. }
                | Rejection::ReferenceTaken { .. }
                | Rejection::Unknown { .. }
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

    /// When to come again, where the first attempt is still running.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(Rejection::Running { retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }

    /// The operation's name, where one is known.
    pub fn operation(&self) -> Option<OperationId> {
        match self {
            Self::Rejected(
                Rejection::Running { operation, .. } | Rejection::Unknown { operation },
            )
            | Self::Unknown { operation }
            | Self::Superseded { operation }
            | Self::Unreadable { operation, .. }
            | Self::Begin(BeginError::Rebuild { operation, .. }) => Some(*operation),
            _ => None,
        }
    }
}

/// What a result must be to be stored and replayed.
pub(crate) trait Stored: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Stored for T {}

impl Engine {
    /// Runs work once for an intent, and gives every retry the first result.
    ///
    /// The work runs in a task of its own: a caller that goes away does not cancel it. Its
    /// result is stored as JSON before it is returned. If it panics, the outcome is
    /// unknown.
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
        // A panic has dropped the permit, which makes the record unknown.
        let panicked = || Err(RunError::Unknown { operation, error: None });
        tokio::spawn(finish.in_current_span()).await.unwrap_or_else(|_| panicked())
    }

    /// As [`run`](Self::run), as a part of the caller's own future: for work that borrows,
    /// or that cannot be sent to another thread.
    ///
    /// Dropping the returned future drops the work wherever it is, and the outcome is then
    /// unknown; a panic in the work goes on to the caller, and the outcome is unknown too.
    /// Where callers come and go, as they do behind HTTP, `run` is the better choice.
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

/// What is known before the work.
enum Start<T, E> {
    Execute(Permit),
    Answer(Result<Done<T>, RunError<E>>),
}

/// Runs the work and settles what came of it.
async fn finish<T: Serialize, E: Serialize>(
    permit: Permit,
    work: impl Future<Output = Result<T, Failure<E>>>,
    policy: Policy,
) -> Result<Done<T>, RunError<E>> {
    let (operation, on_lapse) = (permit.operation(), policy.on_lapse());
    match work.await.map_err(|failure| failure.classify(policy.failures())) {
        Ok(value) => {
            let settled = permit.complete(kept(&value, operation)).await;
            counts(settled, operation, on_lapse)?;
            Ok(Done { value, operation, replayed: false, settled })
        }
        Err((Disposition::Keep, error)) => {
            let settled = permit.fail(kept(&error, operation)).await;
            counts(settled, operation, on_lapse)?;
            Err(RunError::Failed { error, operation, replayed: false })
        }
        Err((Disposition::Release, error)) => {
            let _lapses_if_it_never_lands = permit.release().await;
            Err(RunError::Released { error })
        }
        Err((Disposition::Unknown, error)) => {
            let _lapses_if_it_never_lands = permit.unknown().await;
            Err(RunError::Unknown { operation, error: Some(error) })
        }
    }
}

/// A result as it is stored. That one cannot be written must not free what happened.
fn kept<T: Serialize>(result: &T, operation: OperationId) -> Outcome {
    Outcome::json(result).unwrap_or_else(|error| {
        tracing::error!(%operation, %error, "the result cannot be serialised");
        Outcome::omitted(Tag::JSON, "")
    })
}

/// Whether a settlement is the outcome that every retry will get.
fn counts<E>(
    settled: Settled,
    operation: OperationId,
    on_lapse: OnLapse,
) -> Result<(), RunError<E>> {
    match settled {
        // Whoever takes over may come to another outcome, so this one is not final yet.
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
