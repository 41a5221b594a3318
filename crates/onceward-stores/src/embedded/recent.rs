//! What the writer still knows of records that changed lately, so that it need not look
//! into the tree for what it has just written.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

use onceward_core::{Record, RecordId};

use super::log::Number;
use super::tally::Counted;

/// Records in a generation. Running ones take about half a kilobyte.
const GENERATION: usize = 8_192;

pub(super) type IdMap<V> = HashMap<RecordId, V, BuildHasherDefault<IdHasher>>;

/// All records that changed after some batch; the running ones whole, because they are
/// settled next. Two generations, of which the older is forgotten at once.
#[derive(Debug, Default)]
pub(super) struct Recent {
    young: IdMap<Known>,
    old: IdMap<Known>,
    /// The last batch of which something is older than the younger generation, and than
    /// the older one.
    began: [Number; 2],
}

/// What is known of a record that changed lately.
#[derive(Debug)]
pub(super) enum Known {
    /// It is this.
    Running(Box<Record>, Counted),
    /// It must be read.
    Changed,
}

impl Recent {
    /// Nothing is known of batches up to `last`.
    pub(super) fn after(last: Number) -> Self {
        Self { began: [last; 2], ..Self::default() }
    }

    /// What is known of a record, if it changed lately.
    pub(super) fn get(&self, id: &RecordId) -> Option<&Known> {
        self.young.get(id).or_else(|| self.old.get(id))
    }

    /// Whether every change since batch `seen` is in here.
    pub(super) fn covers(&self, seen: Number) -> bool {
        seen >= self.began[1]
    }

    /// A record was changed by batch `number`.
    pub(super) fn put(&mut self, id: RecordId, known: Known, number: Number) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
            // Not the one before: others of this very batch may be in the older generation.
            self.began = [number, self.began[0]];
        }
        self.young.insert(id, known);
    }
}

/// Ids are hashes already.
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
        let mut recent = Recent::after(10);
        assert!(recent.covers(10) && !recent.covers(9));
        // Batches of three records each, from number 11 on: the first change that is not
        // in `recent` belongs to a batch that must not count as covered.
        let mut forgotten = 0;
        for change in 0..GENERATION * 5 {
            recent.put(id(change), Known::Changed, 11 + change as u64 / 3);
            while recent.get(&id(forgotten)).is_none() {
                forgotten += 1;
            }
            if forgotten > 0 {
                let number_of_forgotten = 11 + (forgotten as u64 - 1) / 3;
                assert!(!recent.covers(number_of_forgotten - 1), "{change}");
            }
        }
        assert!(forgotten > GENERATION);
        assert!(recent.covers(11 + GENERATION as u64 * 5 / 3));
    }
}
