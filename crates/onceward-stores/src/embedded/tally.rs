//! Counters over all records.

use onceward_core::{Fence, StateName, Stats, Timestamp};

use crate::codec::Boot;

/// Counters and limits that change with every batch. They are part of its frame, so they always
/// match the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// This opening of the store.
    pub(super) boot: Boot,
    /// The latest time that was reported: the clock never goes back behind it.
    pub(super) time: Timestamp,
    /// The highest fence of all removed records.
    pub(super) forgotten: Fence,
    /// Purging has handled every due entry before this time.
    pub(super) swept: Timestamp,
    /// Encoded bytes of all records.
    pub(super) bytes: u64,
    /// Records by stored state.
    pub(super) by_state: [u64; StateName::ALL.len()],
}

/// The properties of a record that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) state: StateName,
    /// Encoded length.
    pub(super) bytes: usize,
}

impl Tally {
    /// Encoded length.
    pub(super) const BYTES: usize = 8 * (5 + StateName::ALL.len());

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let head = [
            self.boot.0,
            self.time.as_millis(),
            self.forgotten.0,
            self.swept.as_millis(),
            self.bytes,
        ];
        let mut bytes = [0; Self::BYTES];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(head.into_iter().chain(self.by_state)) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        let mut next = || words.next().map(u64::from_le_bytes);
        let mut tally = Self {
            boot: Boot(next()?),
            time: Timestamp::from_millis(next()?),
            forgotten: Fence(next()?),
            swept: Timestamp::from_millis(next()?),
            bytes: next()?,
            by_state: Default::default(),
        };
        for count in &mut tally.by_state {
            *count = next()?;
        }
        Some(tally)
    }

    /// Stops counting a record that was removed, or is counted again in its new state.
    pub(super) fn subtract(&mut self, counted: Counted) {
        let count = &mut self.by_state[counted.state as usize];
        *count = count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(counted.bytes as u64);
    }

    /// Counts a record.
    pub(super) fn add(&mut self, counted: Counted) {
        self.by_state[counted.state as usize] += 1;
        self.bytes += counted.bytes as u64;
    }

    /// The counters at a new boot: running records have lost their owners.
    pub(super) fn next_boot(mut self) -> Self {
        self.boot = Boot(self.boot.0 + 1);
        let orphaned = std::mem::take(&mut self.by_state[StateName::Running as usize]);
        self.by_state[StateName::Unknown as usize] += orphaned;
        self
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            records: self.by_state.iter().sum(),
            bytes: self.bytes,
            by_state: self.by_state,
            oldest_unknown: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_survives_and_a_new_life_makes_what_ran_unknown() {
        let tally = Tally {
            boot: Boot(3),
            time: Timestamp::from_millis(4),
            forgotten: Fence(5),
            swept: Timestamp::from_millis(6),
            bytes: 7,
            by_state: [8, 9, 10, 11, 12, 13],
        };
        assert_eq!(Tally::decode(&tally.encode()), Some(tally));
        assert_eq!(Tally::decode(&[0; 3]), None);
        assert_eq!(tally.next_boot().by_state, [0, 9, 10, 11, 20, 13]);
        assert_eq!(tally.next_boot().boot, Boot(4));
    }
}
