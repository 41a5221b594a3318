//! The sweeper: removes expired records in small chunks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::archive::{Archive, Archiving, PurgeError, Purger};
use crate::clock::Clock;
use crate::store::{Effect, Purged, StoreAdmin, StoreError, StoreErrorKind};

/// Time limit of one chunk, longer than any store's own. Without it, one lost reply would stop the
/// sweeper for good.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(120);

/// Removes expired records in chunks, so that no call blocks the store for long.
///
/// Never touches running or unknown records. Retries after errors. Pauses while the wall clock
/// and the monotonic clock disagree about the time since the start: a wall clock that jumped
/// forward must not delete records within their retention. Restart after checking the clock.
///
/// With an [`Archive`], records are removed only once they are in it.
pub struct Sweeper {
    purger: Purger,
    clock: Arc<dyn Clock>,
    settings: SweeperSettings,
    report: Box<dyn Fn(&SweeperRound) + Send + Sync>,
}

/// Settings of a [`Sweeper`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweeperSettings {
    /// Pause between rounds.
    pub every: Duration,
    /// Most records in one call: small enough that claims between calls do not wait.
    pub chunk: usize,
    /// Largest difference of the clocks at which records are removed.
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

/// Report of a [`Sweeper`] round.
#[derive(Debug)]
pub enum SweeperRound {
    /// It removed these records.
    Removed(Purged),
    /// The wall clock and the monotonic clock disagree; nothing was removed.
    ClockJumped {
        /// Their difference.
        by: Duration,
    },
    /// The store failed. Records removed before stay removed.
    Failed(StoreError),
    /// The archive failed, or is missing. Records removed before are in it, the others stay.
    NotArchived(PurgeError),
}

impl SweeperRound {
    /// Writes a log line, as a sweeper without another [`report`](Sweeper::report) does.
    pub fn log(&self) {
        match self {
            Self::Removed(purged) => tracing::debug!(?purged, "sweeper round"),
            Self::ClockJumped { by } => {
                tracing::error!(?by, "the wall clock jumped, expired records are not removed");
            }
            Self::Failed(error) => {
                tracing::warn!(%error, "the sweeper's round failed, will retry");
            }
            Self::NotArchived(error) => {
                tracing::error!(%error, "expired records are not archived, so they are not removed");
            }
        }
    }
}

impl Sweeper {
    /// A sweeper of a store. The clock is the wall clock that is checked for jumps.
    pub fn new(store: Arc<dyn StoreAdmin>, clock: Arc<dyn Clock>) -> Self {
        Self::of(Purger::new(store, Archiving::Unset), clock)
    }

    /// A sweeper that removes records by this purger.
    pub fn of(purger: Purger, clock: Arc<dyn Clock>) -> Self {
        Self {
            purger,
            clock,
            settings: SweeperSettings::default(),
            report: Box::new(SweeperRound::log),
        }
    }

    /// Archives records before they are removed. The engines on the store need
    /// [`keep_expired`](crate::PolicyBuilder::keep_expired), so that no claim replaces a record that
    /// is not archived yet.
    #[must_use]
    pub fn archive(self, archive: Arc<dyn Archive>) -> Self {
        Self { purger: self.purger.archiving(Archiving::To(archive)), ..self }
    }

    /// Replaces the default settings.
    #[must_use]
    pub fn settings(mut self, settings: SweeperSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Reports each round to a function instead of the log.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&SweeperRound) + Send + Sync + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// Runs rounds forever. Stop it at any time by dropping the future or aborting its task.
    pub async fn run(self) {
        let (wall, monotonic) = (self.clock.now(), Instant::now());
        loop {
            tokio::time::sleep(self.settings.every).await;
            let (expected, shown) = (wall + monotonic.elapsed(), self.clock.now());
            let by = expected.until(shown).max(shown.until(expected));
            let swept = if by > self.settings.clock_tolerance {
                SweeperRound::ClockJumped { by }
            } else {
                self.round().await
            };
            (self.report)(&swept);
        }
    }

    /// Runs one round: chunk after chunk until no more records are due.
    async fn round(&self) -> SweeperRound {
        let mut total = Purged::default();
        loop {
            let purge = timeout(CHUNK_TIMEOUT, self.purger.purge(self.settings.chunk));
            match purge.await.unwrap_or_else(|_| Err(never_answered().into())) {
                Err(PurgeError::Store(error)) => return SweeperRound::Failed(error),
                Err(error) => return SweeperRound::NotArchived(error),
                Ok(purged) => {
                    total.removed += purged.removed;
                    total.tombstoned += purged.tombstoned;
                    if !purged.more {
                        return SweeperRound::Removed(total);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

fn never_answered() -> StoreError {
    StoreError::new("sweeper", StoreErrorKind::Timeout, Effect::MayHaveBeenApplied)
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").field("settings", &self.settings).finish_non_exhaustive()
    }
}
