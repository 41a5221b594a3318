//! What can be chosen about a dual store.

use std::time::Duration;

/// Times of a [`DualStore`](super::DualStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a process relies on what it has read of who decides: about so long calls wait
    /// when the authority changes. Counts where the move is opened for the first time; later
    /// processes go by what that one said.
    pub lease: Duration,
    /// How long a call waits while the authority changes; below the engine's 2 s.
    pub patience: Duration,
    /// How long the follower may take for a record before it counts as behind. Calls take
    /// that much longer while it is slow.
    pub follower_timeout: Duration,
    /// How long a follower that failed is left alone: until then its records are behind
    /// without asking, and calls go on at their usual pace.
    pub follower_rest: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            patience: Duration::from_millis(1_600),
            follower_timeout: Duration::from_millis(400),
            follower_rest: Duration::from_secs(1),
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
