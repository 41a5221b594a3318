//! Runs the conformance suite on every store of this crate, bare and decorated, and compares the
//! memory store with the truth table.

use std::sync::Arc;

use onceward_core::{MemoryLimits, MemoryStore};
use onceward_testkit::conformance::ManualHarness;
use onceward_testkit::model;
use proptest::prelude::ProptestConfig;
use proptest::proptest;

mod memory {
    use super::*;

    fn harness() -> impl onceward_testkit::conformance::Harness {
        ManualHarness::new(|clock| Arc::new(MemoryStore::with(MemoryLimits::default(), clock)))
    }

    onceward_testkit::store_conformance!(harness());

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn answers_as_the_truth_table_does(steps in model::sequences(60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let compared = runtime.block_on(model::compare(&harness(), &steps));
            proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
        }
    }
}

/// The truth table itself passes the suite.
mod truth_table {
    use super::*;

    onceward_testkit::store_conformance!(ManualHarness::new(|clock| {
        Arc::new(onceward_testkit::open_store::OpenStore::new(clock))
    }));
}

/// Fault injection without faults passes the suite.
mod faulty {
    use super::*;

    onceward_testkit::store_conformance!(ManualHarness::new(|clock| {
        let open = move || -> Arc<dyn onceward_core::FullStore> {
            Arc::new(MemoryStore::with(MemoryLimits::default(), Arc::clone(&clock)))
        };
        Arc::new(onceward_testkit::faulty::FaultyStore::new(open))
    }));
}

#[cfg(feature = "metrics")]
mod metered {
    use super::*;
    use onceward_core::{MeteredStore, Meters};

    onceward_testkit::store_conformance!(ManualHarness::new(|clock| {
        let inner = Arc::new(MemoryStore::with(MemoryLimits::default(), clock));
        let meters = Meters::register(&mut prometheus_client::registry::Registry::default());
        Arc::new(MeteredStore::new(inner, "memory", meters))
    }));
}
