//! The suite of every store: on a clock that is moved, where every answer from Redis is confirmed
//! at once, on the server's own clock as tiers are used, and sealed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{Fenced, FullStore, Settlement};
use onceward_stores::tiered::{Settings, Tiered};
use onceward_testkit::conformance::{Harness, Traits};

use super::common::{Tiers, settings};
use crate::calls::{DAY, granted, outcome, replay, settle};
use crate::postgres::conformance::{Moved, answers_as_the_truth_table_does, directly, exactly};
use crate::redis::common::shared;
use crate::sealed::common::SealedOver;

/// PostgreSQL's clock is moved by hand. Trust does not last: time jumps.
struct MovedTiers {
    authority: Moved,
    settings: Settings,
}

impl MovedTiers {
    fn over(authority: Moved) -> Option<Self> {
        shared()?;
        let settings = Settings { trust: Duration::ZERO, ..settings() };
        Some(Self { authority, settings })
    }

    async fn store(&self) -> Tiered {
        let authority = Arc::new(self.authority.store().await);
        let redis = shared().expect("it was there");
        Tiered::open(authority, redis.url(), self.settings.clone()).await.unwrap()
    }
}

#[async_trait]
impl Harness for MovedTiers {
    fn traits(&self) -> Traits {
        self.authority.traits()
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    async fn pass(&self, duration: Duration) {
        self.authority.pass(duration).await;
    }
}

/// PostgreSQL's clock stands still while this machine's runs: what is put into Redis then ends
/// with PostgreSQL's retention all the same.
#[tokio::test]
async fn an_entry_ends_with_its_retention_although_this_machine_is_ahead() {
    let Some(tiers) = directly().and_then(MovedTiers::over) else { return };
    let store = tiers.store().await;
    let holder = granted(&store, "key").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let done = Settlement::Complete(outcome("done"));
    assert_eq!(settle(&store, "key", holder, done, DAY).await.unwrap(), Fenced::Applied(()));
    assert_eq!(replay(&store, "key").await, "done");
    tiers.pass(DAY.keep).await;
    // Without a tombstone it is forgotten.
    granted(&store, "key").await;
}

struct RealTime(Tiers);

#[async_trait]
impl Harness for RealTime {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_millis(500), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.0.open().await)
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

mod on_a_clock_that_is_moved {
    use super::*;

    onceward_testkit::store_conformance!(or_skip directly().and_then(MovedTiers::over));

    #[test]
    fn answers_as_the_truth_table_does() {
        super::answers_as_the_truth_table_does(|| exactly().and_then(MovedTiers::over), 20);
    }
}

mod on_the_servers_own_clock {
    use super::*;

    onceward_testkit::store_conformance!(or_skip Tiers::shared().map(RealTime));
}

mod sealed {
    use super::*;

    onceward_testkit::store_conformance!(or_skip directly().and_then(MovedTiers::over).map(SealedOver));
}
