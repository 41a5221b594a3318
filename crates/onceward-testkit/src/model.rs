//! Random sequences of calls of a store and of the truth table, compared answer by answer.
//!
//! The store under test may have its own clock and its own fence numbers. So these are compared by
//! meaning: the same grants, the same refusals, the same outcomes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fence, Fenced, Fingerprint, FullStore, Holder, Identity,
    InvalidateRequest, Key, Lapsed, OperationId, Outcome, OwnerToken, Record, RecordId,
    RenewRequest, RequestPath, ResolveRequest, Retention, Scope, SettleRequest, Settlement, Sketch,
    State, StateName, Store as _, StoreAdmin as _, Tag, UnknownCause, Unpurged, Verdict,
};
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};

use crate::clock::ManualClock;
use crate::conformance::Harness;
use crate::open_store::OpenStore;

/// One step of a sequence. Numbers name keys, tokens and grants; they are reduced to what
/// exists, so that any sequence makes sense and shrinks well.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum Step {
    Claim { key: u8, token: Option<u8>, request: u8, lapsed: bool },
    Renew { grant: u8 },
    Settle { grant: u8, how: Settling, forged: bool },
    Resolve { grant: u8, how: Settling },
    Invalidate { grant: u8 },
    Purge,
    Pass { half_leases: u8 },
}

/// A settlement of a grant.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named after the settlements")]
pub enum Settling {
    Complete(u8),
    Fail(u8),
    Unknown,
    Release,
}

/// Sequences of up to `steps` steps.
pub fn sequences(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..steps)
}

fn step() -> BoxedStrategy<Step> {
    let small = 0u8..3;
    let claim = (small.clone(), proptest::option::weighted(0.2, 0u8..8), 0u8..8, 0u8..3);
    prop_oneof![
        6 => claim.prop_map(|(key, token, request, lapsed)| {
            Step::Claim { key, token, request: u8::from(request == 0), lapsed: lapsed == 0 }
        }),
        2 => (0u8..8).prop_map(|grant| Step::Renew { grant }),
        5 => (0u8..8, settling(), 0u8..8).prop_map(|(grant, how, forged)| {
            Step::Settle { grant, how, forged: forged == 0 }
        }),
        2 => (0u8..8, settling()).prop_map(|(grant, how)| Step::Resolve { grant, how }),
        1 => (0u8..8).prop_map(|grant| Step::Invalidate { grant }),
        1 => Just(Step::Purge),
        3 => (1u8..9).prop_map(|half_leases| Step::Pass { half_leases }),
    ]
    .boxed()
}

fn settling() -> BoxedStrategy<Settling> {
    prop_oneof![
        (0u8..2).prop_map(Settling::Complete),
        (0u8..2).prop_map(Settling::Fail),
        Just(Settling::Unknown),
        Just(Settling::Release),
    ]
    .boxed()
}

/// Runs a sequence on a fresh store of the harness and on the truth table. `Err` tells where they
/// differ.
pub async fn compare(harness: &dyn Harness, steps: &[Step]) -> Result<(), String> {
    let mut pair = Pair::open(harness).await;
    for (position, step) in steps.iter().enumerate() {
        let (store, model) = pair.take(step).await;
        if store != model {
            return Err(format!("step {position}, {step:?}: store {store}, truth table {model}"));
        }
        let (store, model) = pair.standings().await;
        if store != model {
            return Err(format!("after step {position}, {step:?}: store {store}, model {model}"));
        }
    }
    Ok(())
}

/// A grant of both, with the fence of each.
#[derive(Debug, Clone, Copy)]
struct Grant {
    id: RecordId,
    owner: OwnerToken,
    store: Fence,
    model: Fence,
}

struct Pair<'a> {
    harness: &'a dyn Harness,
    lease: Duration,
    store: Arc<dyn FullStore>,
    model: OpenStore,
    clock: ManualClock,
    grants: Vec<Grant>,
    tokens: u8,
    names: HashMap<OperationId, usize>,
}

impl<'a> Pair<'a> {
    async fn open(harness: &'a dyn Harness) -> Self {
        let clock = ManualClock::new();
        Self {
            harness,
            lease: harness.traits().lease,
            store: harness.open().await,
            model: OpenStore::new(Arc::new(clock.clone())),
            clock,
            grants: Vec::new(),
            tokens: 0,
            names: HashMap::new(),
        }
    }

    async fn take(&mut self, step: &Step) -> (String, String) {
        match *step {
            Step::Claim { key, token, request, lapsed } => {
                self.claim(key, token, request, lapsed).await
            }
            Step::Renew { grant } => self.renew(grant).await,
            Step::Settle { grant, how, forged } => self.settle(grant, how, forged).await,
            Step::Resolve { grant, how } => self.resolve(grant, how).await,
            Step::Invalidate { grant } => self.invalidate(grant).await,
            Step::Purge => {
                let store = self.store.purge(100).await.unwrap();
                let model = self.model.purge(100).await.unwrap();
                (format!("{store:?}"), format!("{model:?}"))
            }
            Step::Pass { half_leases } => {
                let duration = self.lease / 2 * u32::from(half_leases);
                self.harness.pass(duration).await;
                self.clock.advance(duration);
                (String::new(), String::new())
            }
        }
    }

    async fn claim(
        &mut self,
        key: u8,
        token: Option<u8>,
        request: u8,
        lapsed: bool,
    ) -> (String, String) {
        let token = token.filter(|token| *token < self.tokens).unwrap_or(self.tokens);
        self.tokens = self.tokens.max(token.saturating_add(1));
        let request = ClaimRequest {
            id: id(key),
            owner: OwnerToken::from_bytes([token; 16]),
            operation: OperationId::from(uuid(self.names.len())),
            scope: scope(),
            key: None,
            fingerprint: Fingerprint::of_parts(&[&[request]]),
            sketch: Sketch::from_stored(&[request; 6]),
            path: Some(RequestPath::new(&format!("/requests/{request}"))),
            lease: self.lease,
            lapsed: if lapsed { Lapsed::Takeover } else { Lapsed::Unknown },
            unpurged: Unpurged::Replace,
        };
        self.names.insert(request.operation, self.names.len());
        let store = self.store.claim(&request).await.unwrap();
        let model = self.model.claim(&request).await.unwrap();
        if let (Claim::Granted { lease: a, .. }, Claim::Granted { lease: b, .. }) = (&store, &model)
        {
            let (id, owner) = (request.id, request.owner);
            self.grants.push(Grant { id, owner, store: a.fence, model: b.fence });
        }
        (self.meaning(&store), self.meaning(&model))
    }

    /// A claim's answer without what depends on the store's own clock and numbering.
    fn meaning(&self, claim: &Claim) -> String {
        let name = |operation: &OperationId| self.names.get(operation);
        match claim {
            Claim::Granted { operation, attempt, .. } => {
                format!("granted {:?}, attempt {attempt}", name(operation))
            }
            Claim::Running { operation, .. } => format!("running {:?}", name(operation)),
            Claim::Completed { operation, outcome } => {
                format!("completed {:?} {:?}", name(operation), outcome.bytes)
            }
            Claim::Failed { operation, outcome } => {
                format!("failed {:?} {:?}", name(operation), outcome.bytes)
            }
            Claim::Unknown { operation } => format!("unknown {:?}", name(operation)),
            Claim::Mismatch { first } => format!("mismatch with {:?}", first.as_bytes()),
            Claim::Expired => "expired".to_owned(),
        }
    }

    fn grant(&self, number: u8) -> Option<Grant> {
        let count = self.grants.len();
        (count > 0).then(|| self.grants[count - 1 - usize::from(number) % count])
    }

    async fn renew(&self, grant: u8) -> (String, String) {
        let Some(it) = self.grant(grant) else { return Default::default() };
        let request = |fence| RenewRequest {
            id: it.id,
            holder: Holder { owner: it.owner, fence },
            lease: self.lease,
        };
        let store = self.store.renew(&request(it.store)).await.unwrap();
        let model = self.model.renew(&request(it.model)).await.unwrap();
        (fenced(&store), fenced(&model))
    }

    async fn settle(&self, grant: u8, how: Settling, forged: bool) -> (String, String) {
        let Some(it) = self.grant(grant) else { return Default::default() };
        let owner = if forged { OwnerToken::from_bytes([255; 16]) } else { it.owner };
        let request = |fence| SettleRequest {
            id: it.id,
            holder: Holder { owner, fence },
            settlement: how.settlement(),
            retention: self.retention(),
        };
        let store = self.store.settle(&request(it.store)).await.unwrap();
        let model = self.model.settle(&request(it.model)).await.unwrap();
        (fenced(&store), fenced(&model))
    }

    async fn resolve(&self, grant: u8, how: Settling) -> (String, String) {
        let Some(it) = self.grant(grant) else { return Default::default() };
        let verdict = match how {
            Settling::Complete(text) | Settling::Fail(text) => Verdict::Happened(outcome(text)),
            Settling::Unknown => Verdict::StillUnknown,
            Settling::Release => Verdict::DidNotHappen,
        };
        let request = |fence| ResolveRequest {
            id: it.id,
            fence,
            verdict: verdict.clone(),
            retention: self.retention(),
        };
        let store = self.store.resolve(&request(it.store)).await.unwrap();
        let model = self.model.resolve(&request(it.model)).await.unwrap();
        (fenced(&store), fenced(&model))
    }

    async fn invalidate(&self, grant: u8) -> (String, String) {
        let Some(it) = self.grant(grant) else { return Default::default() };
        let request = |fence| InvalidateRequest { id: it.id, fence };
        let store = self.store.invalidate(&request(it.store)).await.unwrap();
        let model = self.model.invalidate(&request(it.model)).await.unwrap();
        (fenced(&store), fenced(&model))
    }

    /// The present state of every key, in both.
    async fn standings(&self) -> (String, String) {
        let (mut store, mut model) = (String::new(), String::new());
        for key in 0..3 {
            store += &self.standing(self.store.get(&id(key)).await.unwrap());
            model += &self.standing(self.model.get(&id(key)).await.unwrap());
        }
        (store, model)
    }

    /// The meaning of a stored record. A lapse may or may not be stored.
    fn standing(&self, record: Option<Record>) -> String {
        let Some(record) = record else { return "absent; ".into() };
        let state = match &record.state {
            State::Running { .. } | State::Unknown { .. } => StateName::Unknown,
            state => state.name(),
        };
        let outcome = record.state.outcome().map(|outcome| outcome.bytes.clone());
        format!("{state} {outcome:?} attempt {}; ", record.attempts)
    }

    fn retention(&self) -> Retention {
        Retention { keep: self.lease * 3, tombstone: self.lease * 2 }
    }
}

impl Settling {
    fn settlement(self) -> Settlement {
        match self {
            Self::Complete(text) => Settlement::Complete(outcome(text)),
            Self::Fail(text) => Settlement::Fail(outcome(text)),
            Self::Unknown => Settlement::Unknown(UnknownCause::Reported(None)),
            Self::Release => Settlement::Release,
        }
    }
}

fn fenced<T>(fenced: &Fenced<T>) -> String {
    match fenced {
        Fenced::Applied(_) => "applied".into(),
        Fenced::Stale => "stale".into(),
        Fenced::Missing => "missing".into(),
    }
}

fn outcome(text: u8) -> Outcome {
    Outcome::whole(Tag::from_static("model/v1"), vec![text])
}

fn scope() -> Scope {
    Scope::new("tenant", "caller", "operation").unwrap()
}

fn id(key: u8) -> RecordId {
    Identity::unkeyed().record_id(&scope(), &Key::new(format!("key-{key}")).unwrap())
}

fn uuid(number: usize) -> uuid::Uuid {
    uuid::Uuid::from_u128(number as u128)
}
