//! Keys, outcomes, and short functions for tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    Claim, Fenced, FullStore, Holder, Outcome, SettleRequest, Settlement, StoreError, Tag,
};
use onceward_stores::sealed::{Keys, SealError, SealedStore};
use onceward_testkit::conformance::{Harness, Traits};

pub(crate) use crate::calls::{DAY, granted, id, request, scope};

pub(crate) const A: &str = "a:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";
pub(crate) const B: &str = "b:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=";

/// Keys in the given order: the first one seals.
pub(crate) fn keys(lines: &[&str]) -> Keys {
    Keys::parse(&lines.join("\n")).unwrap()
}

pub(crate) fn outcome(text: impl Into<String>) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.into().into_bytes())
        .with_resource("payment", "pay_789")
}

pub(crate) async fn settle(
    store: &dyn FullStore,
    key: &str,
    holder: Holder,
    settlement: Settlement,
) -> Result<Fenced<()>, StoreError> {
    store.settle(&SettleRequest { id: id(key), holder, settlement, retention: DAY }).await
}

/// Claims a key and completes it.
pub(crate) async fn complete(store: &dyn FullStore, key: &str, text: &str) -> Holder {
    let holder = granted(store, key).await;
    let settled = settle(store, key, holder, Settlement::Complete(outcome(text))).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
    holder
}

/// Returns the outcome that a key replays.
pub(crate) async fn replay(store: &dyn FullStore, key: &str) -> Result<Outcome, StoreError> {
    match store.claim(&request(key)).await? {
        Claim::Completed { outcome, .. } => Ok(outcome),
        other => panic!("{key}: {other:?}"),
    }
}

/// The stores of another harness, sealed.
pub(crate) struct SealedOver<H>(pub(crate) H);

#[async_trait]
impl<H: Harness> Harness for SealedOver<H> {
    fn traits(&self) -> Traits {
        self.0.traits()
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(SealedStore::new(self.0.open().await, keys(&[A])))
    }

    async fn pass(&self, duration: Duration) {
        self.0.pass(duration).await;
    }
}

/// The error of a sealed store.
pub(crate) fn sealing(error: &StoreError) -> &SealError {
    let source = error.source.as_deref().expect("a source");
    source.downcast_ref().unwrap_or_else(|| panic!("{source}"))
}
