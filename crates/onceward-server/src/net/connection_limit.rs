//! Limit of client connections, across all threads.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// One slot per connection.
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

    /// Waits until no connection is open. No new one is accepted meanwhile.
    pub(crate) async fn closed(&self) {
        let _all_slots = self.slots.acquire_many(self.count).await;
    }
}
