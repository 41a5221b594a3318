//! A store that fails on demand, an engine on it, and intents, on paused time.

#![allow(dead_code, reason = "not every test file needs everything")]

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Begin, Engine, Fingerprint, Identity, Intent, Key, Outcome, Permit, Policy, PolicyBuilder,
    Record, RecordId, Rejection, Scope, StateName, StoreAdmin, Tag,
};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::FaultyStore;

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// One store and its clock; engines are nodes on it.
pub(crate) struct Bench {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) clock: SimClock,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = SimClock::new();
        Self { store: Arc::new(FaultyStore::over_memory(clock.clone())), clock }
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine_with(policy())
    }

    pub(crate) fn engine_with(&self, policy: PolicyBuilder) -> Engine {
        Engine::builder(self.store.clone()).policy(policy.build().unwrap()).build()
    }

    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.store.get(&id(key)).await.unwrap()
    }

    pub(crate) async fn standing(&self, key: &str) -> Option<StateName> {
        use onceward_core::Clock as _;
        self.record(key).await.and_then(|record| record.standing(self.clock.now()))
    }
}

pub(crate) fn policy() -> PolicyBuilder {
    Policy::builder().lease(LEASE).call_timeout(Duration::from_secs(1))
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant", "caller", "operation").unwrap()
}

pub(crate) fn intent(key: &str) -> Intent {
    Intent::new(scope(), Key::new(key).unwrap(), Fingerprint::of_parts(&[b"request"]))
}

pub(crate) fn other_request(key: &str) -> Intent {
    Intent { fingerprint: Fingerprint::of_parts(&[b"another"]), ..intent(key) }
}

pub(crate) fn id(key: &str) -> RecordId {
    Identity::unkeyed().record_id(&scope(), &Key::new(key).unwrap())
}

pub(crate) fn outcome(text: &str) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.to_owned())
}

pub(crate) async fn permit(engine: &Engine, key: &str) -> Permit {
    match engine.begin(&intent(key)).await.unwrap() {
        Begin::Execute(permit) => permit,
        other => panic!("expected a permit, got {other:?}"),
    }
}

pub(crate) async fn replayed(engine: &Engine, key: &str) -> Outcome {
    match engine.begin(&intent(key)).await.unwrap() {
        Begin::Replay(replay) => replay.outcome,
        other => panic!("expected a replay, got {other:?}"),
    }
}

pub(crate) async fn rejected(engine: &Engine, key: &str) -> Rejection {
    match engine.begin(&intent(key)).await.unwrap() {
        Begin::Reject(rejection) => rejection,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

/// Lets background tasks run, in little time.
pub(crate) async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}
