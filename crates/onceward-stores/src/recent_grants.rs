//! Recent grants of this process, so that a decorator can settle them without reading the store.

use std::collections::HashMap;
use std::mem;

use onceward_core::{Fence, Fingerprint, OperationId, RecordId};
use parking_lot::Mutex;

/// Grants in each of the two generations: about 4 MB together. A grant that was forgotten is looked
/// up in the store.
const GENERATION_SIZE: usize = 16_384;

/// The operation and the request that a grant is for. They never change under one fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrantedIntent {
    pub(crate) operation: OperationId,
    pub(crate) fingerprint: Fingerprint,
}

type Generation = HashMap<(RecordId, Fence), GrantedIntent>;

/// Recent grants in two generations. A grant that is never settled is dropped with its generation.
#[derive(Default)]
pub(crate) struct RecentGrants {
    /// The young generation and the old one.
    generations: Mutex<(Generation, Generation)>,
}

impl RecentGrants {
    pub(crate) fn remember(&self, id: RecordId, fence: Fence, grant: GrantedIntent) {
        let (young, old) = &mut *self.generations.lock();
        if young.len() >= GENERATION_SIZE {
            *old = mem::take(young);
        }
        young.insert((id, fence), grant);
    }

    pub(crate) fn recall(&self, id: RecordId, fence: Fence) -> Option<GrantedIntent> {
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
        let grants = RecentGrants::default();
        let grant = GrantedIntent {
            operation: uuid::Uuid::from_u128(1).into(),
            fingerprint: Fingerprint::of_parts(&[]),
        };
        for number in 0..5 * GENERATION_SIZE {
            grants.remember(id(number), Fence(1), grant);
        }
        let last = 5 * GENERATION_SIZE - 1;
        assert_eq!(grants.recall(id(last), Fence(1)), Some(grant));
        assert_eq!(grants.recall(id(last), Fence(2)), None);
        assert_eq!(grants.recall(id(0), Fence(1)), None);
        grants.forget(id(last), Fence(1));
        assert_eq!(grants.recall(id(last), Fence(1)), None);
        let (young, old) = &*grants.generations.lock();
        assert!(young.len() + old.len() <= 2 * GENERATION_SIZE);
    }
}
