//! Sealing again with a new key.

use std::time::Duration;

use onceward_core::{Imported, Query, Record, RecordId, StoreAdmin, StoreError};

use super::SealedStore;

/// A settled record changes only when a later one of the same grant replaces it, as when records
/// move between stores. A time of change that is a millisecond later makes it later, and no other
/// code writes that time.
const LATER: Duration = Duration::from_millis(1);

/// The result of resealing some records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Records that were read.
    pub seen: usize,
    /// Records that are now sealed with the first key.
    pub resealed: usize,
    /// Records that cannot be read or do not open. They stay as they are.
    pub undecodable: Vec<RecordId>,
    /// The next `after`, if there are more records.
    pub next: Option<RecordId>,
}

impl<S: StoreAdmin + ?Sized> SealedStore<S> {
    /// Seals outcomes again that earlier keys have sealed: of at most `limit` records after
    /// `after`. Returns where to continue. All nodes need the first key before.
    ///
    /// Each record is replaced in one step by itself, with the same outcome in other bytes and a
    /// time of change that is a millisecond later. A record that changes meanwhile stays as it is.
    /// So resealing may be interrupted and repeated, and may run while the store is in use; but not
    /// while records move to another store, where they would differ.
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
        let outcome = record.state.outcome().filter(|outcome| !outcome.is_invalidated());
        outcome.is_some_and(|outcome| !self.envelopes.is_current(outcome))
    }

    fn sealed_anew(&self, record: Record) -> Result<Record, StoreError> {
        let mut anew = self.seal_record(self.open_record(record)?)?;
        anew.updated_at = anew.updated_at + LATER;
        Ok(anew)
    }
}
