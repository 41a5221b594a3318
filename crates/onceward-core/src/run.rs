//! Running any async work once, with typed results.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Begin, BeginError, Ended, Engine, Grant, Permit, Rejection, Replay, Settled};
use crate::ids::OperationId;
use crate::intent::Intent;
use crate::outcome::{Outcome, Unreadable};
use crate::policy::{Disposition, OnLapse, Policy};

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
        match self.begin(intent).await? {
            Begin::Replay(replay) => replayed(&replay),
            Begin::Reject(Rejection::Unknown { operation }) => {
                Err(RunError::Unknown { operation, error: None })
            }
            Begin::Reject(rejection) => Err(RunError::Rejected(rejection)),
            Begin::Execute(permit) => {
                let operation = permit.operation();
                let work = work(permit.grant().clone());
                let running = tokio::spawn(finish(permit, work, self.policy().clone()));
                // A panic has dropped the permit, which makes the record unknown.
                running.await.unwrap_or(Err(RunError::Unknown { operation, error: None }))
            }
        }
    }
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
            let settled = match Outcome::json(&value) {
                Ok(outcome) => permit.complete(outcome).await,
                Err(error) => {
                    // The effect happened; that its result cannot be kept must not free it.
                    tracing::error!(%operation, %error, "the result cannot be serialised");
                    permit.complete(Outcome::omitted(crate::Tag::JSON, "")).await
                }
            };
            counts(settled, operation, on_lapse)?;
            Ok(Done { value, operation, replayed: false, settled })
        }
        Err((Disposition::Keep, error)) => {
            let settled = match Outcome::json(&error) {
                Ok(outcome) => permit.fail(outcome).await,
                Err(_) => permit.fail(Outcome::omitted(crate::Tag::JSON, "")).await,
            };
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
