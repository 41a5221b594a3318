//! A bulk that has been begun: its items can be done.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::item::PlannedItem;
use super::result::{BulkDone, BulkError, ItemResult};
use crate::engine::{Engine, Grant, Permit, Rejection, Settled};
use crate::intent::{Intent, OperationId};
use crate::record::{Outcome, Replay, Tag};
use crate::run::{Done, Failure, RunError, Stored};

/// A bulk that has been begun by [`Bulk::begin`](super::Bulk::begin), and whose items can be done.
///
/// Dropped, it is left to the next sender, who can take it over when its lease has lapsed.
#[must_use = "dropped, it is left to the next sender"]
pub struct OpenBulk<I> {
    pub(super) items: Vec<PlannedItem<I>>,
    pub(super) whole: Whole,
    /// Engine of the items.
    pub(super) engine: Engine,
    pub(super) concurrency: usize,
}

/// The claim of the whole.
pub(super) enum Whole {
    /// This run holds it.
    Claimed(Permit),
    /// An earlier run has finished it.
    Finished(Replay),
}

impl<I> OpenBulk<I> {
    /// The operation of the whole, the same for every run under its key.
    pub fn operation(&self) -> OperationId {
        match &self.whole {
            Whole::Claimed(permit) => permit.operation(),
            Whole::Finished(replay) => replay.operation,
        }
    }

    /// The ids and the inputs of the items, in the order of the request.
    pub fn items(&self) -> impl ExactSizeIterator<Item = (&str, &I)> {
        self.items.iter().map(|item| (item.id.as_str(), &item.input))
    }

    /// Does every item once, by [`Engine::run`], and returns the result of each.
    ///
    /// Runs in its own task, so a caller that goes away does not stop it.
    pub async fn run<T, E, F, R>(self, work: F) -> Result<BulkDone<T, E>, BulkError>
    where
        I: Send + 'static,
        F: Fn(I, Grant) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Serialize + DeserializeOwned + Send + 'static,
    {
        let (engine, work) = (self.engine.clone(), Arc::new(work));
        self.run_each(move |input, intent| {
            let (engine, work) = (engine.clone(), Arc::clone(&work));
            async move { engine.run(&intent, |grant| work(input, grant)).await }
        })
        .await
    }

    /// Does every item once, by a function that claims the item's intent itself, and returns the
    /// result of each. In a transaction, the claim, the rows and the result of an item are one
    /// commit:
    ///
    /// ```text
    /// bulk.run_each(move |input, intent| {
    ///     let transactions = transactions.clone();
    ///     async move { transactions.transact(&intent, async |tx| write(tx, input).await).await }
    /// })
    /// ```
    ///
    /// `each` must do its work for its intent only. If it returns [`RunError::Begin`], or panics,
    /// the bulk is interrupted, and the next sender continues with the same item. Runs in its own
    /// task, so a caller that goes away does not stop it.
    pub async fn run_each<T, E, F, R>(self, each: F) -> Result<BulkDone<T, E>, BulkError>
    where
        I: Send + 'static,
        F: Fn(I, Intent) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Done<T>, RunError<E>>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Serialize + DeserializeOwned + Send + 'static,
    {
        let Self { items, whole, concurrency, .. } = self;
        let run = BulkRun { each, concurrency };
        match whole {
            Whole::Finished(replay) => {
                let operation = replay.operation;
                let unreadable = |source| BulkError::Unreadable { operation, source };
                let before = replay.outcome.read_json().map_err(unreadable)?;
                let items = run.ask_again(items, before).await?;
                Ok(BulkDone { items, operation, replayed: true })
            }
            Whole::Claimed(permit) => {
                let running = tokio::spawn(async move { run.finish(permit, items).await });
                running.await.unwrap_or_else(|_| {
                    let reason = "the task was cancelled or panicked";
                    Err(BulkError::interrupted(String::new(), reason))
                })
            }
        }
    }
}

impl<I> fmt::Debug for OpenBulk<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBulk")
            .field("operation", &self.operation())
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}

type Results<T, E> = Vec<(String, ItemResult<T, E>)>;

/// One run over the items.
struct BulkRun<F> {
    each: F,
    concurrency: usize,
}

impl<F> BulkRun<F> {
    /// Runs all items and stores the result. If it is interrupted it stores nothing: the permit is
    /// dropped, and the next sender takes over.
    async fn finish<I, T, E, R>(
        self,
        permit: Permit,
        planned: Vec<PlannedItem<I>>,
    ) -> Result<BulkDone<T, E>, BulkError>
    where
        F: Fn(I, Intent) -> R,
        R: Future<Output = Result<Done<T>, RunError<E>>>,
        T: Stored,
        E: Stored,
    {
        let (operation, grant) = (permit.operation(), permit.grant().clone());
        let items: Results<T, E> = stream::iter(planned)
            .map(|item| async {
                if let Err(lost) = grant.check() {
                    return Err(BulkError::interrupted(item.id, lost));
                }
                self.one(item).await
            })
            .buffered(self.concurrency)
            .try_collect()
            .await?;
        let outcome = Outcome::json(&items).unwrap_or_else(|error| {
            tracing::error!(%operation, %error, "the bulk's result cannot be serialised");
            Outcome::omitted(Tag::JSON, "")
        });
        let interrupted = |reason| Err(BulkError::interrupted(String::new(), reason));
        match permit.complete(outcome).await {
            Settled::Durable => Ok(BulkDone { items, operation, replayed: false }),
            Settled::Pending => interrupted("the result could not be stored"),
            Settled::Superseded | Settled::Missing => interrupted("another sender has taken over"),
        }
    }

    /// Returns an earlier run's results, after asking again about the unknown ones.
    async fn ask_again<I, T, E, R>(
        &self,
        planned: Vec<PlannedItem<I>>,
        before: Results<T, E>,
    ) -> Result<Results<T, E>, BulkError>
    where
        F: Fn(I, Intent) -> R,
        R: Future<Output = Result<Done<T>, RunError<E>>>,
    {
        stream::iter(planned.into_iter().zip(before))
            .map(|(item, (id, result))| async {
                match result {
                    ItemResult::Unknown { .. } => self.one(item).await,
                    known => Ok((id, known)),
                }
            })
            .buffered(self.concurrency)
            .try_collect()
            .await
    }

    /// Does one item, or returns its earlier result.
    async fn one<I, T, E, R>(
        &self,
        item: PlannedItem<I>,
    ) -> Result<(String, ItemResult<T, E>), BulkError>
    where
        F: Fn(I, Intent) -> R,
        R: Future<Output = Result<Done<T>, RunError<E>>>,
    {
        let PlannedItem { id, input, intent } = item;
        let result = match (self.each)(input, intent).await {
            Ok(done) => ItemResult::Succeeded { value: done.value },
            Err(RunError::Failed { error, .. }) => ItemResult::Failed { error },
            Err(RunError::Released { error }) => ItemResult::Retryable { error },
            Err(
                RunError::Unknown { operation, .. }
                | RunError::Superseded { operation }
                | RunError::Rejected(Rejection::Unknown { operation }),
            ) => ItemResult::Unknown { operation },
            Err(RunError::Unreadable { operation, source }) => {
                return Err(BulkError::Unreadable { operation, source });
            }
            Err(RunError::Rejected(rejection)) => {
                return Err(BulkError::interrupted(id, rejection));
            }
            Err(RunError::Begin(error)) => return Err(BulkError::interrupted(id, error)),
        };
        Ok((id, result))
    }
}
