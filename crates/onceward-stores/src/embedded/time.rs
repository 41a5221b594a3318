//! The store's clock: the machine's clock, which never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{Clock, Timestamp};

/// Continues from the latest time that an earlier boot reported. If the machine's clock was set
/// back in between, the difference is added from then on, so that time passes at its normal pace
/// instead of standing still.
pub(super) struct StoreClock {
    clock: Arc<dyn Clock>,
    ahead: Duration,
    latest: AtomicU64,
}

impl StoreClock {
    pub(super) fn new(clock: Arc<dyn Clock>, told_before: Timestamp) -> Self {
        let ahead = clock.now().until(told_before);
        Self { clock, ahead, latest: AtomicU64::new(told_before.as_millis()) }
    }

    pub(super) fn now(&self) -> Timestamp {
        let now = (self.clock.now() + self.ahead).as_millis();
        let latest = self.latest.fetch_max(now, Ordering::Relaxed);
        Timestamp::from_millis(latest.max(now))
    }
}

impl std::fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClock").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}
