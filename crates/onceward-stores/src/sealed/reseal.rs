//! Sealing anew what earlier keys sealed.

use std::time::Duration;

use onceward_core::{Imported, Query, Record, RecordId, StoreAdmin, StoreError};

use super::Sealed;

/// A settled record never changes, but a later one of the same grant replaces it, as when
/// records move between stores. A millisecond later is later, and nobody else ever writes
/// that one.
const LATER: Duration = Duration::from_millis(1);

/// What sealing some records anew came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Records that were looked at.
    pub seen: usize,
    /// Those that are sealed with the first key since.
    pub resealed: usize,
    /// Those that do not open, or cannot be read; they are left as they are.
    pub undecodable: Vec<RecordId>,
    /// Where to go on, if there is more.
    pub next: Option<RecordId>,
}

impl<S: StoreAdmin + ?Sized> Sealed<S> {
    /// Seals outcomes anew that earlier keys have sealed, at most of `limit` records after
    /// `after`, and tells where to go on. All nodes need the first key before.
    ///
    /// Each record is replaced in one step, by itself with the same outcome in other bytes
    /// and a time of change that is a millisecond later, or stays as it is if it has moved
    /// on meanwhile. So it may be interrupted, repeated, and run while the store is in use;
    /// but not while records move to another store, where they would differ.
    pub async fn reseal(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Resealed, StoreError> {
        let page = self.inner.list(&Query { after, limit, ..Query::default() }).await?;
        let seen = page.records.len() + page.undecodable.len();
        let (undecodable, next) = (page.undecodable, page.next);
        let mut done = Resealed { seen, undecodable, next, ..Resealed::default() };
        for record in page.records.iter().filter(|record| self.is_old(record)) {
            let id = record.id;
            match self.sealed_anew(record.clone()) {
                Ok(anew) => match self.inner.import(&anew).await? {
                    Imported::Written => done.resealed += 1,
                    Imported::Kept => {}
                },
                Err(_it_does_not_open) => done.undecodable.push(id),
            }
        }
        Ok(done)
    }

    fn is_old(&self, record: &Record) -> bool {
        record.state.outcome().is_some_and(|outcome| !self.envelopes.is_current(outcome))
    }

    fn sealed_anew(&self, record: Record) -> Result<Record, StoreError> {
        let mut anew = self.seal_record(self.open_record(record)?)?;
        anew.updated_at = anew.updated_at + LATER;
        Ok(anew)
    }
}
