//! One shard of the memory store: a table of records, and when each is due to go.

use std::collections::BTreeMap;
use std::ops::Sub;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::clock::Timestamp;
use crate::intent::{RecordId, Scope};
use crate::record::{Fence, Record, StateName};
use crate::store::Purged;
use crate::store::machine::{self, Next, Step};

/// Width of a due bucket. Coarse, because a record past its time is answered as such long
/// before it is removed.
const BUCKET_MS: u64 = 10_000;

/// Records by id, and buckets of those that will be due, by time.
///
/// A bucket holds 64 bits of each id. An entry may be out of date (the record has been
/// claimed anew since); it is then dropped when its bucket comes up, because the record was
/// entered again with its later time.
#[derive(Debug, Default)]
pub(super) struct Shard {
    records: HashTable<Placed>,
    ledger: Ledger,
}

/// A record in the table. Its short id stands beside it, so that a table that grows does not
/// look into each of its records, which are all over the memory.
#[derive(Debug)]
struct Placed {
    short: u64,
    record: Box<Record>,
}

impl Placed {
    fn is(&self, id: &RecordId) -> bool {
        self.short == id.short() && self.record.id == *id
    }
}

/// How much a shard holds, or how much more than before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

impl Sub for Size {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { records: self.records - other.records, bytes: self.bytes - other.bytes }
    }
}

impl Shard {
    pub(super) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.records.find(id.short(), |placed| placed.is(id)).map(|placed| &*placed.record)
    }

    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|placed| &*placed.record)
    }

    pub(super) fn size(&self) -> Size {
        self.ledger.size
    }

    /// What was not told yet of the shard's size, as soon as it is more than `little`.
    #[inline]
    pub(super) fn tell(&mut self, little: Size) -> Option<Size> {
        let Ledger { size, told, .. } = &mut self.ledger;
        let untold = *size - *told;
        let much = untold.records.abs() > little.records || untold.bytes.abs() > little.bytes;
        much.then(|| {
            *told = *size;
            untold
        })
    }

    pub(super) fn by_state(&self) -> &[u64; StateName::ALL.len()] {
        &self.ledger.by_state
    }

    /// Takes a step on one record and writes what comes of it.
    pub(super) fn step<A>(
        &mut self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>) -> Step<A>,
    ) -> A {
        let slot = self.records.entry(id.short(), |placed| placed.is(id), |placed| placed.short);
        let old = match &slot {
            Entry::Occupied(slot) => Some(&*slot.get().record),
            Entry::Vacant(_) => None,
        };
        let Step { answer, next } = step(old);
        self.ledger.write(slot, next);
        answer
    }

    /// Lets go what is due, at most `limit` records, adding to `purged`. Returns the highest
    /// fence among those.
    pub(super) fn sweep(&mut self, now: Timestamp, limit: usize, purged: &mut Purged) -> Fence {
        let present = bucket_of(now);
        let mut left = limit;
        let mut forgotten = Fence::default();
        while let Some(bucket) =
            self.ledger.due.first_entry().filter(|bucket| *bucket.key() <= present)
        {
            let (start, mut waiting) = bucket.remove_entry();
            let mut later = Vec::new();
            while let Some(short) = waiting.pop() {
                if left == 0 {
                    waiting.push(short);
                    purged.more = true;
                    break;
                }
                match self.let_go(short, now, purged) {
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
                self.ledger.due.entry(start).or_default().append(&mut waiting);
                break;
            }
        }
        forgotten
    }

    /// Lets one record go if it is due, and returns its fence.
    fn let_go(&mut self, short: u64, now: Timestamp, purged: &mut Purged) -> Option<Fence> {
        // Of several records with equal short ids, the one that is due.
        let due = |placed: &Placed| {
            placed.short == short && machine::sweep(&placed.record, now) != Next::Same
        };
        let slot = self.records.find_entry(short, due).ok()?;
        let next = machine::sweep(&slot.get().record, now);
        match next {
            Next::Remove => purged.removed += 1,
            _ => purged.tombstoned += 1,
        }
        let fence = slot.get().record.fence;
        self.ledger.write(Entry::Occupied(slot), next);
        Some(fence)
    }
}

/// What a shard knows of its records beside the records.
#[derive(Debug, Default)]
struct Ledger {
    due: BTreeMap<u64, Vec<u64>>,
    by_state: [u64; StateName::ALL.len()],
    size: Size,
    /// As much of it as the whole store knows.
    told: Size,
    /// Of the last record that was new. Most have the scope of one before: those share it.
    scope: Option<Scope>,
}

impl Ledger {
    /// Writes what becomes of a record.
    fn write(&mut self, slot: Entry<'_, Placed>, next: Next) {
        match (next, slot) {
            (Next::Same, _) | (Next::Stand(..) | Next::Remove, Entry::Vacant(_)) => {}
            (Next::Put(record), Entry::Occupied(mut slot)) => {
                let old = &mut slot.get_mut().record;
                self.leave(old);
                self.enter(&record);
                *old = record;
            }
            (Next::Put(mut record), Entry::Vacant(slot)) => {
                self.share_scope(&mut record);
                self.enter(&record);
                slot.insert(Placed { short: record.id.short(), record });
            }
            (Next::Stand(state, since), Entry::Occupied(mut slot)) => {
                let record = &mut slot.get_mut().record;
                self.leave(record);
                (record.state, record.updated_at) = (state, since);
                self.enter(record);
            }
            (Next::Remove, Entry::Occupied(slot)) => {
                self.leave(&slot.get().record);
                slot.remove();
            }
        }
    }

    /// Counts a record, and notes when it will be due.
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

    fn share_scope(&mut self, record: &mut Record) {
        match &self.scope {
            Some(scope) if *scope == record.scope => record.scope = scope.clone(),
            _ => self.scope = Some(record.scope.clone()),
        }
    }
}

/// When the next thing happens to a record by time alone.
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
    i64::try_from(size_of::<Placed>() + record.bytes()).unwrap_or(i64::MAX)
}
