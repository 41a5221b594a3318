//! Bulk commands: many items under one key, each done once however often the bulk is sent.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Bulk`]: its settings, and how it is begun |
//! | `open_bulk` | [`OpenBulk`]: one run over the items |
//! | `item` | the items, their intents, and invalid lists |
//! | `result` | results of the items and of the whole |

mod item;
mod open_bulk;
mod result;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Begin, Engine, Grant};
use crate::intent::{Key, Scope};
use crate::policy::OnLapse;
use crate::run::Failure;

pub use item::{BulkItem, InvalidBulk};
pub use open_bulk::OpenBulk;
pub use result::{BulkDone, BulkError, ItemResult};

use open_bulk::Whole;

/// Most items in a bulk by default, because its result is stored as one outcome.
const ITEMS_MAX: usize = 100_000;

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
    items_max: usize,
}

impl Bulk {
    /// A bulk under one key. The engine's policy applies to each item.
    ///
    /// Its records have keys derived from this one, so it can run inside an operation with the
    /// same scope and key, such as a request that a layer guards.
    pub fn new(engine: Engine, scope: Scope, key: Key) -> Self {
        Self { engine, scope, key, concurrency: 8, on_lapse: None, items_max: ITEMS_MAX }
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

    /// Limits the number of items (100,000). The result of a bulk is stored as one outcome.
    #[must_use]
    pub fn items_max(mut self, items_max: usize) -> Self {
        self.items_max = items_max;
        self
    }

    /// Does every item once, and returns the result of each: [`begin`](Self::begin), and
    /// [`OpenBulk::run`].
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
        self.begin(items).await?.run(work).await
    }

    /// Claims the whole, or finds that an earlier run has finished it. No item has begun, so the
    /// caller can store the list of items under [`OpenBulk::operation`] before it runs them.
    pub async fn begin<I: Serialize>(
        &self,
        items: Vec<BulkItem<I>>,
    ) -> Result<OpenBulk<I>, BulkError> {
        let items = item::plan(&self.scope, &self.key, items, self.items_max)?;
        let intent = item::whole(&self.scope, &self.key, &items);
        let whole = match self.whole_engine().begin(&intent).await? {
            Begin::Reject(rejection) => return Err(BulkError::Rejected(rejection)),
            Begin::Replay(replay) => Whole::Finished(replay),
            Begin::Execute(permit) => Whole::Claimed(permit),
        };
        let (engine, concurrency) = (self.item_engine(), self.concurrency);
        Ok(OpenBulk { items, whole, engine, concurrency })
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
