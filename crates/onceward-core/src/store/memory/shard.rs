//! One shard of the memory store: a table of records, and buckets by the time they are due.

use std::collections::BTreeMap;
use std::ops::Sub;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::clock::Timestamp;
use crate::intent::{RecordId, Scope};
use crate::record::{Fence, Record, StateName};
use crate::store::Purged;
use crate::store::machine::{self, Next, Step};

/// Width of a bucket. Coarse, because an expired record is answered as expired long before it is
/// removed.
const BUCKET_MS: u64 = 10_000;

/// Records by id, and buckets of records by the time they are due.
///
/// A bucket holds 64 bits of each id. An entry may be out of date (the record was claimed again).
/// It is dropped when its bucket is due, because the record has a later entry.
#[derive(Debug, Default)]
pub(super) struct Shard {
    records: HashTable<TableEntry>,
    index: Index,
}

/// A record in the table. The short id is stored beside it, so that a growing table does not visit
/// its records, which are scattered in memory.
#[derive(Debug)]
struct TableEntry {
    short: u64,
    record: Box<Record>,
}

impl TableEntry {
    fn is(&self, id: &RecordId) -> bool {
        self.short == id.short() && self.record.id == *id
    }
}

/// Size of a shard, or a change of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShardSize {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

impl Sub for ShardSize {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { records: self.records - other.records, bytes: self.bytes - other.bytes }
    }
}

impl Shard {
    pub(super) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.records.find(id.short(), |entry| entry.is(id)).map(|entry| &*entry.record)
    }

    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|entry| &*entry.record)
    }

    /// The records that are running or unknown.
    pub(super) fn open(&self) -> impl Iterator<Item = &Record> {
        self.index.open.iter().filter_map(|id| self.get(id))
    }

    pub(super) fn size(&self) -> ShardSize {
        self.index.size
    }

    /// Takes the change of size since the last report, if it is more than `report_above`.
    #[inline]
    pub(super) fn take_unreported(&mut self, report_above: ShardSize) -> Option<ShardSize> {
        let Index { size, reported, .. } = &mut self.index;
        let unreported = *size - *reported;
        let much = unreported.records.abs() > report_above.records
            || unreported.bytes.abs() > report_above.bytes;
        much.then(|| {
            *reported = *size;
            unreported
        })
    }

    pub(super) fn by_state(&self) -> &[u64; StateName::ALL.len()] {
        &self.index.by_state
    }

    /// Takes a step on one record and writes the result.
    pub(super) fn step<A>(
        &mut self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>) -> Step<A>,
    ) -> A {
        let slot = self.records.entry(id.short(), |entry| entry.is(id), |entry| entry.short);
        let old = match &slot {
            Entry::Occupied(slot) => Some(&*slot.get().record),
            Entry::Vacant(_) => None,
        };
        let Step { answer, next } = step(old);
        self.index.write(slot, next);
        answer
    }

    /// Expires at most `limit` records that are due, and counts them in `purged`. Returns their
    /// highest fence.
    pub(super) fn sweep(&mut self, now: Timestamp, limit: usize, purged: &mut Purged) -> Fence {
        let present = bucket_of(now);
        let mut left = limit;
        let mut forgotten = Fence::default();
        while let Some(bucket) =
            self.index.due.first_entry().filter(|bucket| *bucket.key() <= present)
        {
            let (start, mut waiting) = bucket.remove_entry();
            let mut later = Vec::new();
            while let Some(short) = waiting.pop() {
                if left == 0 {
                    waiting.push(short);
                    purged.more = true;
                    break;
                }
                match self.expire_one(short, now, purged) {
                    Some(fence) => {
                        forgotten = forgotten.max(fence);
                        left -= 1;
                    }
                    None if start == present => later.push(short),
                    None => {}
                }
            }
            waiting.append(&mut later);
            if !waiting.is_empty() {
                self.index.due.entry(start).or_default().append(&mut waiting);
                break;
            }
        }
        forgotten
    }

    /// Expires one record if it is due, and returns its fence.
    fn expire_one(&mut self, short: u64, now: Timestamp, purged: &mut Purged) -> Option<Fence> {
        // Several records may have equal short ids; take the one that is due.
        let due = |entry: &TableEntry| {
            entry.short == short && machine::sweep(&entry.record, now) != Next::Same
        };
        let slot = self.records.find_entry(short, due).ok()?;
        let next = machine::sweep(&slot.get().record, now);
        match next {
            Next::Remove => purged.removed += 1,
            _ => purged.tombstoned += 1,
        }
        let fence = slot.get().record.fence;
        self.index.write(Entry::Occupied(slot), next);
        Some(fence)
    }
}

/// Due times, counts and size of a shard's records.
#[derive(Debug, Default)]
struct Index {
    due: BTreeMap<u64, Vec<u64>>,
    by_state: [u64; StateName::ALL.len()],
    /// Ids of the records that are running or unknown: few, and counted by their leases.
    open: HashTable<RecordId>,
    size: ShardSize,
    /// The part of the size that the store's total includes.
    reported: ShardSize,
    /// Scope of the last new record. Most records have the scope of an earlier one, and share it.
    scope: Option<Scope>,
}

impl Index {
    /// Writes the next state of a record.
    fn write(&mut self, slot: Entry<'_, TableEntry>, next: Next) {
        match (next, slot) {
            (Next::Same, _) | (Next::Stand(..) | Next::Remove, Entry::Vacant(_)) => {}
            (Next::Put(record), Entry::Occupied(mut slot)) => {
                let old = &mut slot.get_mut().record;
                self.leave(old);
                self.enter(&record);
                self.set_open(&record.id, old.state.is_open(), record.state.is_open());
                *old = record;
            }
            (Next::Put(mut record), Entry::Vacant(slot)) => {
                self.share_scope(&mut record);
                self.enter(&record);
                self.set_open(&record.id, false, record.state.is_open());
                slot.insert(TableEntry { short: record.id.short(), record });
            }
            (Next::Stand(state, since), Entry::Occupied(mut slot)) => {
                let record = &mut slot.get_mut().record;
                self.leave(record);
                self.set_open(&record.id, record.state.is_open(), state.is_open());
                (record.state, record.updated_at) = (state, since);
                self.enter(record);
            }
            (Next::Remove, Entry::Occupied(slot)) => {
                let record = &slot.get().record;
                self.leave(record);
                self.set_open(&record.id, record.state.is_open(), false);
                slot.remove();
            }
        }
    }

    /// Counts a record, and enters it in its bucket.
    fn enter(&mut self, record: &Record) {
        self.by_state[record.state.name() as usize] += 1;
        if let Some(at) = due_at(record) {
            self.due.entry(bucket_of(at)).or_default().push(record.id.short());
        }
        self.size.records += 1;
        self.size.bytes += size(record);
    }

    fn leave(&mut self, record: &Record) {
        self.by_state[record.state.name() as usize] -= 1;
        self.size.records -= 1;
        self.size.bytes -= size(record);
    }

    /// Notes that a record began or ceased to be open.
    fn set_open(&mut self, id: &RecordId, was: bool, is: bool) {
        match (was, is) {
            (false, true) => {
                self.open.insert_unique(id.short(), *id, RecordId::short);
            }
            (true, false) => {
                if let Ok(entry) = self.open.find_entry(id.short(), |open| open == id) {
                    entry.remove();
                }
            }
            (false, false) | (true, true) => {}
        }
    }

    fn share_scope(&mut self, record: &mut Record) {
        match &self.scope {
            Some(scope) if *scope == record.scope => record.scope = scope.clone(),
            _ => self.scope = Some(record.scope.clone()),
        }
    }
}

/// When a record is due: to become a tombstone, or to be removed.
fn due_at(record: &Record) -> Option<Timestamp> {
    let retained = record.state.retained()?;
    match record.state.name() {
        StateName::Expired => Some(retained.tombstone_until),
        _ => Some(retained.until),
    }
}

fn bucket_of(at: Timestamp) -> u64 {
    at.as_millis() / BUCKET_MS
}

fn size(record: &Record) -> i64 {
    i64::try_from(size_of::<TableEntry>() + record.bytes()).unwrap_or(i64::MAX)
}
