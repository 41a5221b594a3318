//! The two stores, and the charter in them.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Effect, FullStore, Imported, StoreError, StoreErrorKind};
use tokio::time::{Instant, timeout};

use super::charter::{Charter, Place, Reign, Side};
use super::error::DualProblem;

/// How often a change of the charter is tried that others get ahead of.
const TRIES: usize = 64;

/// Operators' reads may take a minute; this one is made for calls, whose engine waits 2 s.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The stores of a move.
pub(super) struct Seats {
    pub(super) old: Arc<dyn FullStore>,
    pub(super) new: Arc<dyn FullStore>,
    pub(super) place: Place,
}

/// A charter, and when it was asked for: it was in force at some time after that.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) charter: Charter,
    pub(super) asked: Instant,
}

impl Seats {
    pub(super) fn store(&self, side: Side) -> &Arc<dyn FullStore> {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }

    /// The charter that a store has.
    pub(super) async fn read(&self, side: Side) -> Result<Option<Heard>, StoreError> {
        let asked = Instant::now();
        let reading = timeout(READ_TIMEOUT, self.store(side).get(&self.place.id)).await;
        let late = |_| StoreError::new("dual", StoreErrorKind::Timeout, Effect::NotApplied);
        let Some(record) = reading.map_err(late)?? else { return Ok(None) };
        let charter = Charter::read(&record, side).map_err(|it| it.error(Effect::NotApplied))?;
        Ok(Some(Heard { charter, asked }))
    }

    /// Gives a store the charter, unless it has a later one.
    pub(super) async fn write(&self, side: Side, it: &Charter) -> Result<Imported, StoreError> {
        self.store(side).import(&it.record(&self.place, side)).await
    }

    /// Changes the charter where it counts: in the store of the authority that reigns. `change`
    /// may be asked several times, and refuses by `None`; then the charter as it is comes back.
    pub(super) async fn amend(
        &self,
        authority: Side,
        reign: Reign,
        change: impl Fn(&Charter) -> Option<Charter> + Send,
    ) -> Result<Result<Heard, Charter>, StoreError> {
        for _ in 0..TRIES {
            let lost = || DualProblem::Lost.error(Effect::NotApplied);
            let Heard { charter, .. } = self.read(authority).await?.ok_or_else(lost)?;
            if charter.reign != reign {
                return Err(DualProblem::Moved.error(Effect::NotApplied));
            }
            let Some(next) = change(&charter) else { return Ok(Err(charter)) };
            let next = Charter { term: charter.term + 1, ..next.next() };
            let asked = Instant::now();
            if self.wrote(authority, &next).await? {
                return Ok(Ok(Heard { charter: next, asked }));
            }
        }
        Err(DualProblem::Contended.error(Effect::NotApplied))
    }

    /// Whether this very charter was written; where the reply is lost it is looked for.
    async fn wrote(&self, side: Side, next: &Charter) -> Result<bool, StoreError> {
        match self.write(side, next).await {
            Ok(Imported::Written) => Ok(true),
            Ok(Imported::Kept) => Ok(false),
            Err(error) if !error.may_have_been_applied() => Err(error),
            // If it has not come by now, and comes later, then somebody else's term is there
            // already, or this one's writer has not gone on because of it.
            Err(error) => match self.read(side).await? {
                Some(Heard { charter, .. }) if charter.writer == next.writer => Ok(true),
                Some(Heard { charter, .. }) if charter.term >= next.term => Ok(false),
                _ => Err(error),
            },
        }
    }
}
