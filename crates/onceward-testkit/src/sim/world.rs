//! One run: nodes, clients, a store, a ledger, and faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{
    Clock, FullStore, INTERNAL_TENANT, MemoryLimits, MemoryStore, OnLapse, Query, ReconcilerRound,
    Record, StateName, StoreAdmin,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client;
use super::ledger::{Care, Ledger};
use super::mutant::{Mutant, Naive};
use super::node::{Node, SKEW_MS_MAX};
use super::plan::Plan;
use super::{Coverage, Report};
use crate::clock::SimClock;
use crate::dice::Dice;
use crate::history::{
    Answer, Attempt, Event, Expectations, History, RecordingStore, StoreCall, Transition, check,
};
use crate::open_store::OpenStore;

/// Longest lease of the core's own records, that of a decision.
const INTERNAL_LEASE_MAX: Duration = Duration::from_secs(30);

/// The parts that everything in a run shares.
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) plan: Plan,
    pub(super) mutant: Option<Mutant>,
    pub(super) clock: SimClock,
    pub(super) store: Arc<RecordingStore>,
    pub(super) ledger: Ledger,
    pub(super) history: History,
    pub(super) naive: Mutex<Naive>,
    nodes: Mutex<Vec<Arc<Node>>>,
    down_until: Mutex<Instant>,
    calm: AtomicBool,
    attempts: AtomicU64,
    jumped_ms: AtomicU64,
    coverage: Mutex<Coverage>,
}

/// Runs a seed to its end and checks its history.
pub(super) async fn run(seed: u64, mutant: Option<Mutant>) -> Report {
    let dice = Dice::new(seed);
    let plan = plan(&dice, mutant);
    let world = Arc::new(World::new(dice, plan, mutant));
    for _ in 0..world.plan.nodes {
        let node = Node::start(&world);
        world.nodes.lock().push(node);
    }
    let trouble = tokio::spawn(trouble(Arc::clone(&world)));
    let mut clients = JoinSet::new();
    for _ in 0..world.plan.clients {
        clients.spawn(client::run(Arc::clone(&world)));
    }
    clients.join_all().await;
    let _ended = trouble.await;
    let left = world.settle_down().await;
    // Nodes and world refer to each other; without this, every seed would leak its world.
    world.nodes.lock().clear();
    world.report(seed, &left)
}

fn plan(dice: &Dice, mutant: Option<Mutant>) -> Plan {
    let mut plan = Plan::choose(dice);
    if mutant == Some(Mutant::BlindTakeover) {
        let policy = plan.policy.to_builder().on_lapse(OnLapse::Takeover).build();
        let policy = policy.expect("a valid policy");
        plan.policy = policy;
    }
    plan
}

impl World {
    fn new(dice: Dice, plan: Plan, mutant: Option<Mutant>) -> Self {
        let (clock, history) = (SimClock::new(), History::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let truth: Arc<dyn FullStore> = match mutant {
            Some(Mutant::Store(mutant)) => {
                Arc::new(OpenStore::mutated(Arc::clone(&shared), mutant))
            }
            _ => Arc::new(MemoryStore::with(MemoryLimits::default(), Arc::clone(&shared))),
        };
        let store = RecordingStore::new(truth, shared, history.clone());
        let takeover = plan.policy.on_lapse() == OnLapse::Takeover;
        let careful = takeover && mutant != Some(Mutant::BlindTakeover);
        let care = if careful { Care::FencedAndIdempotent } else { Care::None };
        Self {
            dice,
            plan,
            mutant,
            clock,
            store: Arc::new(store),
            ledger: Ledger::new(care, history.clone()),
            history,
            naive: Mutex::default(),
            nodes: Mutex::default(),
            down_until: Mutex::new(Instant::now()),
            calm: AtomicBool::new(false),
            attempts: AtomicU64::new(0),
            jumped_ms: AtomicU64::new(0),
            coverage: Mutex::default(),
        }
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.plan.policy.lease().as_millis() as u64
    }

    pub(super) fn takes_over(&self) -> bool {
        self.plan.policy.on_lapse() == OnLapse::Takeover
    }

    pub(super) fn next_attempt(&self) -> Attempt {
        Attempt(self.attempts.fetch_add(1, Ordering::SeqCst))
    }

    pub(super) fn some_node(&self) -> Option<Arc<Node>> {
        let nodes = self.nodes.lock();
        nodes.get(self.dice.index(nodes.len())).cloned()
    }

    pub(super) fn store_is_down(&self) -> bool {
        Instant::now() < *self.down_until.lock()
    }

    /// Returns whether a fault occurs now, and counts it if so.
    pub(super) fn strikes(&self, fault: &'static str, rate: f64) -> bool {
        self.occurs(fault, !self.calm.load(Ordering::SeqCst) && self.dice.chance(rate))
    }

    /// Counts something if it occurs.
    pub(super) fn occurs(&self, what: &'static str, occurs: bool) -> bool {
        if occurs {
            self.count(what);
        }
        occurs
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.coverage.lock().entry(what).or_default() += 1;
    }

    /// Counts what a reconciler met in a round.
    pub(super) fn count_round(&self, round: &ReconcilerRound) {
        self.occurs("reconciler: round failed", round.failed.is_some());
        self.occurs("reconciler: happened", round.happened > 0);
        self.occurs("reconciler: did not happen", round.did_not_happen > 0);
        self.occurs("reconciler: still unknown", round.still_unknown > 0);
        self.occurs("reconciler: settled elsewhere", round.settled_elsewhere > 0);
        self.occurs("reconciler: not due", round.resting > 0);
        self.occurs("reconciler: over budget", round.over_budget > 0);
    }

    /// Waits for as long as a message travels.
    pub(super) async fn travel(&self) {
        let late = self.strikes("message late", self.plan.rates.late);
        let most = if late { self.lease_ms() * 2 } else { 4 };
        sleep(self.dice.millis(0..most)).await;
    }

    /// Gives every lease time to lapse and the reconcilers time to settle what is unknown, and
    /// returns the records that are left.
    async fn settle_down(&self) -> Vec<Record> {
        let lease = self.plan.policy.lease();
        let jumped = Duration::from_millis(self.jumped_ms.load(Ordering::SeqCst));
        sleep(lease * 6 + jumped).await;
        if let Some(settings) = &self.plan.reconciler {
            let skew = Duration::from_millis(SKEW_MS_MAX);
            let round = settings.backoff_max + settings.every + settings.patience * 3;
            self.reconciled(skew + jumped + round * 2).await;
            self.nodes.lock().iter().for_each(|node| node.stop_reconciler());
            // No task runs any more, so simulated time costs nothing.
            sleep(INTERNAL_LEASE_MAX + jumped).await;
        }
        let query = Query { limit: 10_000, ..Query::default() };
        self.store.list(&query).await.map(|page| page.records).unwrap_or_default()
    }

    /// Returns when nothing is unknown any more, or when reconcilers have had that much time.
    async fn reconciled(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let query = Query { standing: Some(StateName::Unknown), ..Query::default() };
        while Instant::now() < end {
            let page = self.store.list(&query).await.unwrap_or_default();
            if page.records.iter().all(|record| record.scope.tenant() == INTERNAL_TENANT) {
                return;
            }
            sleep(self.plan.policy.lease()).await;
        }
    }

    fn report(&self, seed: u64, left: &[Record]) -> Report {
        let events = self.history.events();
        let expectations = Expectations {
            takeover: self.takes_over(),
            reconciler: self.plan.reconciler.is_some(),
            claims_elsewhere: self.mutant == Some(Mutant::LookThenLock),
        };
        let violations = check(&events, left, self.clock.now(), expectations);
        events.iter().filter_map(situation).for_each(|what| self.count(what));
        let coverage = self.coverage.lock().clone();
        Report { seed, plan: self.plan.clone(), events, violations, coverage }
    }
}

/// Causes crashes, pauses, outages and clock jumps for the time of the plan.
async fn trouble(world: Arc<World>) {
    let lease = world.lease_ms();
    let end = Instant::now() + world.plan.trouble;
    let rates = world.plan.rates.clone();
    while Instant::now() < end {
        sleep(world.dice.millis(1..lease)).await;
        if world.strikes("node crashed", rates.crash) {
            let index = world.dice.index(world.plan.nodes);
            let dead = Arc::clone(&world.nodes.lock()[index]);
            dead.crash();
            sleep(world.dice.millis(0..lease)).await;
            let restarted = Node::start(&world);
            world.nodes.lock()[index] = restarted;
        }
        if world.strikes("node stood still", rates.pause)
            && let Some(node) = world.some_node()
        {
            node.pause(world.dice.millis(lease / 2..lease * 4));
        }
        if world.strikes("store went down", rates.outage) {
            *world.down_until.lock() = Instant::now() + world.dice.millis(1..lease * 2);
        }
        if world.strikes("store's clock jumped forward", rates.jump) {
            let forward = world.dice.number(1..lease * 3);
            world.clock.jump(forward as i64);
            world.jumped_ms.fetch_add(forward, Ordering::SeqCst);
        }
        if world.strikes("store's clock jumped back", rates.jump) {
            let back = world.dice.number(1..lease * 3);
            world.clock.jump(-(back as i64));
            world.jumped_ms.fetch_add(back, Ordering::SeqCst);
        }
        let _swept = world.store.purge(10).await;
    }
    world.calm.store(true, Ordering::SeqCst);
}

/// Names the situation of an event, for coverage.
fn situation(event: &Event) -> Option<&'static str> {
    match event {
        Event::Transition(transition) => transition_situation(transition),
        Event::Answered { answer, .. } => Some(match answer {
            Answer::First { durable: true, .. } => "answer: done",
            Answer::First { durable: false, .. } => "answer: done, not yet stored",
            Answer::Replay(_) => "answer: replay",
            Answer::Running => "answer: running",
            Answer::Unknown => "answer: unknown",
            Answer::Mismatch => "answer: mismatch",
            Answer::Expired => "answer: expired",
            Answer::Unavailable => "answer: unavailable",
            Answer::Released => "answer: nothing happened",
            Answer::NoWord => "answer: no word",
        }),
        Event::Effect { .. } => Some("effect"),
        Event::Asked { .. } => Some("reconciler asked"),
        Event::Sent { .. } => None,
    }
}

fn transition_situation(transition: &Transition) -> Option<&'static str> {
    let (stored, standing) = (transition.stored_before(), transition.standing_before());
    let unknown = standing == Some(StateName::Unknown);
    match (transition.call, transition.stored_after()) {
        (StoreCall::Claim, _) if transition.granted().is_some() => Some(match stored {
            None => "claim granted: new",
            Some(StateName::Running) => "claim granted: takeover",
            Some(StateName::Released) => "claim granted: released before",
            Some(_) => "claim granted: expired before",
        }),
        (StoreCall::Claim, Some(StateName::Unknown)) if stored == Some(StateName::Running) => {
            Some("lapse seen by a claim")
        }
        (StoreCall::Claim, Some(StateName::Released)) => Some("late duplicate of a released claim"),
        (StoreCall::Renew { applied: true, .. }, _) => Some("renewal applied"),
        (StoreCall::Renew { applied: false, .. }, _) => Some("renewal refused"),
        (StoreCall::Settle { applied: true, .. }, Some(StateName::Completed)) if unknown => {
            Some("late completion accepted")
        }
        (StoreCall::Settle { applied: true, .. }, _) if transition.before == transition.after => {
            Some("settlement repeated")
        }
        (StoreCall::Settle { applied: true, .. }, Some(StateName::Running)) => {
            Some("released after a takeover")
        }
        (StoreCall::Settle { applied: false, .. }, _) => Some("settlement refused by the store"),
        (StoreCall::Resolve { applied: true, .. }, Some(StateName::Completed)) => {
            Some("resolved: happened")
        }
        (StoreCall::Resolve { applied: true, .. }, Some(StateName::Released)) => {
            Some("resolved: did not happen")
        }
        (StoreCall::Purge, Some(StateName::Expired)) => Some("outcome dropped, tombstone kept"),
        _ => None,
    }
}
