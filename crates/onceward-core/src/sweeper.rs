//! Removing what is past its time, a little at a time, for ever.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::store::{Purged, StoreAdmin, StoreError};

/// Removes expired records in chunks, so that no call holds the store up for long.
///
/// Never touches running or unknown records. Goes on after errors. Stands still while the
/// wall clock disagrees with the monotonic one since the start: a clock that jumped forward
/// must not delete what is still promised, so a person looks and restarts.
pub struct Sweeper {
    store: Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    settings: SweeperSettings,
    report: Box<dyn Fn(&Swept) + Send + Sync>,
}

/// How a [`Sweeper`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweeperSettings {
    /// How long to rest when nothing is due.
    pub every: Duration,
    /// Most records a call: small enough that claims between calls do not wait.
    pub chunk: usize,
    /// By how much the clocks may come to disagree before nothing is removed any more.
    pub clock_tolerance: Duration,
}

impl Default for SweeperSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            chunk: 1_000,
            clock_tolerance: Duration::from_secs(60),
        }
    }
}

/// What one round of sweeping came to.
#[derive(Debug)]
pub enum Swept {
    /// That much was removed.
    Removed(Purged),
    /// The wall clock moved differently from the monotonic one; nothing was removed.
    ClockJumped {
        /// By how much they disagree.
        by: Duration,
    },
    /// The store failed; what was removed before stays removed.
    Failed(StoreError),
}

impl Sweeper {
    /// A sweeper of a store, judging jumps by the given wall clock.
    pub fn new(store: Arc<dyn StoreAdmin>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            settings: SweeperSettings::default(),
            report: Box::new(|swept| match swept {
                Swept::Removed(purged) => tracing::debug!(?purged, "swept"),
                Swept::ClockJumped { by } => tracing::error!(?by, "clock jumped, not sweeping"),
                Swept::Failed(error) => tracing::warn!(%error, "sweeping failed, will go on"),
            }),
        }
    }

    /// Other settings than the defaults.
    #[must_use]
    pub fn settings(mut self, settings: SweeperSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Whom to tell after each round, instead of the log.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&Swept) + Send + Sync + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// Sweeps for ever. Stop it by dropping the future or aborting its task; nothing is
    /// lost by that.
    pub async fn run(self) {
        let (wall, monotonic) = (self.clock.now(), Instant::now());
        loop {
            tokio::time::sleep(self.settings.every).await;
            let (expected, shown) = (wall + monotonic.elapsed(), self.clock.now());
            let by = expected.until(shown).max(shown.until(expected));
            let swept = if by > self.settings.clock_tolerance {
                Swept::ClockJumped { by }
            } else {
                self.round().await
            };
            (self.report)(&swept);
        }
    }

    /// One round: chunk after chunk until nothing more is due.
    async fn round(&self) -> Swept {
        let mut total = Purged::default();
        loop {
            match self.store.purge(self.settings.chunk).await {
                Err(error) => return Swept::Failed(error),
                Ok(purged) => {
                    total.removed += purged.removed;
                    total.tombstoned += purged.tombstoned;
                    if !purged.more {
                        return Swept::Removed(total);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").field("settings", &self.settings).finish_non_exhaustive()
    }
}
