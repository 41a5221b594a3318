//! The conformance suite over the embedded store, and the content of its files.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use onceward_core::Clock;
use onceward_stores::embedded::{EmbeddedStore, Environment, Settings};
use onceward_stores::sealed::SealedStore;
use onceward_testkit::conformance::{Harness, ManualHarness};
use onceward_testkit::model;
use proptest::prelude::ProptestConfig;
use proptest::proptest;
use tempfile::TempDir;

use super::common::{A, B, complete, keys, outcome, replay};
use super::conformance::{TwoNodes, compare};

fn open(directory: &Path, clock: Arc<dyn Clock>) -> Arc<EmbeddedStore> {
    let settings = Settings { reserve_bytes: 0, ..Settings::small() };
    let environment = Environment { clock, ..Environment::default() };
    Arc::new(EmbeddedStore::open_in(directory, settings, environment).unwrap())
}

/// Directories that live as long as their harness, which outlives its stores.
#[derive(Default)]
struct Directories(Mutex<Vec<TempDir>>);

impl Directories {
    fn open(&self, clock: Arc<dyn Clock>) -> Arc<EmbeddedStore> {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), clock);
        self.0.lock().unwrap().push(directory);
        store
    }
}

fn one_node() -> impl Harness {
    let directories = Directories::default();
    ManualHarness::new(move |clock| Arc::new(SealedStore::new(directories.open(clock), keys(&[A]))))
}

fn two_nodes() -> impl Harness {
    let directories = Directories::default();
    ManualHarness::new(move |clock| Arc::new(TwoNodes::new(&directories.open(clock))))
}

mod by_one_node {
    use super::*;

    onceward_testkit::store_conformance!(one_node());
}

mod by_two_nodes_that_change_keys {
    use super::*;

    onceward_testkit::store_conformance!(two_nodes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_sealed_embedded_store_answers_as_the_truth_table_does(steps in model::sequences(60)) {
        let compared = compare(&one_node(), &steps);
        proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
    }
}

fn any_file_holds(directory: &Path, canary: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return any_file_holds(&path, canary);
        }
        let bytes = fs::read(&path).unwrap();
        bytes.windows(canary.len()).any(|window| window == canary)
    })
}

#[tokio::test]
async fn no_file_holds_anything_of_a_sealed_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let clock = || Arc::new(onceward_core::SystemAmbient::new());
    let embedded = open(directory.path(), clock());
    complete(&*embedded, "plain", "canary of the open").await;
    complete(&SealedStore::new(Arc::clone(&embedded), keys(&[A])), "sealed", "canary of the shut")
        .await;
    embedded.compact(|_| {}).await.unwrap();
    drop(embedded);
    assert!(any_file_holds(directory.path(), b"canary of the open"), "the search finds");
    assert!(!any_file_holds(directory.path(), b"canary of the shut"));
    let store = SealedStore::new(open(directory.path(), clock()), keys(&[B, A]));
    assert_eq!(replay(&store, "sealed").await.unwrap(), outcome("canary of the shut"));
}
