//! One shard of the memory store: a table of records, and when each is due to go.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::clock::Timestamp;
use crate::ids::Fence;
use crate::intent::RecordId;
use crate::machine::{self, Next, Step};
use crate::record::{Record, StateName};
use crate::store::Purged;

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
    records: HashTable<Box<Record>>,
    due: BTreeMap<u64, Vec<u64>>,
    by_state: [u64; StateName::ALL.len()],
}

/// How a step changed the size of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Resized {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

/// What sweeping did to a shard.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Swept {
    pub(super) resized: Resized,
    /// The highest fence among the records that were let go.
    pub(super) forgotten: Fence,
}

impl Shard {
    pub(super) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.records.find(id.short(), |record| record.id == *id).map(|record| &**record)
    }

    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|record| &**record)
    }

    pub(super) fn by_state(&self) -> &[u64; StateName::ALL.len()] {
        &self.by_state
    }

    /// Takes a step on one record and writes what comes of it.
    pub(super) fn step<A>(
        &mut self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>) -> Step<A>,
    ) -> (A, Resized) {
        let slot =
            self.records.entry(id.short(), |record| record.id == *id, |record| record.id.short());
        let old = match &slot {
            Entry::Occupied(slot) => Some(&**slot.get()),
            Entry::Vacant(_) => None,
        };
        let Step { answer, next } = step(old);
        let resized = write(slot, next, &mut self.by_state, &mut self.due);
        (answer, resized)
    }

    /// Lets go what is due, at most `limit` records, adding to `purged`.
    pub(super) fn sweep(&mut self, now: Timestamp, limit: usize, purged: &mut Purged) -> Swept {
        let present = bucket_of(now);
        let mut left = limit;
        let mut total = Swept::default();
        while let Some(bucket) = self.due.first_entry().filter(|bucket| *bucket.key() <= present) {
            let (start, mut waiting) = bucket.remove_entry();
            let mut later = Vec::new();
            while let Some(short) = waiting.pop() {
                if left == 0 {
                    waiting.push(short);
                    purged.more = true;
                    break;
                }
                match self.let_go(short, now, purged) {
                    Some(swept) => {
                        total.resized += swept.resized;
                        total.forgotten = total.forgotten.max(swept.forgotten);
                        left -= 1;
                    }
                    None if start == present => later.push(short),
                    None => {}
                }
            }
            waiting.append(&mut later);
            if !waiting.is_empty() {
                self.due.entry(start).or_default().append(&mut waiting);
                break;
            }
        }
        total
    }

    /// Lets one record go if it is due.
    fn let_go(&mut self, short: u64, now: Timestamp, purged: &mut Purged) -> Option<Swept> {
        // Of several records with equal short ids, the one that is due.
        let due = |record: &Record| {
            record.id.short() == short && machine::sweep(record, now) != Next::Same
        };
        let slot = self.records.find_entry(short, |record| due(record)).ok()?;
        let next = machine::sweep(slot.get(), now);
        match next {
            Next::Remove => purged.removed += 1,
            _ => purged.tombstoned += 1,
        }
        let forgotten = slot.get().fence;
        let resized = write(Entry::Occupied(slot), next, &mut self.by_state, &mut self.due);
        Some(Swept { resized, forgotten })
    }
}

/// Writes what becomes of a record, and enters it where it will be due.
fn write(
    slot: Entry<'_, Box<Record>>,
    next: Next,
    by_state: &mut [u64; StateName::ALL.len()],
    due: &mut BTreeMap<u64, Vec<u64>>,
) -> Resized {
    let mut resized = Resized::default();
    if next == Next::Same {
        return resized;
    }
    if let Entry::Occupied(old) = &slot {
        resized += Resized { records: -1, bytes: -size(old.get()) };
        by_state[old.get().state.name() as usize] -= 1;
    }
    match (next, slot) {
        (Next::Put(record), slot) => {
            resized += Resized { records: 1, bytes: size(&record) };
            by_state[record.state.name() as usize] += 1;
            if let Some(at) = due_at(&record) {
                due.entry(bucket_of(at)).or_default().push(record.id.short());
            }
            match slot {
                Entry::Occupied(mut slot) => *slot.get_mut() = record,
                Entry::Vacant(slot) => {
                    slot.insert(record);
                }
            }
        }
        (Next::Remove, Entry::Occupied(slot)) => {
            slot.remove();
        }
        (Next::Remove | Next::Same, _) => {}
    }
    resized
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
    i64::try_from(record.bytes()).unwrap_or(i64::MAX)
}

impl AddAssign for Resized {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}
