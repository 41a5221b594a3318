//! One run: nodes, clients, a store, a ledger, and trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{
    Clock, FullStore, MemoryLimits, MemoryStore, OnLapse, Query, Record, Recovery, StateName,
    StoreAdmin,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client;
use super::ledger::{Care, Ledger};
use super::mutant::{Mutant, Naive};
use super::node::Node;
use super::plan::Plan;
use super::{Coverage, Report};
use crate::clock::SimClock;
use crate::dice::Dice;
use crate::history::{
    Answer, Attempt, Event, Expectations, History, RecordingStore, StoreCall, Transition, check,
};
use crate::open_store::OpenStore;

/// What everything in a run shares.
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
    jumped_back_ms: AtomicU64,
    coverage: Mutex<Coverage>,
}

/// Runs a seed to its end and judges it.
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
    // Nodes and world hold each other; let go, or every seed leaves its world in memory.
    world.nodes.lock().clear();
    world.report(seed, &left)
}

fn plan(dice: &Dice, mutant: Option<Mutant>) -> Plan {
    let mut plan = Plan::throw(dice);
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
            jumped_back_ms: AtomicU64::new(0),
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

    /// Whether a fault strikes now; counted if it does.
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

    /// The time a message takes.
    pub(super) async fn travel(&self) {
        let late = self.strikes("message late", self.plan.rates.late);
        let most = if late { self.lease_ms() * 2 } else { 4 };
        sleep(self.dice.millis(0..most)).await;
    }

    /// After the trouble: every lease has time to lapse, resolvers get their turn, and what
    /// is left is returned.
    async fn settle_down(&self) -> Vec<Record> {
        let lease = self.plan.policy.lease();
        let back = Duration::from_millis(self.jumped_back_ms.load(Ordering::SeqCst));
        sleep(lease * 6 + back).await;
        if self.plan.policy.on_lapse() == OnLapse::Resolve {
            let recovery = Recovery::new(self.store.clone(), Arc::new(self.ledger.clone()));
            let recovered = recovery.run_once(self.plan.policy.retention()).await;
            self.occurs("recovered at the end", recovered.is_ok_and(|it| it.happened > 0));
        }
        let query = Query { limit: 1_000, ..Query::default() };
        self.store.list(&query).await.map(|page| page.records).unwrap_or_default()
    }

    fn report(&self, seed: u64, left: &[Record]) -> Report {
        let events = self.history.events();
        let expectations = Expectations {
            takeover: self.takes_over(),
            claims_elsewhere: self.mutant == Some(Mutant::LookThenLock),
        };
        let violations = check(&events, left, self.clock.now(), expectations);
        events.iter().filter_map(situation).for_each(|what| self.count(what));
        let coverage = self.coverage.lock().clone();
        Report { seed, plan: self.plan.clone(), events, violations, coverage }
    }
}

/// Crashes, pauses, outages and clock jumps, until it is over.
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
            world.clock.jump(world.dice.number(1..lease * 3) as i64);
        }
        if world.strikes("store's clock jumped back", rates.jump) {
            let back = world.dice.number(1..lease * 3);
            world.clock.jump(-(back as i64));
            world.jumped_back_ms.fetch_add(back, Ordering::SeqCst);
        }
        let _swept = world.store.purge(10).await;
    }
    world.calm.store(true, Ordering::SeqCst);
}

/// Names the situations that a run must have been in to count.
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
