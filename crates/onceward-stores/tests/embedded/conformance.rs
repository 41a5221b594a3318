//! The conformance suite, on a clock that the test moves and on the machine's clock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Fenced, FullStore, Imported, Lease, Page, Purged, Query, Record, RecordId,
    RenewRequest, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin, StoreError,
};
use onceward_stores::embedded::EmbeddedStore;
use onceward_testkit::conformance::{Harness, ManualHarness, Traits};
use onceward_testkit::model;
use proptest::prelude::ProptestConfig;
use proptest::proptest;
use tempfile::TempDir;

use super::common::{open, open_at, small};

/// A store that removes its directory when it is dropped.
struct Temporary {
    store: EmbeddedStore,
    _directory: TempDir,
}

#[async_trait]
impl Store for Temporary {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.store.claim(request).await
    }
    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.store.renew(request).await
    }
    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.store.settle(request).await
    }
}

#[async_trait]
impl StoreAdmin for Temporary {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.store.get(id).await
    }
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }
    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.store.resolve(request).await
    }
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.store.purge(limit).await
    }
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.store.import(record).await
    }
}

fn manual() -> impl Harness {
    ManualHarness::new(|clock| {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Temporary { store: open_at(directory.path(), clock), _directory: directory })
    })
}

struct RealTime;

#[async_trait]
impl Harness for RealTime {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_millis(400), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Temporary { store: open(directory.path()), _directory: directory })
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

mod on_a_clock_that_is_moved {
    use super::*;

    onceward_testkit::store_conformance!(manual());

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn answers_as_the_truth_table_does(steps in model::sequences(60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let compared = runtime.block_on(model::compare(&manual(), &steps));
            proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
        }
    }
}

mod on_the_machines_clock {
    use super::*;

    onceward_testkit::store_conformance!(RealTime);
}

#[test]
fn test_settings_turn_segments_and_memtables_often() {
    assert!(small().segment_bytes <= 64 << 10 && small().memtable_bytes <= 64 << 10);
}
