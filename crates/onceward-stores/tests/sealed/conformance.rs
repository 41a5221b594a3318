//! The conformance suite over memory: sealed with and without compression, and by two nodes in the
//! middle of a change of keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Clock, Fenced, FullStore, Imported, InvalidateRequest, Lease,
    MemoryLimits, MemoryStore, Page, Purged, Query, Record, RecordId, RenewRequest, ResolveRequest,
    SettleRequest, Stats, Store, StoreAdmin, StoreError,
};
use onceward_stores::sealed::{Compression, SealedStore, Sealing};
use onceward_testkit::conformance::{Harness, ManualHarness};
use onceward_testkit::model;
use proptest::prelude::ProptestConfig;
use proptest::proptest;

use super::common::{A, B, keys};

fn memory(clock: Arc<dyn Clock>) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with(MemoryLimits::default(), clock))
}

fn over_memory(compression: Compression) -> impl Harness {
    ManualHarness::new(move |clock| {
        let sealing = Sealing { compression, ..keys(&[A]).into() };
        Arc::new(SealedStore::new(memory(clock), sealing))
    })
}

/// Two nodes on one store, which seal with different keys and take turns: each has to understand
/// what the other wrote.
pub(crate) struct TwoNodes<S> {
    nodes: [SealedStore<S>; 2],
    turn: AtomicUsize,
}

impl<S> TwoNodes<S> {
    pub(crate) fn new(inner: &Arc<S>) -> Self {
        let node = |lines: &[&str]| SealedStore::new(Arc::clone(inner), keys(lines));
        Self { nodes: [node(&[A, B]), node(&[B, A])], turn: AtomicUsize::new(0) }
    }

    fn next(&self) -> &SealedStore<S> {
        &self.nodes[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

#[async_trait]
impl<S: FullStore> Store for TwoNodes<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.next().claim(request).await
    }
    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.next().renew(request).await
    }
    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.next().settle(request).await
    }
}

#[async_trait]
impl<S: FullStore> StoreAdmin for TwoNodes<S> {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.next().get(id).await
    }
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.next().list(query).await
    }
    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.next().resolve(request).await
    }
    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.next().invalidate(request).await
    }
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.next().purge(limit).await
    }
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.next().stats().await
    }
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.next().import(record).await
    }
}

fn two_nodes() -> impl Harness {
    ManualHarness::new(|clock| Arc::new(TwoNodes::new(&memory(clock))))
}

pub(crate) fn compare(harness: &dyn Harness, steps: &[model::Step]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model::compare(harness, steps))
}

mod compressed {
    use super::*;

    onceward_testkit::store_conformance!(over_memory(Compression::Above(0)));
}

mod not_compressed {
    use super::*;

    onceward_testkit::store_conformance!(over_memory(Compression::Off));
}

mod by_two_nodes_that_change_keys {
    use super::*;

    onceward_testkit::store_conformance!(two_nodes());
}

/// The inner store may be one that is known only at run time.
mod over_a_shared_store {
    use super::*;

    onceward_testkit::store_conformance!(ManualHarness::new(|clock| {
        let inner: Arc<dyn FullStore> = memory(clock);
        Arc::new(SealedStore::new(inner, keys(&[A])))
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_sealed_store_answers_as_the_truth_table_does(steps in model::sequences(60)) {
        let compared = compare(&over_memory(Compression::Above(0)), &steps);
        proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
    }

    #[test]
    fn two_nodes_that_change_keys_answer_as_the_truth_table_does(steps in model::sequences(60)) {
        let compared = compare(&two_nodes(), &steps);
        proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
    }
}
