//! The conformance suite: on a clock that the test moves, where PostgreSQL confirms every answer of
//! Redis; on the server's own clock, as in production; and sealed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{Fenced, FullStore, Settlement};
use onceward_stores::tiered::{Settings, TieredStore};
use onceward_testkit::conformance::{Harness, Traits};

use super::common::{Tiers, settings};
use crate::calls::{DAY, granted, outcome, replay, settle};
use crate::postgres::conformance::{Moved, answers_as_the_truth_table_does, directly, exactly};
use crate::redis::common::shared;
use crate::sealed::common::SealedOver;

/// The test moves PostgreSQL's clock. The generation is not cached, as time jumps.
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

    async fn store(&self) -> TieredStore {
        let authority = Arc::new(self.authority.store().await);
        let redis = shared().expect("it was there");
        TieredStore::open(authority, redis.url(), self.settings.clone()).await.unwrap()
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

/// PostgreSQL's clock stands still while this machine's clock runs: a cache entry still ends with
/// PostgreSQL's retention.
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
    // Without a tombstone the record is removed.
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
