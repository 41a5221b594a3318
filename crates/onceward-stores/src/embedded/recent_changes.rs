//! Records that changed recently, so that the writer need not read from the tree what it has just
//! written.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

use onceward_core::{Record, RecordId};

use super::log::Number;
use super::tally::Counted;

/// Records in a generation. A running record takes about half a kilobyte.
const GENERATION_SIZE: usize = 8_192;

pub(super) type IdMap<V> = HashMap<RecordId, V, BuildHasherDefault<IdHasher>>;

/// All records that changed after some batch. Running records are kept whole, as they are settled
/// next. There are two generations, and the older one is dropped as a whole.
#[derive(Debug, Default)]
pub(super) struct RecentChanges {
    young: IdMap<RecentChange>,
    old: IdMap<RecentChange>,
    /// The last batch with changes from before the young generation, and from before the old one.
    began: [Number; 2],
}

/// A recent change of a record.
#[derive(Debug)]
pub(super) enum RecentChange {
    /// The record is running, and this is its state.
    Running(Box<Record>, Counted),
    /// The record changed, and must be read.
    Changed,
}

impl RecentChanges {
    /// An empty history: nothing is known of batches up to `last`.
    pub(super) fn after(last: Number) -> Self {
        Self { began: [last; 2], ..Self::default() }
    }

    /// The last change of a record, if it is recent.
    pub(super) fn get(&self, id: &RecordId) -> Option<&RecentChange> {
        self.young.get(id).or_else(|| self.old.get(id))
    }

    /// True if every change since batch `seen` is known.
    pub(super) fn covers(&self, seen: Number) -> bool {
        seen >= self.began[1]
    }

    /// Notes that batch `number` changed a record.
    pub(super) fn put(&mut self, id: RecordId, known: RecentChange, number: Number) {
        if self.young.len() >= GENERATION_SIZE {
            self.old = mem::take(&mut self.young);
            // This batch, not the one before: the older generation may have changes of it too.
            self.began = [number, self.began[0]];
        }
        self.young.insert(id, known);
    }
}

/// Uses ids as they are, which are hashes already.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RecordId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn what_is_forgotten_is_no_longer_covered() {
        let mut recent = RecentChanges::after(10);
        assert!(recent.covers(10) && !recent.covers(9));
        // Batches of three records each, from number 11 on. The first change that is missing in
        // `recent` belongs to a batch that must not count as covered.
        let mut forgotten = 0;
        for change in 0..GENERATION_SIZE * 5 {
            recent.put(id(change), RecentChange::Changed, 11 + change as u64 / 3);
            while recent.get(&id(forgotten)).is_none() {
                forgotten += 1;
            }
            if forgotten > 0 {
                let number_of_forgotten = 11 + (forgotten as u64 - 1) / 3;
                assert!(!recent.covers(number_of_forgotten - 1), "{change}");
            }
        }
        assert!(forgotten > GENERATION_SIZE);
        assert!(recent.covers(11 + GENERATION_SIZE as u64 * 5 / 3));
    }
}
