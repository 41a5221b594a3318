//! The connections that clients may have open, of all threads together.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// One place for each connection.
pub(super) struct Connections {
    places: Arc<Semaphore>,
    count: u32,
}

impl Connections {
    pub(super) fn new(count: usize) -> Self {
        let count = u32::try_from(count.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { places: Arc::new(Semaphore::new(count as usize)), count }
    }

    pub(super) fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.places)
    }

    /// Returns when none is open. While it waits, no new one is let in.
    pub(super) async fn closed(&self) {
        let _all_of_them = self.places.acquire_many(self.count).await;
    }
}
