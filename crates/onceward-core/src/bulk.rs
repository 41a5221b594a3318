//! Bulk commands: many items under one key, each done once however often the bulk is sent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{Begin, BeginError, Engine, Grant, Permit, Rejection, Settled};
use crate::intent::{Fingerprint, Intent, Key, OperationId, Scope};
use crate::policy::OnLapse;
use crate::record::{Outcome, Tag, Unreadable};
use crate::run::{Failure, RunError, Stored};

/// Most items in a bulk, because its result is stored as one outcome.
const ITEMS_MAX: usize = 100_000;

/// One item of a bulk command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkItem<I> {
    /// The client's name for the item, unique within the bulk.
    pub id: String,
    /// The input of the work.
    pub input: I,
}

/// Result of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ItemResult<T, E> {
    /// It succeeded, now or earlier. It is never done again.
    Succeeded {
        /// The value of the work.
        value: T,
    },
    /// It failed for good.
    Failed {
        /// The work's error.
        error: E,
    },
    /// Nothing happened. Send it again in a new bulk with a new key.
    Retryable {
        /// The work's error.
        error: E,
    },
    /// It cannot be proved what happened. Every retry of the bulk asks again.
    Unknown {
        /// The operation to look up.
        operation: OperationId,
    },
}

/// A finished bulk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkDone<T, E> {
    /// Each item's id and result, in the order of the request.
    pub items: Vec<(String, ItemResult<T, E>)>,
    /// The operation's id.
    pub operation: OperationId,
    /// True if it is replayed from an earlier run.
    pub replayed: bool,
}

/// Why a list of items is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBulk {
    /// Two items have the same id.
    #[error("the item id {id:?} occurs more than once")]
    DuplicateItem {
        /// The id.
        id: String,
    },
    /// An item's id is empty.
    #[error("the item at position {position} has an empty id")]
    UnnamedItem {
        /// Its position, counted from zero.
        position: usize,
    },
    /// The bulk has too many items.
    #[error("the bulk has {items} items; at most {ITEMS_MAX} are allowed")]
    TooMany {
        /// Their number.
        items: usize,
    },
    /// An item's input cannot be fingerprinted.
    #[error("the input of item {id:?} cannot be serialised: {reason}")]
    Unserialisable {
        /// The item's id.
        id: String,
        /// Serde's error.
        reason: String,
    },
}

/// Why a bulk has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The list of items is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidBulk),
    /// The key is in use, or was used for other items.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The engine could not decide; no item was begun.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The bulk stopped before its end. Sent again, it continues where it stopped.
    #[error("the bulk was interrupted at item {item:?}; send it again to continue: {reason}")]
    Interrupted {
        /// The item that could not be begun.
        item: String,
        /// Why not.
        reason: String,
    },
    /// The bulk was done by another release of the program, whose result this one cannot read.
    #[error("the stored result of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's id.
        operation: OperationId,
        /// The reason.
        #[source]
        source: Unreadable,
    },
}

/// A bulk command: one intent for the whole, and one for each item.
///
/// After a crash, the next sender may take the whole over, because every item is protected on its
/// own: finished items are not done again, an item that was running is unknown until there is
/// evidence, and the rest is done now.
///
/// ```
/// # use std::sync::Arc;
/// # use onceward_core::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::new(Arc::new(MemoryStore::new()));
/// let scope = Scope::new("acme", "back-office", "cases.approve")?;
/// let items = || vec![
///     BulkItem { id: "line-1".into(), input: 7 },
///     BulkItem { id: "line-2".into(), input: -1 },
/// ];
/// let approve = async |case: i32, _: Grant| -> Result<i32, Failure<String>> {
///     if case > 0 { Ok(case) } else { Err(Failure::Keep(format!("no case {case}"))) }
/// };
/// let bulk = Bulk::new(engine, scope, Key::new("bulk-17")?);
/// let done = bulk.run(items(), approve).await?;
/// assert_eq!(done.items[0].1, ItemResult::Succeeded { value: 7 });
/// assert_eq!(done.items[1].1, ItemResult::Failed { error: "no case -1".into() });
/// assert!(bulk.run(items(), approve).await?.replayed);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Bulk {
    engine: Engine,
    scope: Scope,
    key: Key,
    concurrency: usize,
    on_lapse: Option<OnLapse>,
}

impl Bulk {
    /// A bulk under one key. The engine's policy applies to each item.
    ///
    /// Its records have keys derived from this one, so it can run inside an operation with the
    /// same scope and key, such as a request that a layer guards.
    pub fn new(engine: Engine, scope: Scope, key: Key) -> Self {
        Self { engine, scope, key, concurrency: 8, on_lapse: None }
    }

    /// Rule for items that were running when the process died, instead of the policy's. With
    /// [`OnLapse::Takeover`] the next sender runs them again: only for work that checks
    /// [`Grant::fence`], or recognises [`Grant::operation`].
    #[must_use]
    pub fn on_lapse(mut self, on_lapse: OnLapse) -> Self {
        self.on_lapse = Some(on_lapse);
        self
    }

    /// Number of items that run concurrently (8).
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Does every item once, and returns the result of each.
    ///
    /// Runs in its own task, so a caller that goes away does not stop it.
    pub async fn run<I, T, E, F, R>(
        &self,
        items: Vec<BulkItem<I>>,
        work: F,
    ) -> Result<BulkDone<T, E>, BulkError>
    where
        I: Serialize + Send + 'static,
        F: Fn(I, Grant) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Serialize + DeserializeOwned + Send + 'static,
    {
        let planned = self.plan(items)?;
        let key = Key::derived(&[b"bulk", self.key.expose().as_bytes()]);
        let whole = Intent::new(self.scope.clone(), key, fingerprint(&planned));
        let bulk_run =
            BulkRun { engine: self.item_engine(), work: Arc::new(work), limit: self.concurrency };
        match self.whole_engine().begin(&whole).await? {
            Begin::Reject(rejection) => Err(BulkError::Rejected(rejection)),
            Begin::Replay(replay) => {
                let operation = replay.operation;
                let before = replay
                    .outcome
                    .read_json()
                    .map_err(|source| BulkError::Unreadable { operation, source })?;
                let items = bulk_run.ask_again(planned, before).await?;
                Ok(BulkDone { items, operation, replayed: true })
            }
            Begin::Execute(permit) => {
                let interrupted = BulkError::Interrupted {
                    item: String::new(),
                    reason: "the task was cancelled or panicked".into(),
                };
                let running = tokio::spawn(bulk_run.finish(permit, planned));
                running.await.unwrap_or(Err(interrupted))
            }
        }
    }

    fn plan<I: Serialize>(&self, items: Vec<BulkItem<I>>) -> Result<Vec<Planned<I>>, InvalidBulk> {
        if items.len() > ITEMS_MAX {
            return Err(InvalidBulk::TooMany { items: items.len() });
        }
        let mut seen = HashSet::with_capacity(items.len());
        let plan = |(position, BulkItem { id, input })| {
            if id.is_empty() {
                return Err(InvalidBulk::UnnamedItem { position });
            }
            if !seen.insert(id.clone()) {
                return Err(InvalidBulk::DuplicateItem { id });
            }
            let fingerprint = match Fingerprint::of_value(&input) {
                Ok(fingerprint) => fingerprint,
                Err(error) => {
                    return Err(InvalidBulk::Unserialisable { id, reason: error.to_string() });
                }
            };
            let key = Key::derived(&[b"bulk item", self.key.expose().as_bytes(), id.as_bytes()]);
            let intent = Intent::new(self.scope.clone(), key, fingerprint);
            Ok(Planned { id, input, intent })
        };
        items.into_iter().enumerate().map(plan).collect()
    }

    /// Takeover is safe for the whole, because its items are protected.
    fn whole_engine(&self) -> Engine {
        self.engine.reconfigured(|policy| policy.on_lapse(OnLapse::Takeover))
    }

    /// Waits for items that an earlier run is still working on.
    fn item_engine(&self) -> Engine {
        let wait = self.engine.policy().lease().min(Duration::from_secs(600));
        let on_lapse = self.on_lapse.unwrap_or(self.engine.policy().on_lapse());
        self.engine.reconfigured(|policy| policy.wait(wait).on_lapse(on_lapse))
    }
}

/// An item with its own intent.
struct Planned<I> {
    id: String,
    input: I,
    intent: Intent,
}

/// Fingerprint of the items in their order: another list is another command.
fn fingerprint<I>(planned: &[Planned<I>]) -> Fingerprint {
    let parts: Vec<&[u8]> = planned
        .iter()
        .flat_map(|item| [item.id.as_bytes(), item.intent.fingerprint.digest().as_slice()])
        .collect();
    Fingerprint::of_parts(&parts)
}

type Results<T, E> = Vec<(String, ItemResult<T, E>)>;

/// One run over the items.
struct BulkRun<F> {
    engine: Engine,
    work: Arc<F>,
    limit: usize,
}

impl<F> BulkRun<F> {
    /// Runs all items and stores the result. If it is interrupted it stores nothing: the permit is
    /// dropped, and the next sender takes over.
    async fn finish<I, T, E, R>(
        self,
        permit: Permit,
        planned: Vec<Planned<I>>,
    ) -> Result<BulkDone<T, E>, BulkError>
    where
        F: Fn(I, Grant) -> R,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Stored,
        E: Stored,
    {
        let (operation, grant) = (permit.operation(), permit.grant().clone());
        let items: Results<T, E> = stream::iter(planned)
            .map(|item| async {
                if let Err(lost) = grant.check() {
                    return Err(interrupted(item.id, lost));
                }
                self.one(item).await
            })
            .buffered(self.limit)
            .try_collect()
            .await?;
        let outcome = Outcome::json(&items).unwrap_or_else(|error| {
            tracing::error!(%operation, %error, "the bulk's result cannot be serialised");
            Outcome::omitted(Tag::JSON, "")
        });
        match permit.complete(outcome).await {
            Settled::Durable => Ok(BulkDone { items, operation, replayed: false }),
            Settled::Pending => Err(interrupted(String::new(), "the result could not be stored")),
            Settled::Superseded | Settled::Missing => {
                Err(interrupted(String::new(), "another sender has taken over"))
            }
        }
    }

    /// Returns an earlier run's results, after asking again about the unknown ones.
    async fn ask_again<I, T, E, R>(
        &self,
        planned: Vec<Planned<I>>,
        before: Results<T, E>,
    ) -> Result<Results<T, E>, BulkError>
    where
        F: Fn(I, Grant) -> R,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Stored,
        E: Stored,
    {
        stream::iter(planned.into_iter().zip(before))
            .map(|(item, (id, result))| async {
                match result {
                    ItemResult::Unknown { .. } => self.one(item).await,
                    known => Ok((id, known)),
                }
            })
            .buffered(self.limit)
            .try_collect()
            .await
    }

    /// Does one item, or returns its earlier result.
    async fn one<I, T, E, R>(
        &self,
        item: Planned<I>,
    ) -> Result<(String, ItemResult<T, E>), BulkError>
    where
        F: Fn(I, Grant) -> R,
        R: Future<Output = Result<T, Failure<E>>> + Send + 'static,
        T: Stored,
        E: Stored,
    {
        let Planned { id, input, intent } = item;
        let result = match self.engine.run(&intent, |grant| (self.work)(input, grant)).await {
            Ok(done) => ItemResult::Succeeded { value: done.value },
            Err(RunError::Failed { error, .. }) => ItemResult::Failed { error },
            Err(RunError::Released { error }) => ItemResult::Retryable { error },
            Err(RunError::Unknown { operation, .. }) => ItemResult::Unknown { operation },
            Err(RunError::Superseded { operation }) => ItemResult::Unknown { operation },
            Err(RunError::Unreadable { operation, source }) => {
                return Err(BulkError::Unreadable { operation, source });
            }
            Err(RunError::Rejected(rejection)) => {
                return Err(interrupted(id, rejection));
            }
            Err(RunError::Begin(error)) => return Err(interrupted(id, error)),
        };
        Ok((id, result))
    }
}

fn interrupted(item: String, reason: impl std::fmt::Display) -> BulkError {
    BulkError::Interrupted { item, reason: reason.to_string() }
}
