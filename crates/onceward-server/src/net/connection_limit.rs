//! The connections that clients may have open, of all threads together.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// One slot for each connection.
pub(crate) struct ConnectionLimit {
    slots: Arc<Semaphore>,
    count: u32,
}

impl ConnectionLimit {
    pub(crate) fn new(count: usize) -> Self {
        let count = u32::try_from(count.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { slots: Arc::new(Semaphore::new(count as usize)), count }
    }

    pub(crate) fn slots(&self) -> Arc<Semaphore> {
        Arc::clone(&self.slots)
    }

    /// Returns when none is open. While it waits, no new one is let in.
    pub(crate) async fn closed(&self) {
        let _all_of_them = self.slots.acquire_many(self.count).await;
    }
}
