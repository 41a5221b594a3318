//! Health and record counts of the store.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{FullStore, Health, RecordId, Stats, StoreError};
use onceward_stores::SharedStore;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// Time limit of a probe, longer than any call of a healthy store.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of a count, which goes on after the scrape that began it.
const COUNT_TIMEOUT: Duration = Duration::from_secs(300);

/// Probes the store for operators. Counting may read every record, so it is done at most once in
/// `every`, and takes at most a tenth of the time.
#[derive(Clone)]
pub(crate) struct StoreProbe {
    store: SharedStore,
    every: Duration,
    last: Arc<Mutex<LastCount>>,
}

/// Readiness of the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Claims are granted. The warnings name what may soon prevent that.
    Ready { warnings: Vec<String> },
    /// No claims are granted, for this reason.
    NotReady(String),
}

async fn check(store: &dyn FullStore) -> Result<Health, StoreError> {
    let no_key = RecordId::from_bytes([0; 32]);
    store.get(&no_key).await?;
    store.health().await
}

/// Logs the warnings of a store that was just opened.
pub(crate) async fn log_health(store: &dyn FullStore) {
    match timeout(PROBE_TIMEOUT, store.health()).await {
        Ok(Ok(Health { refuses, warnings })) => {
            if let Some(why) = refuses {
                tracing::error!("the store grants no claims: {why}");
            }
            warnings.iter().for_each(|warning| tracing::warn!("the store: {warning}"));
        }
        Ok(Err(error)) => tracing::warn!(%error, "the store failed"),
        Err(_late) => tracing::warn!("the store does not answer within {PROBE_TIMEOUT:?}"),
    }
}

/// The last count, and the earliest time of the next one.
struct LastCount {
    stats: Option<Stats>,
    /// The start of the process, if nothing has been counted.
    counted_at: Instant,
    counting: bool,
    next: Instant,
}

impl StoreProbe {
    pub(crate) fn new(store: SharedStore, every: Duration) -> Self {
        let now = Instant::now();
        let last = LastCount { stats: None, counted_at: now, counting: false, next: now };
        Self { store, every, last: Arc::new(Mutex::new(last)) }
    }

    /// Checks that the store answers and grants claims. Reads a record id that no key has.
    pub(crate) async fn readiness(&self) -> Readiness {
        match timeout(PROBE_TIMEOUT, check(&*self.store)).await {
            Ok(Ok(Health { refuses: Some(why), .. })) => Readiness::NotReady(why),
            Ok(Ok(Health { refuses: None, warnings })) => Readiness::Ready { warnings },
            Ok(Err(error)) => Readiness::NotReady(error.to_string()),
            Err(_late) => Readiness::NotReady(format!("no answer within {PROBE_TIMEOUT:?}")),
        }
    }

    /// Record counts, from now or from the last count, and how old they are.
    pub(crate) async fn stats(&self) -> (Option<Stats>, Duration) {
        if self.begins_count() {
            let counting = tokio::spawn(self.clone().count());
            let _it_goes_on_if_late = timeout(PROBE_TIMEOUT, counting).await;
        }
        let last = self.last.lock();
        (last.stats.clone(), last.counted_at.elapsed())
    }

    /// Returns true to one caller when a count is due.
    fn begins_count(&self) -> bool {
        let mut last = self.last.lock();
        let due = !last.counting && last.next <= Instant::now();
        last.counting |= due;
        due
    }

    async fn count(self) {
        let begun = Instant::now();
        let counted = timeout(COUNT_TIMEOUT, self.store.stats()).await;
        let rest = self.every.max(begun.elapsed() * 9);
        let mut last = self.last.lock();
        (last.counting, last.next) = (false, Instant::now() + rest);
        match counted {
            Ok(Ok(stats)) => (last.stats, last.counted_at) = (Some(stats), Instant::now()),
            Ok(Err(error)) => tracing::warn!(%error, "the records could not be counted"),
            Err(_late) => tracing::warn!("the records could not be counted in {COUNT_TIMEOUT:?}"),
        }
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
        let probe = StoreProbe::new(store.clone(), Duration::ZERO);
        let ready = Readiness::Ready { warnings: Vec::new() };
        assert_eq!(probe.readiness().await, ready);
        store.on_next(1, Call::Admin, Fault::Fail);
        assert!(matches!(probe.readiness().await, Readiness::NotReady(_)));
        store.on_next(1, Call::Admin, Fault::Hang);
        let late = Readiness::NotReady("no answer within 3s".to_owned());
        assert_eq!(probe.readiness().await, late);
        assert_eq!(probe.readiness().await, ready);
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_counted_no_more_often_than_allowed() {
        let store = Arc::new(FaultyStore::over_memory(ManualClock::new()));
        let probe = StoreProbe::new(store.clone(), Duration::from_secs(60));
        assert!(probe.stats().await.0.is_some());
        store.on_every(Call::Admin, Fault::Hang);
        let begun = Instant::now();
        assert!(probe.stats().await.0.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_count_holds_up_one_scrape_and_goes_on() {
        let store = Arc::new(FaultyStore::over_memory(ManualClock::new()));
        let probe = StoreProbe::new(store.clone(), Duration::from_secs(60));
        store.on_next(1, Call::Admin, Fault::Hang);
        let begun = Instant::now();
        assert_eq!(probe.stats().await.0, None, "nothing is counted yet");
        let waited = begun.elapsed();
        assert_eq!(probe.stats().await, (None, waited), "the next scrape does not wait");
        tokio::time::sleep(COUNT_TIMEOUT * 2).await;
        assert_eq!(probe.stats().await.0, None, "a store that was slow rests");
        tokio::time::sleep(COUNT_TIMEOUT * 9).await;
        let (stats, age) = probe.stats().await;
        assert!(stats.is_some());
        assert_eq!(age, Duration::ZERO);
    }
}
