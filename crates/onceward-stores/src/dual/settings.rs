//! Settings of a dual store.

use std::time::Duration;

/// Times of a [`DualStore`](super::DualStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a process relies on a read of the authority record. A switchover makes calls
    /// wait for about this time. The first opening of a move writes it down, and later processes
    /// use that value.
    pub lease: Duration,
    /// Longest time that a call waits for a switchover; below the engine's 2 s.
    pub switchover_timeout: Duration,
    /// Longest time for the follower to take a record, before the record counts as lagging.
    /// While the follower is slow, calls take that much longer.
    pub follower_timeout: Duration,
    /// How long a follower that failed is not called. Meanwhile records count as lagging at once,
    /// and calls go on at their usual pace.
    pub follower_backoff: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            switchover_timeout: Duration::from_millis(1_600),
            follower_timeout: Duration::from_millis(400),
            follower_backoff: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// The settings with every value such that it works at all.
    pub(super) fn sane(mut self) -> Self {
        self.lease = self.lease.clamp(Duration::from_millis(10), Duration::from_secs(60));
        self
    }
}
