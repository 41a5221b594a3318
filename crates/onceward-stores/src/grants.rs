//! What this process was granted, so that decorators need no look at the store when it is settled.

use std::collections::HashMap;
use std::mem;

use onceward_core::{Fence, Fingerprint, OperationId, RecordId};
use parking_lot::Mutex;

/// Grants in one of the two generations. What was forgotten is looked up in the store, so
/// this bounds memory (some 4 MB) and nothing else.
const GENERATION: usize = 16_384;

/// What a grant is about. Under one fence it never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) operation: OperationId,
    pub(crate) fingerprint: Fingerprint,
}

type Generation = HashMap<(RecordId, Fence), Grant>;

/// Recent grants. Those that are never settled go with their generation.
#[derive(Default)]
pub(crate) struct Grants {
    /// The young generation, and the old one.
    generations: Mutex<(Generation, Generation)>,
}

impl Grants {
    pub(crate) fn remember(&self, id: RecordId, fence: Fence, grant: Grant) {
        let (young, old) = &mut *self.generations.lock();
        if young.len() >= GENERATION {
            *old = mem::take(young);
        }
        young.insert((id, fence), grant);
    }

    pub(crate) fn recall(&self, id: RecordId, fence: Fence) -> Option<Grant> {
        let (young, old) = &*self.generations.lock();
        young.get(&(id, fence)).or_else(|| old.get(&(id, fence))).copied()
    }

    pub(crate) fn forget(&self, id: RecordId, fence: Fence) {
        let (young, old) = &mut *self.generations.lock();
        young.remove(&(id, fence));
        old.remove(&(id, fence));
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
    fn grants_that_are_never_settled_take_bounded_memory() {
        let grants = Grants::default();
        let grant = Grant {
            operation: uuid::Uuid::from_u128(1).into(),
            fingerprint: Fingerprint::of_parts(&[]),
        };
        for number in 0..5 * GENERATION {
            grants.remember(id(number), Fence(1), grant);
        }
        let last = 5 * GENERATION - 1;
        assert_eq!(grants.recall(id(last), Fence(1)), Some(grant));
        assert_eq!(grants.recall(id(last), Fence(2)), None);
        assert_eq!(grants.recall(id(0), Fence(1)), None);
        grants.forget(id(last), Fence(1));
        assert_eq!(grants.recall(id(last), Fence(1)), None);
        let (young, old) = &*grants.generations.lock();
        assert!(young.len() + old.len() <= 2 * GENERATION);
    }
}
