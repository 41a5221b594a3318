//! What is seen of the store: whether it answers, and how much it holds.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{RecordId, Stats};
use onceward_stores::SharedStore;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// Longer than any call of a store that is well.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at the store for operators. Counting can mean to look at every record, so it is
/// done no more often than the store bears.
#[derive(Clone)]
pub(crate) struct Census {
    store: SharedStore,
    every: Duration,
    last: Arc<Mutex<Last>>,
}

/// The last count, and when the next may be.
#[derive(Default)]
struct Last {
    stats: Option<Stats>,
    next: Option<Instant>,
}

impl Census {
    pub(crate) fn new(store: SharedStore, every: Duration) -> Self {
        Self { store, every, last: Arc::default() }
    }

    /// Why the store cannot be asked. Asks for a record that nobody has.
    pub(crate) async fn trouble(&self) -> Option<String> {
        let nobody = RecordId::from_bytes([0; 32]);
        match timeout(PATIENCE, self.store.get(&nobody)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_late) => Some(format!("no answer in {PATIENCE:?}")),
        }
    }

    /// How much it holds, or did when it was counted last.
    pub(crate) async fn stats(&self) -> Option<Stats> {
        if self.is_due()
            && let Ok(Ok(stats)) = timeout(PATIENCE, self.store.stats()).await
        {
            self.last.lock().stats = Some(stats);
        }
        self.last.lock().stats.clone()
    }

    /// Whoever is told so counts, and nobody else meanwhile.
    fn is_due(&self) -> bool {
        let (mut last, now) = (self.last.lock(), Instant::now());
        let due = last.next.is_none_or(|next| next <= now);
        if due {
            last.next = Some(now + self.every);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_testkit::clock::ManualClock;
    use onceward_testkit::faulty::{Call, Fault, FaultyStore};

    #[tokio::test(start_paused = true)]
    async fn trouble_is_told_and_goes_away() {
        let store = Arc::new(FaultyStore::over_memory(ManualClock::new()));
        let census = Census::new(store.clone(), Duration::ZERO);
        assert_eq!(census.trouble().await, None);
        store.on_next(1, Call::Admin, Fault::Fail);
        assert!(census.trouble().await.is_some());
        store.on_next(1, Call::Admin, Fault::Hang);
        assert_eq!(census.trouble().await.as_deref(), Some("no answer in 3s"));
        assert_eq!(census.trouble().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_counted_no_more_often_than_allowed() {
        let store = Arc::new(FaultyStore::over_memory(ManualClock::new()));
        let census = Census::new(store.clone(), Duration::from_secs(60));
        assert!(census.stats().await.is_some());
        store.on_every(Call::Admin, Fault::Hang);
        let begun = Instant::now();
        assert!(census.stats().await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(census.stats().await.is_some(), "the last count");
    }
}
