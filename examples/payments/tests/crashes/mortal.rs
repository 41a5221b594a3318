//! The places where a shop may die, and a store that dies at four of them.

use std::sync::Arc;

use async_trait::async_trait;
use example_payments::Point;
use onceward::{
    Claim, ClaimRequest, Fenced, FullStore, Imported, Lease, Page, Purged, Query, Record, RecordId,
    RenewRequest, ResolveRequest, SettleRequest, Settlement, Stats, Store, StoreAdmin, StoreError,
};

/// Where a shop dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    BeforeClaim,
    AfterClaim,
    BeforeCharge,
    AfterCharge,
    BeforeCompletion,
    AfterCompletion,
}

impl Place {
    const ALL: [(&'static str, Self); 6] = [
        ("before_the_claim", Self::BeforeClaim),
        ("after_the_claim", Self::AfterClaim),
        ("after_the_order_before_the_charge", Self::BeforeCharge),
        ("after_the_charge_before_the_book", Self::AfterCharge),
        ("after_the_book_before_completion", Self::BeforeCompletion),
        ("after_completion_before_the_answer", Self::AfterCompletion),
    ];

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(known, _)| *known == name).expect("a place").1
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, place)| *place == self).expect("a place").0
    }

    /// What the shop watches for.
    pub(crate) fn is_at(self, point: Point) -> bool {
        match point {
            Point::Wanted => self == Self::BeforeCharge,
            Point::Charged => self == Self::AfterCharge,
            Point::Paid => false,
        }
    }
}

/// Says that it is there, and waits to be killed: nothing more leaves this thread.
pub(crate) fn die() -> ! {
    println!("{HERE}");
    loop {
        std::thread::park();
    }
}

pub(crate) const HERE: &str = "to be killed here";

/// A store whose process dies at a place.
pub(crate) struct Mortal {
    pub(crate) store: Arc<dyn FullStore>,
    pub(crate) place: Option<Place>,
}

impl Mortal {
    fn die_at(&self, place: Place, is_order: bool) {
        if is_order && self.place == Some(place) {
            die();
        }
    }
}

#[async_trait]
impl Store for Mortal {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let is_order = request.scope.operation() == "orders.create";
        self.die_at(Place::BeforeClaim, is_order);
        let claim = self.store.claim(request).await;
        self.die_at(Place::AfterClaim, is_order && matches!(claim, Ok(Claim::Granted { .. })));
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
        self.die_at(Place::BeforeCompletion, is_order);
        let settled = self.store.settle(request).await;
        self.die_at(Place::AfterCompletion, is_order && settled.is_ok());
        settled
    }

    async fn changed(&self, id: &RecordId) {
        self.store.changed(id).await;
    }
}

#[async_trait]
impl StoreAdmin for Mortal {
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
