//! The two stores of a move, and the authority record in them.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Effect, FullStore, Imported, StoreError, StoreErrorKind};
use tokio::time::{Instant, timeout};

use super::authority_record::{AuthorityRecord, ReservedRecord, Side, Term};
use super::error::DualProblem;

/// How often a change of the authority record is tried again after another process came first.
const TRIES: usize = 64;

/// Reads by operators may take a minute; this one is part of a call, whose engine waits 2 s.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The two stores of a move.
pub(super) struct Replicas {
    pub(super) old: Arc<dyn FullStore>,
    pub(super) new: Arc<dyn FullStore>,
    /// Where both keep the authority record.
    pub(super) reserved: ReservedRecord,
}

/// An authority record, and when its read was sent: it was in force at some time after that.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) record: AuthorityRecord,
    pub(super) asked: Instant,
}

impl Replicas {
    pub(super) fn store(&self, side: Side) -> &Arc<dyn FullStore> {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }

    /// Reads the authority record of a store.
    pub(super) async fn read(&self, side: Side) -> Result<Option<Observed>, StoreError> {
        let asked = Instant::now();
        let reading = timeout(READ_TIMEOUT, self.store(side).get(&self.reserved.id)).await;
        let late = |_| StoreError::new("dual", StoreErrorKind::Timeout, Effect::NotApplied);
        let Some(record) = reading.map_err(late)?? else { return Ok(None) };
        let record =
            AuthorityRecord::read(&record, side).map_err(|it| it.error(Effect::NotApplied))?;
        Ok(Some(Observed { record, asked }))
    }

    /// Writes the authority record into a store, unless the store has a later one.
    pub(super) async fn write(
        &self,
        side: Side,
        record: &AuthorityRecord,
    ) -> Result<Imported, StoreError> {
        self.store(side).import(&record.to_record(&self.reserved, side)).await
    }

    /// Changes the authority record where it counts: in the store that is the authority in this
    /// term. `change` may be called several times. Where it returns `None`, nothing changes and
    /// the current record is returned as the inner error.
    pub(super) async fn amend(
        &self,
        authority: Side,
        term: Term,
        change: impl Fn(&AuthorityRecord) -> Option<AuthorityRecord> + Send,
    ) -> Result<Result<Observed, AuthorityRecord>, StoreError> {
        for _ in 0..TRIES {
            let lost = || DualProblem::Lost.error(Effect::NotApplied);
            let Observed { record, .. } = self.read(authority).await?.ok_or_else(lost)?;
            if record.term != term {
                return Err(DualProblem::AuthorityChanged.error(Effect::NotApplied));
            }
            let Some(next) = change(&record) else { return Ok(Err(record)) };
            let next = AuthorityRecord { revision: record.revision + 1, ..next.next() };
            let asked = Instant::now();
            if self.wrote(authority, &next).await? {
                return Ok(Ok(Observed { record: next, asked }));
            }
        }
        Err(DualProblem::Contended.error(Effect::NotApplied))
    }

    /// Writes exactly this revision, and returns whether that succeeded. If the reply is lost,
    /// the store is read.
    async fn wrote(&self, side: Side, next: &AuthorityRecord) -> Result<bool, StoreError> {
        match self.write(side, next).await {
            Ok(Imported::Written) => Ok(true),
            Ok(Imported::Kept) => Ok(false),
            Err(error) if !error.may_have_been_applied() => Err(error),
            // A write that arrives after this read does no harm: either another process's
            // revision is there first, or this process stops because of the error.
            Err(error) => match self.read(side).await? {
                Some(Observed { record, .. }) if record.writer == next.writer => Ok(true),
                Some(Observed { record, .. }) if record.revision >= next.revision => Ok(false),
                _ => Err(error),
            },
        }
    }
}
