//! Records that are running or unknown, in memory: for the counts, which tell lapsed leases and the
//! oldest unknown record.

use std::collections::hash_map::Entry as Slot;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_core::{Record, RecordId, StateName, Stats, StoreError, Timestamp};
use parking_lot::Mutex;

use super::recent_changes::IdMap;
use super::shared::{Shared, unreadable};
use super::tally::Tally;

/// The open records of this boot, and those of earlier boots once they were searched for.
///
/// Earlier ones are all unknown. The tally counts them but does not name them, so if there are any,
/// the first count after an opening reads all records.
#[derive(Debug, Default)]
pub(super) struct OpenRecords {
    records: Mutex<IdMap<OpenRecord>>,
    /// True if there are unknown records of earlier boots that were not searched for yet.
    earlier: AtomicBool,
    /// Held by the one search.
    searching: Mutex<()>,
}

#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    /// `None` for an unknown one.
    lease_until: Option<Timestamp>,
    updated_at: Timestamp,
}

impl OpenRecords {
    /// Begins with the counters of a new boot.
    pub(super) fn new(tally: &Tally) -> Self {
        let earlier = AtomicBool::new(tally.by_state[StateName::Unknown as usize] > 0);
        Self { earlier, ..Self::default() }
    }

    /// Notes records that have changed and are in the tree.
    pub(super) fn note<'a>(&self, changed: impl Iterator<Item = (RecordId, Option<&'a Record>)>) {
        let mut records = self.records.lock();
        for (id, record) in changed {
            match record.filter(|record| record.state.is_open()) {
                Some(record) => {
                    let (lease_until, updated_at) = (record.state.lease_until(), record.updated_at);
                    records.insert(id, OpenRecord { lease_until, updated_at });
                }
                None => drop(records.remove(&id)),
            }
        }
    }

    /// Searches once for the unknown records of earlier boots.
    pub(super) fn find_earlier(&self, shared: &Shared) -> Result<(), StoreError> {
        if !self.earlier.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one_search = self.searching.lock();
        if !self.earlier.load(Ordering::Acquire) {
            return Ok(());
        }
        for entry in shared.tree.records(None) {
            let entry = entry.map_err(unreadable)?;
            let id = entry.id;
            // An undecodable record is counted by the tally, and has no time.
            if shared.decode(entry).is_ok_and(|found| found.state == StateName::Unknown) {
                self.add_earlier(shared, id)?;
            }
        }
        self.earlier.store(false, Ordering::Release);
        Ok(())
    }

    /// Adds a record, if it is still unknown. Read again under the lock: a change is in the tree
    /// before it is noted, so one that this read misses is noted afterwards.
    fn add_earlier(&self, shared: &Shared, id: RecordId) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let found = shared.read(&id)?.filter(|found| found.state == StateName::Unknown);
        if let (Slot::Vacant(slot), Some(found)) = (records.entry(id), found) {
            slot.insert(OpenRecord { lease_until: None, updated_at: found.record.updated_at });
        }
        Ok(())
    }

    /// Corrects counts by stored state.
    pub(super) fn correct(&self, stats: &mut Stats, now: Timestamp) {
        for record in self.records.lock().values() {
            stats.correct_open(record.lease_until, record.updated_at, now);
        }
    }
}
