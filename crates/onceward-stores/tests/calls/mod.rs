//! Short functions for the calls of tests.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fenced, Fingerprint, Holder, Identity, Key, Lapsed, OperationId, Outcome,
    OwnerToken, RecordId, Retention, Scope, SettleRequest, Settlement, Sketch, Store, StoreError,
    SystemAmbient, Tag, UnknownCause, Unpurged,
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
        operation: OperationId::draw(&ambient, &id(key)),
        scope: scope(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"request"]),
        sketch: Sketch::default(),
        path: None,
        lease: Duration::from_secs(30),
        lapsed: Lapsed::Unknown,
        unpurged: Unpurged::Replace,
    }
}

pub(crate) async fn granted(store: &(impl Store + ?Sized), key: &str) -> Holder {
    let request = request(key);
    match store.claim(&request).await.unwrap() {
        Claim::Granted { lease, .. } => Holder { owner: request.owner, fence: lease.fence },
        other => panic!("{key}: {other:?}"),
    }
}

pub(crate) fn unknown() -> Settlement {
    Settlement::Unknown(UnknownCause::Reported(None))
}

pub(crate) fn outcome(text: impl Into<String>) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.into().into_bytes())
}

pub(crate) async fn settle(
    store: &(impl Store + ?Sized),
    key: &str,
    holder: Holder,
    settlement: Settlement,
    retention: Retention,
) -> Result<Fenced<()>, StoreError> {
    store.settle(&SettleRequest { id: id(key), holder, settlement, retention }).await
}

/// Claims a key and completes it.
pub(crate) async fn complete(store: &(impl Store + ?Sized), key: &str, text: &str) {
    let holder = granted(store, key).await;
    let settlement = Settlement::Complete(outcome(text));
    let settled = settle(store, key, holder, settlement, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
}

/// Returns the outcome that a key replays.
pub(crate) async fn replay(store: &(impl Store + ?Sized), key: &str) -> String {
    match store.claim(&request(key)).await.unwrap() {
        Claim::Completed { outcome, .. } => String::from_utf8(outcome.bytes.to_vec()).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

/// True if long-running tests do more than usual: set `ONCEWARD_LONG=1`.
pub(crate) fn long() -> bool {
    std::env::var_os("ONCEWARD_LONG").is_some_and(|it| it == "1")
}

/// Number of kills of a process; `ONCEWARD_KILLS` overrides the default.
pub(crate) fn kills(usual: u32) -> u32 {
    std::env::var("ONCEWARD_KILLS").map_or(usual, |it| it.parse().unwrap())
}

/// Polls until a condition holds, for at most ten seconds.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
