//! The points at which the shop is killed, and a store that stops at four of them.

use std::sync::Arc;

use async_trait::async_trait;
use example_payments::Checkpoint;
use onceward::{
    Claim, ClaimRequest, Fenced, FullStore, Imported, InvalidateRequest, Lease, Page, Purged,
    Query, Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Settlement, Stats, Store,
    StoreAdmin, StoreError,
};

/// Point at which a shop is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    BeforeClaim,
    AfterClaim,
    BeforeCharge,
    AfterCharge,
    BeforeCompletion,
    AfterCompletion,
}

impl CrashPoint {
    pub(crate) const ALL: [(&'static str, Self); 6] = [
        ("before_the_claim", Self::BeforeClaim),
        ("after_the_claim", Self::AfterClaim),
        ("after_the_order_before_the_charge", Self::BeforeCharge),
        ("after_the_charge_before_the_book", Self::AfterCharge),
        ("after_the_book_before_completion", Self::BeforeCompletion),
        ("after_completion_before_the_answer", Self::AfterCompletion),
    ];

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(known, _)| *known == name).expect("a known crash point").1
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, point)| *point == self).expect("a known crash point").0
    }

    /// Returns true if the shop is killed at a checkpoint of its handler.
    pub(crate) fn is_at(self, checkpoint: Checkpoint) -> bool {
        match checkpoint {
            Checkpoint::OrderLogged => self == Self::BeforeCharge,
            Checkpoint::ProviderCalled => self == Self::AfterCharge,
            Checkpoint::PaymentLogged => false,
        }
    }
}

/// Prints the ready line and blocks this thread until the process is killed.
pub(crate) fn wait_for_kill() -> ! {
    println!("{READY_TO_BE_KILLED}");
    loop {
        std::thread::park();
    }
}

pub(crate) const READY_TO_BE_KILLED: &str = "ready to be killed";

/// Decorator of a store: stops at a crash point, until the process is killed.
pub(crate) struct CrashingStore {
    pub(crate) store: Arc<dyn FullStore>,
    pub(crate) crash_point: Option<CrashPoint>,
}

impl CrashingStore {
    fn crash_at(&self, point: CrashPoint, is_order: bool) {
        if is_order && self.crash_point == Some(point) {
            wait_for_kill();
        }
    }
}

#[async_trait]
impl Store for CrashingStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let is_order = request.scope.operation() == "orders.create";
        self.crash_at(CrashPoint::BeforeClaim, is_order);
        let claim = self.store.claim(request).await;
        self.crash_at(
            CrashPoint::AfterClaim,
            is_order && matches!(claim, Ok(Claim::Granted { .. })),
        );
        claim
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.store.renew(request).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let is_order = matches!(
            &request.settlement,
            Settlement::Complete(outcome) if outcome.tag.as_str() == "http/v1"
        );
        self.crash_at(CrashPoint::BeforeCompletion, is_order);
        let settled = self.store.settle(request).await;
        self.crash_at(CrashPoint::AfterCompletion, is_order && settled.is_ok());
        settled
    }

    async fn changed(&self, id: &RecordId) {
        self.store.changed(id).await;
    }
}

#[async_trait]
impl StoreAdmin for CrashingStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.store.get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.store.resolve(request).await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.store.invalidate(request).await
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
