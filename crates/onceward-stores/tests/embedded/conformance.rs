//! The conformance suite, on a clock that the test moves and on the machine's clock.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::FullStore;
use onceward_stores::embedded::EmbeddedStore;
use onceward_testkit::conformance::{Harness, ManualHarness, Traits};
use onceward_testkit::model;
use parking_lot::Mutex;
use proptest::prelude::ProptestConfig;
use proptest::proptest;
use tempfile::TempDir;

use super::common::{open, open_at, small};

/// Opens stores in temporary directories, which are removed at the end.
#[derive(Default)]
struct Directories(Mutex<Vec<TempDir>>);

impl Directories {
    /// Not wrapped: a decorator would hide the methods that it does not pass on.
    fn open(&self, open: impl FnOnce(&Path) -> EmbeddedStore) -> Arc<dyn FullStore> {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        self.0.lock().push(directory);
        Arc::new(store)
    }
}

fn manual() -> impl Harness {
    let directories = Directories::default();
    ManualHarness::new(move |clock| directories.open(|path| open_at(path, clock)))
}

#[derive(Default)]
struct RealTime(Directories);

#[async_trait]
impl Harness for RealTime {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_millis(400), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        self.0.open(open)
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

    onceward_testkit::store_conformance!(RealTime::default());
}

#[test]
fn test_settings_turn_segments_and_memtables_often() {
    assert!(small().segment_bytes <= 64 << 10 && small().memtable_bytes <= 64 << 10);
}
