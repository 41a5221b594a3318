//! The memory store: fast, bounded, and gone with the process.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `MemoryStore`: shards, limits, both store traits |
//! | `shard` | a table of records, with buckets by the time they are due |

mod shard;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::machine::{self, Step};
use super::{
    Claim, ClaimRequest, Effect, Fenced, Imported, InvalidateRequest, Lease, Page, Purged, Query,
    RenewRequest, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin, StoreError,
    StoreErrorKind,
};
use crate::clock::{Clock, SystemAmbient, Timestamp};
use crate::intent::{Fingerprint, RecordId};
use crate::per_thread::CachePadded;
use crate::record::{Fence, Record, Replay};
use shard::{Shard, ShardSize};

/// Enough that two threads rarely meet at one lock, few enough that an empty store is small.
const SHARDS: usize = 64;

/// Limits above which a [`MemoryStore`] refuses new claims. A large limit may be exceeded by a
/// sixty-fourth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Most records. With small outcomes a record takes about half a kilobyte.
    pub records_max: u64,
    /// Most bytes, outcomes included. New claims are refused at 15/16 of it, so that running
    /// operations can still be completed.
    pub bytes_max: u64,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { records_max: 2_000_000, bytes_max: 1 << 30 }
    }
}

/// Keeps records in memory, in shards behind locks that are never held across an await.
///
/// Durability: none. A restart forgets everything, so it is for tests, for caches of
/// harmless work, and for a single process that may repeat work after a crash.
/// [`StoreAdmin::purge`] removes expired records without visiting the others.
pub struct MemoryStore {
    shards: Box<[CachePadded<Mutex<Shard>>; SHARDS]>,
    limits: MemoryLimits,
    clock: Arc<dyn Clock>,
    /// Change of size that a shard keeps to itself, so that not every claim writes the total that
    /// all claims read.
    report_above: ShardSize,
    total: CachePadded<TotalSize>,
    purge_from: AtomicUsize,
    /// Highest fence of all removed records.
    forgotten: AtomicU64,
}

/// Sum of the sizes that the shards have reported.
#[derive(Debug, Default)]
struct TotalSize {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with(MemoryLimits::default(), Arc::new(SystemAmbient::new()))
    }

    /// An empty store with the given limits and clock.
    pub fn with(limits: MemoryLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            shards: Box::new(std::array::from_fn(|_| CachePadded::default())),
            limits,
            clock,
            report_above: report_above(limits),
            total: CachePadded::default(),
            purge_from: AtomicUsize::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Takes one step of the machine on one record, under its shard's lock, at a time that is read
    /// under the lock.
    fn step<A>(
        &self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>, Timestamp) -> Step<A>,
    ) -> A {
        let mut shard = self.shard(id).lock();
        let answer = shard.step(id, |record| step(record, self.clock.now()));
        self.count(&mut shard);
        answer
    }

    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        // Other bits of the id than the tables inside the shards use.
        &self.shards[usize::from(id.as_bytes()[8]) % SHARDS].0
    }

    fn count(&self, shard: &mut Shard) {
        let Some(ShardSize { records, bytes }) = shard.take_unreported(self.report_above) else {
            return;
        };
        // Adding a two's complement with wrap-around subtracts.
        self.total.0.records.fetch_add(records.cast_unsigned(), Ordering::Relaxed);
        self.total.0.bytes.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        let reserve = self.limits.bytes_max / 16;
        let TotalSize { records, bytes } = &self.total.0;
        records.load(Ordering::Relaxed) >= self.limits.records_max
            || bytes.load(Ordering::Relaxed) >= self.limits.bytes_max - reserve
    }

    /// Returns whether one more record fits, after a short sweep if the store is full.
    fn has_room(&self) -> bool {
        if self.is_full() {
            self.sweep(64);
        }
        !self.is_full()
    }

    /// Refuses a new record if none fits. Records that exist may grow.
    fn check_room_for(&self, id: &RecordId) -> Result<(), StoreError> {
        if self.has_room() || self.shard(id).lock().contains(id) {
            return Ok(());
        }
        Err(StoreError::new("memory", StoreErrorKind::Full, Effect::NotApplied))
    }

    fn sweep(&self, limit: usize) -> Purged {
        let mut purged = Purged::default();
        let start = self.purge_from.fetch_add(1, Ordering::Relaxed);
        for offset in 0..SHARDS {
            let mut shard = self.shards[(start + offset) % SHARDS].0.lock();
            let left = limit - purged.removed - purged.tombstoned;
            let forgotten = shard.sweep(self.clock.now(), left, &mut purged);
            self.forgotten.fetch_max(forgotten.0, Ordering::Relaxed);
            self.count(&mut shard);
            if purged.more {
                break;
            }
        }
        purged
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("limits", &self.limits)
            .field("total", &self.total.0)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.check_room_for(&request.id)?;
        Ok(self.step(&request.id, |record, now| {
            // Under the shard's lock, because a sweep writes it under that lock.
            let forgotten = Fence(self.forgotten.load(Ordering::Relaxed));
            machine::claim(record, request, forgotten, now)
        }))
    }

    fn recall(&self, id: &RecordId, fingerprint: &Fingerprint) -> Option<Replay> {
        let shard = self.shard(id).lock();
        machine::recall(shard.get(id)?, fingerprint, self.clock.now())
    }

    fn recalls(&self) -> bool {
        true
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        Ok(self.step(&request.id, |record, now| machine::renew(record, request, now)))
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        Ok(self.step(&request.id, |record, now| machine::settle(record, request, now)))
    }
}

#[async_trait]
impl StoreAdmin for MemoryStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        Ok(self.shard(id).lock().get(id).cloned())
    }

    /// Visits every record: for operators, not for requests.
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut found = Vec::new();
        for CachePadded(shard) in self.shards.iter() {
            let shard = shard.lock();
            let now = self.clock.now();
            let wanted = |record: &&Record| {
                query.after.is_none_or(|after| record.id > after) && query.matches(record, now)
            };
            found.extend(shard.iter().filter(wanted).map(|record| record.id));
        }
        found.sort_unstable();
        let more = found.len() > query.page_size();
        found.truncate(query.page_size());
        let records = found.iter().filter_map(|id| self.shard(id).lock().get(id).cloned());
        let next = found.last().copied().filter(|_| more);
        Ok(Page { records: records.collect(), next, ..Page::default() })
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        Ok(self.step(&request.id, |record, now| machine::resolve(record, request, now)))
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        Ok(self.step(&request.id, |record, now| machine::invalidate(record, request, now)))
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        Ok(self.sweep(limit))
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats::default();
        for CachePadded(shard) in self.shards.iter() {
            let shard = shard.lock();
            stats.records += shard.size().records.cast_unsigned();
            stats.bytes += shard.size().bytes.cast_unsigned();
            for (sum, count) in stats.by_state.iter_mut().zip(shard.by_state()) {
                *sum += count;
            }
            let now = self.clock.now();
            for record in shard.open() {
                stats.correct_open(record.state.lease_until(), record.updated_at, now);
            }
        }
        Ok(stats)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.check_room_for(&record.id)?;
        Ok(self.step(&record.id, |stored, _| machine::import(stored, record)))
    }
}

/// Zero where a limit is small. For a large limit, all shards together keep less than a
/// sixty-fourth of it to themselves.
fn report_above(limits: MemoryLimits) -> ShardSize {
    let share = |limit: u64, most: u64| (limit / (64 * SHARDS as u64)).min(most).cast_signed();
    ShardSize { records: share(limits.records_max, 64), bytes: share(limits.bytes_max, 64 << 10) }
}
