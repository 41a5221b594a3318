//! Short words for what tests ask of a store.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fingerprint, Holder, Identity, Key, Lapsed, OperationId, OwnerToken,
    RecordId, Retention, Scope, Sketch, Store, SystemAmbient,
};

pub(crate) const DAY: Retention =
    Retention { keep: Duration::from_secs(86_400), tombstone: Duration::ZERO };

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

pub(crate) async fn granted(store: &(impl Store + ?Sized), key: &str) -> Holder {
    let request = request(key);
    match store.claim(&request).await.unwrap() {
        Claim::Granted { lease, .. } => Holder { owner: request.owner, fence: lease.fence },
        other => panic!("{key}: {other:?}"),
    }
}
