//! The truth table as a store with its inside open: the model that other stores are
//! compared with, and the ground that mutants are planted in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::machine::{self, Next, Step};
use onceward_core::{
    Claim, ClaimRequest, Clock, Due, Fence, Fenced, Holder, Imported, InvalidateRequest, Lease,
    Page, Purged, Query, Record, RecordId, RecordVersion, RenewRequest, ResolveRequest,
    SettleRequest, State, StateName, Stats, Store, StoreAdmin, StoreError, Timestamp, UnknownCause,
};
use parking_lot::Mutex;

/// A bug that was seen in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreMutant {
    /// Every settlement is applied, from any owner.
    OwnerCheckDropped,
    /// The in-progress mark vanishes by its time to live.
    MarkerDeletedByTtl,
    /// Every renewal extends the lease: a late one, and one of another owner.
    StaleRenewalAccepted,
    /// A second request under the key is answered with the first one's outcome.
    FingerprintIgnored,
    /// An owner that took over may release the key. The simulator found this one in the
    /// engine's own withdrawal of claims.
    TakeoverForgotten,
    /// Evidence about one grant settles the record under any fence.
    EvidenceFenceIgnored,
    /// A late renewal stores the lapse, so that the claim cannot be taken over. A reviewer found
    /// this one in the truth table.
    LateRenewalBlocks,
}

/// The truth table over an ordered map.
pub struct OpenStore {
    records: Mutex<BTreeMap<RecordId, Record>>,
    forgotten: Mutex<Fence>,
    clock: Arc<dyn Clock>,
    mutant: Option<StoreMutant>,
}

impl OpenStore {
    /// An empty store that follows the truth table.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { records: Mutex::default(), forgotten: Mutex::default(), clock, mutant: None }
    }

    /// An empty store with one bug.
    pub fn mutated(clock: Arc<dyn Clock>, mutant: StoreMutant) -> Self {
        Self { mutant: Some(mutant), ..Self::new(clock) }
    }

    fn step<A>(
        &self,
        id: &RecordId,
        step: impl FnOnce(&mut BTreeMap<RecordId, Record>, Timestamp) -> Step<A>,
    ) -> A {
        let mut records = self.records.lock();
        let Step { answer, next } = step(&mut records, self.clock.now());
        match next.written(records.get(id)) {
            None => {}
            Some(Some(record)) => {
                records.insert(*id, *record);
            }
            Some(None) => {
                records.remove(id);
            }
        }
        answer
    }

    /// Writes what a sweep makes of a record.
    fn sweep(
        &self,
        records: &mut BTreeMap<RecordId, Record>,
        id: RecordId,
        next: Next,
        purged: &mut Purged,
    ) {
        match next {
            Next::Put(record) => {
                records.insert(id, *record);
                purged.tombstoned += 1;
            }
            _ => {
                let gone = records.remove(&id).map_or(Fence(0), |record| record.fence);
                let mut forgotten = self.forgotten.lock();
                *forgotten = (*forgotten).max(gone);
                purged.removed += 1;
            }
        }
    }

    fn is(&self, mutant: StoreMutant) -> bool {
        self.mutant == Some(mutant)
    }
}

#[async_trait]
impl Store for OpenStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut request = request.clone();
        Ok(self.step(&request.id.clone(), |records, now| {
            let old = records.get(&request.id).cloned();
            if let Some(record) = &old {
                let running = record.state.name() == StateName::Running;
                let lapsed = running && record.standing(now) == Some(StateName::Unknown);
                if self.is(StoreMutant::MarkerDeletedByTtl) && lapsed {
                    return machine::claim(None, &request, Fence(0), now);
                }
                if self.is(StoreMutant::FingerprintIgnored) {
                    request.fingerprint = record.fingerprint;
                }
            }
            machine::claim(old.as_ref(), &request, *self.forgotten.lock(), now)
        }))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        Ok(self.step(&request.id, |records, now| {
            let Some(record) = records.get_mut(&request.id) else {
                return machine::renew(None, request, now);
            };
            if self.is(StoreMutant::StaleRenewalAccepted) && record.state.retained().is_none() {
                record.state = State::Running { lease_until: now + request.lease };
                let lease = Lease { fence: record.fence, until: now + request.lease };
                return Step { answer: Fenced::Applied(lease), next: Next::Same };
            }
            let late = record.standing(now) == Some(StateName::Unknown);
            if self.is(StoreMutant::LateRenewalBlocks) && late {
                record.state = State::Unknown { cause: UnknownCause::Lapsed };
            }
            machine::renew(Some(record), request, now)
        }))
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let mut request = request.clone();
        Ok(self.step(&request.id.clone(), |records, now| {
            let record = records.get(&request.id);
            if self.is(StoreMutant::OwnerCheckDropped)
                && let Some(record) = record
            {
                request.holder = Holder { owner: record.owner, fence: record.fence };
            }
            let mut record = record.cloned();
            if self.is(StoreMutant::TakeoverForgotten)
                && let Some(record) = &mut record
            {
                record.taken_over = false;
            }
            machine::settle(record.as_ref(), &request, now)
        }))
    }
}

#[async_trait]
impl StoreAdmin for OpenStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        Ok(self.records.lock().get(id).cloned())
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let (records, now) = (self.records.lock(), self.clock.now());
        let mut found: Vec<Record> = records
            .values()
            .filter(|record| query.after.is_none_or(|after| record.id > after))
            .filter(|record| query.matches(record, now))
            .take(query.page_size() + 1)
            .cloned()
            .collect();
        let more = found.len() > query.page_size();
        found.truncate(query.page_size());
        let next = found.last().filter(|_| more).map(|record| record.id);
        Ok(Page { records: found, next, ..Page::default() })
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let mut request = request.clone();
        Ok(self.step(&request.id.clone(), |records, now| {
            let record = records.get(&request.id);
            if self.is(StoreMutant::EvidenceFenceIgnored)
                && let Some(record) = record
            {
                request.fence = record.fence;
            }
            machine::resolve(record, &request, now)
        }))
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        Ok(self.step(&request.id, |records, now| {
            machine::invalidate(records.get(&request.id), request, now)
        }))
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        let (mut records, now) = (self.records.lock(), self.clock.now());
        let due: Vec<_> = records
            .values()
            .map(|record| (record.id, machine::sweep(record, now)))
            .filter(|(_, next)| *next != Next::Same)
            .collect();
        let mut purged = Purged { more: due.len() > limit, ..Purged::default() };
        for (id, next) in due.into_iter().take(limit) {
            self.sweep(&mut records, id, next, &mut purged);
        }
        Ok(purged)
    }

    fn archives(&self) -> bool {
        true
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let (records, now) = (self.records.lock(), self.clock.now());
        let due = records.values().filter(|record| machine::sweep(record, now) != Next::Same);
        let mut due: Vec<Record> = due.take(limit + 1).cloned().collect();
        let more = due.len() > limit;
        due.truncate(limit);
        Ok(Due { records: due, more })
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        let (mut records, now) = (self.records.lock(), self.clock.now());
        let mut purged = Purged::default();
        for version in versions {
            let Some(record) = records.get(&version.id) else { continue };
            match machine::sweep_version(record, version, now) {
                Next::Same => {}
                next => self.sweep(&mut records, version.id, next, &mut purged),
            }
        }
        Ok(purged)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let (records, now) = (self.records.lock(), self.clock.now());
        let mut stats = Stats { records: records.len() as u64, ..Stats::default() };
        for record in records.values() {
            stats.bytes += record.bytes() as u64;
            stats.by_state[record.state.name() as usize] += 1;
        }
        for record in records.values().filter(|record| record.state.is_open()) {
            stats.correct_open(record.state.lease_until(), record.updated_at, now);
        }
        Ok(stats)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        Ok(self.step(&record.id, |records, _| machine::import(records.get(&record.id), record)))
    }
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStore").field("mutant", &self.mutant).finish_non_exhaustive()
    }
}
