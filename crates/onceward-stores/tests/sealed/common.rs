//! Keys, outcomes, and short words for what tests do to stores.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fenced, Fingerprint, FullStore, Holder, Identity, Key, Lapsed,
    OperationId, Outcome, OwnerToken, RecordId, Retention, Scope, SettleRequest, Settlement,
    Sketch, StoreError, SystemAmbient, Tag,
};
use onceward_stores::sealed::{Keys, SealError};

pub(crate) const A: &str = "a:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";
pub(crate) const B: &str = "b:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=";

pub(crate) const DAY: Retention =
    Retention { keep: Duration::from_secs(86_400), tombstone: Duration::ZERO };

/// Keys in the order that they are given, so that the first one seals.
pub(crate) fn keys(lines: &[&str]) -> Keys {
    Keys::parse(&lines.join("\n")).unwrap()
}

pub(crate) fn id(key: &str) -> RecordId {
    Identity::unkeyed().record_id(&scope(), &Key::new(key).unwrap())
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant", "caller", "operation").unwrap()
}

pub(crate) fn request(key: &str) -> ClaimRequest {
    let ambient = SystemAmbient::new();
    ClaimRequest {
        id: id(key),
        owner: OwnerToken::draw(&ambient),
        operation: OperationId::draw(&ambient),
        scope: scope(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"request"]),
        sketch: Sketch::default(),
        lease: Duration::from_secs(30),
        lapsed: Lapsed::Unknown,
    }
}

pub(crate) async fn granted(store: &dyn FullStore, key: &str) -> Holder {
    let request = request(key);
    match store.claim(&request).await.unwrap() {
        Claim::Granted { lease, .. } => Holder { owner: request.owner, fence: lease.fence },
        other => panic!("{key}: {other:?}"),
    }
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

/// What a key replays.
pub(crate) async fn replay(store: &dyn FullStore, key: &str) -> Result<Outcome, StoreError> {
    match store.claim(&request(key)).await? {
        Claim::Completed { outcome, .. } => Ok(outcome),
        other => panic!("{key}: {other:?}"),
    }
}

/// What a sealed store complained about.
pub(crate) fn sealing(error: &StoreError) -> &SealError {
    let source = error.source.as_deref().expect("a source");
    source.downcast_ref().unwrap_or_else(|| panic!("{source}"))
}
