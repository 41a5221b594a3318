//! Short names for the calls that the cases make.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Ended, Fenced, Fingerprint, FullStore, Holder, Identity,
    InvalidateRequest, Key, Lapsed, Lease, OperationId, Outcome, OwnerToken, Record, RecordId,
    RenewRequest, Replay, RequestPath, ResolveRequest, Retention, Scope, SettleRequest, Settlement,
    Sketch, SystemAmbient, Tag, UnknownCause, Unpurged, Verdict,
};

use super::Harness;

/// A store under test, with short names for its calls.
pub struct Rig<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) store: Arc<dyn FullStore>,
    pub(super) lease: Duration,
    pub(super) ambient: SystemAmbient,
}

impl std::fmt::Debug for Rig<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl<'a> Rig<'a> {
    /// A fresh store of a harness.
    pub async fn new(harness: &'a dyn Harness) -> Self {
        let lease = harness.traits().lease;
        Self { harness, store: harness.open().await, lease, ambient: SystemAmbient::new() }
    }

    pub(super) fn scope(tenant: &str) -> Scope {
        Scope::new(tenant, "caller", "operation").unwrap()
    }

    pub(super) fn id(key: &str) -> RecordId {
        Identity::unkeyed().record_id(&Self::scope("tenant"), &Key::new(key).unwrap())
    }

    /// A claim request for a key, with a fresh token.
    pub(super) fn request(&self, key: &str) -> ClaimRequest {
        self.request_of("tenant", key)
    }

    pub(super) fn request_of(&self, tenant: &str, key: &str) -> ClaimRequest {
        let scope = Self::scope(tenant);
        let id = Identity::unkeyed().record_id(&scope, &Key::new(key).unwrap());
        ClaimRequest {
            id,
            owner: OwnerToken::draw(&self.ambient),
            operation: OperationId::draw(&self.ambient, &id),
            scope,
            key: None,
            fingerprint: Fingerprint::of_parts(&[b"request"]),
            sketch: Sketch::from_stored(b"first."),
            path: Some(RequestPath::new("/orders/42")),
            lease: self.lease,
            lapsed: Lapsed::Unknown,
            unpurged: Unpurged::Replace,
        }
    }

    /// Claims, and checks that [`Store::recall`] agrees with the answer, before and after it.
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Claim {
        let recall = || self.store.recall(&request.id, &request.fingerprint);
        let before = recall();
        let claim = self.store.claim(request).await.unwrap();
        let replay = settled(&claim);
        if before.is_some() {
            assert!(self.store.recalls(), "recalled an outcome, although it never does");
            assert_eq!(before, replay, "recalled what a claim does not say");
        }
        if replay.is_some() && self.store.recalls() {
            assert_eq!(recall(), replay, "a settled record is not recalled");
        }
        claim
    }

    pub(super) async fn granted(&self, request: &ClaimRequest) -> Granted {
        match self.claim(request).await {
            Claim::Granted { lease, operation, attempt } => {
                let holder = Holder { owner: request.owner, fence: lease.fence };
                Granted { id: request.id, holder, lease, operation, attempt }
            }
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    /// Claims a key that must be free.
    pub(super) async fn running(&self, key: &str) -> Granted {
        self.granted(&self.request(key)).await
    }

    pub(super) async fn settle(&self, granted: &Granted, settlement: Settlement) -> Fenced<()> {
        self.settle_for(granted, settlement, self.retention()).await
    }

    pub(super) async fn settle_for(
        &self,
        granted: &Granted,
        settlement: Settlement,
        retention: Retention,
    ) -> Fenced<()> {
        let (id, holder) = (granted.id, granted.holder);
        self.store.settle(&SettleRequest { id, holder, settlement, retention }).await.unwrap()
    }

    pub(super) async fn resolve(&self, granted: &Granted, verdict: Verdict) -> Fenced<()> {
        let (id, fence, retention) = (granted.id, granted.holder.fence, self.retention());
        self.store.resolve(&ResolveRequest { id, fence, verdict, retention }).await.unwrap()
    }

    pub(super) async fn invalidate(&self, granted: &Granted) -> Fenced<()> {
        let request = InvalidateRequest { id: granted.id, fence: granted.holder.fence };
        self.store.invalidate(&request).await.unwrap()
    }

    pub(super) async fn renew(&self, granted: &Granted) -> Fenced<Lease> {
        let (id, holder, lease) = (granted.id, granted.holder, self.lease);
        self.store.renew(&RenewRequest { id, holder, lease }).await.unwrap()
    }

    pub(super) async fn lapse(&self) {
        self.harness.pass(self.lease + self.lease / 2).await;
    }

    pub(super) async fn get(&self, key: &str) -> Option<Record> {
        self.store.get(&Self::id(key)).await.unwrap()
    }

    pub(super) fn retention(&self) -> Retention {
        Retention { keep: self.lease * 100, tombstone: Duration::ZERO }
    }
}

/// A granted claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) id: RecordId,
    pub(super) holder: Holder,
    pub(super) lease: Lease,
    pub(super) operation: OperationId,
    pub(super) attempt: u32,
}

/// Returns the outcome that a claim replays.
fn settled(claim: &Claim) -> Option<Replay> {
    let (operation, ended, outcome) = match claim {
        Claim::Completed { operation, outcome } => (*operation, Ended::Completed, outcome),
        Claim::Failed { operation, outcome } => (*operation, Ended::Failed, outcome),
        _ => return None,
    };
    Some(Replay { operation, ended, outcome: outcome.clone() })
}

pub(super) fn outcome(text: &str) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.to_owned().into_bytes())
}

pub(super) fn complete(text: &str) -> Settlement {
    Settlement::Complete(outcome(text))
}

pub(super) fn unknown() -> Settlement {
    Settlement::Unknown(UnknownCause::Reported(None))
}

pub(super) const APPLIED: Fenced<()> = Fenced::Applied(());
