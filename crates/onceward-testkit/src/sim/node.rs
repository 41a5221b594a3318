//! A node: a process with the production engine and reconciler and a handler with an effect. It
//! can pause, crash and start again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward_core::{
    Begin, BeginError, DecisionLog, Ended, Engine, Fence, Fingerprint, Identity, Intent, Permit,
    Reconciler, RecordId, Recovery, Rejection, Settled, Tag, UnknownCause,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::authority::{Asker, Authority};
use super::ledger::{Booked, Effect};
use super::link::Link;
use super::mutant::{self, Mutant};
use super::world::World;
use crate::clock::SimAmbient;
use crate::history::{Answer, Attempt, Event, Outcome};

/// Largest error of a node's clock.
pub(super) const SKEW_MS_MAX: u64 = 2_000;

/// Health of a node's process. Every message that enters or leaves the process passes the gate.
#[derive(Debug)]
pub(super) struct Health {
    alive: AtomicBool,
    still_until: Mutex<Instant>,
}

impl Health {
    /// Returns at once in a healthy process, later in a stopped one, never in a dead one.
    pub(super) async fn gate(&self) {
        loop {
            if !self.alive.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let until = *self.still_until.lock();
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// A node's process, from its start to its crash.
pub(super) struct Node {
    world: Arc<World>,
    health: Arc<Health>,
    engine: Engine,
    reconciler: Option<AbortHandle>,
    requests: Mutex<Vec<AbortHandle>>,
}

/// A request that a node has received.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) attempt: Attempt,
    pub(super) record: RecordId,
    pub(super) intent: Intent,
}

impl Node {
    /// Starts a process.
    pub(super) fn start(world: &Arc<World>) -> Arc<Self> {
        let health =
            Health { alive: AtomicBool::new(true), still_until: Mutex::new(Instant::now()) };
        let health = Arc::new(health);
        let link = Arc::new(Link { world: Arc::clone(world), health: Arc::clone(&health) });
        let skew = world.dice.number(0..2 * SKEW_MS_MAX) as i64 - SKEW_MS_MAX as i64;
        let clock = world.clock.skewed(skew);
        let ambient = Arc::new(SimAmbient { clock, dice: world.dice.clone() });
        let decisions =
            DecisionLog::new(link.clone(), Identity::unkeyed()).ambient(ambient.clone());
        let resolver = |asker| {
            let (world, health) = (Arc::clone(world), Arc::clone(&health));
            Arc::new(Authority { world, health, asker })
        };
        let mut engine = Engine::builder(link.clone())
            .policy(world.plan.policy.clone())
            .identity(Identity::unkeyed())
            .ambient(ambient.clone());
        let mut reconciler = None;
        if let Some(settings) = world.plan.reconciler {
            let recovery = Recovery::new(link.clone(), resolver(Asker::Engine));
            engine = engine.recovery(recovery.decisions(decisions.clone()));
            let counting = Arc::clone(world);
            let task = Reconciler::new(link, resolver(Asker::Reconciler), Identity::unkeyed())
                .settings(settings)
                .decisions(decisions)
                .ambient(ambient)
                .report(move |round| counting.count_round(round));
            reconciler = Some(tokio::spawn(task.run()).abort_handle());
        }
        let (engine, requests) = (engine.build(), Mutex::default());
        Arc::new(Self { world: Arc::clone(world), health, engine, reconciler, requests })
    }

    /// Ends the reconciler, with the questions that it has open.
    pub(super) fn stop_reconciler(&self) {
        self.reconciler.iter().for_each(AbortHandle::abort);
    }

    /// Ends the process: it sends nothing more. Messages that it has sent still arrive.
    pub(super) fn crash(&self) {
        self.health.alive.store(false, Ordering::SeqCst);
        self.stop_reconciler();
        self.requests.lock().drain(..).for_each(|request| request.abort());
    }

    /// Stops the process for a while, as SIGSTOP does. Its clocks go on.
    pub(super) fn pause(&self, duration: Duration) {
        *self.health.still_until.lock() = Instant::now() + duration;
    }

    /// Handles a request in its own task, as a server does.
    pub(super) fn accept(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Answer> {
        let (mut reply, answer) = oneshot::channel();
        let node = Arc::clone(self);
        let task = tokio::spawn(async move {
            node.health.gate().await;
            let Some(answer) = node.serve(&request, &mut reply).await else { return };
            node.health.gate().await;
            node.world.history.push(Event::Answered {
                attempt: request.attempt,
                record: request.record,
                fingerprint: request.intent.fingerprint,
                answer: answer.clone(),
            });
            let _hung_up = reply.send(answer);
        });
        self.requests.lock().push(task.abort_handle());
        answer
    }

    /// Returns `None` if the client hung up and the server cancels the handler for that.
    async fn serve(
        &self,
        request: &Request,
        reply: &mut oneshot::Sender<Answer>,
    ) -> Option<Answer> {
        if self.world.mutant == Some(Mutant::LookThenLock) {
            return Some(mutant::look_then_lock(&self.world, &self.health, request).await);
        }
        let cancels = self.world.dice.chance(0.3);
        let begin = tokio::select! {
            biased;
            begin = self.engine.begin(&request.intent) => begin,
            () = reply.closed(), if cancels => {
                self.world.count("claim cancelled by its caller");
                return None;
            }
        };
        Some(self.act_on(begin, request).await)
    }

    async fn act_on(&self, begin: Result<Begin, BeginError>, request: &Request) -> Answer {
        match begin {
            Ok(Begin::Execute(permit)) => self.execute(permit, request).await,
            Ok(Begin::Replay(replay)) => Answer::Replay(read(&replay.outcome.bytes)),
            Ok(Begin::Reject(Rejection::Running { .. })) => Answer::Running,
            Ok(Begin::Reject(Rejection::Unknown { .. } | Rejection::Contradicted { .. })) => {
                Answer::Unknown
            }
            Ok(Begin::Reject(Rejection::Mismatch { .. } | Rejection::ReferenceTaken { .. })) => {
                Answer::Mismatch
            }
            Ok(Begin::Reject(Rejection::Expired)) => Answer::Expired,
            Err(_) if self.world.mutant == Some(Mutant::RunsOnTimedOutClaim) => {
                mutant::run_without_a_claim(&self.world, &self.health, request).await
            }
            Err(_) => Answer::Unavailable,
        }
    }

    /// The handler: waits, has its effect, waits again, and settles.
    async fn execute(&self, permit: Permit, request: &Request) -> Answer {
        let world = &self.world;
        self.think().await;
        if world.strikes("handler gave up before its effect", world.plan.rates.dropped) {
            return mutant::give_up(world, permit).await;
        }
        if permit.check().is_err() {
            world.count("deadline seen before the effect");
            return released(permit).await;
        }
        // An earlier owner may have had its effect, so an idempotent handler does not fail
        // without asking the ledger.
        let first = permit.attempt() == 1 || !world.takes_over();
        if first && world.dice.chance(0.1) {
            return self.fail(permit, request).await;
        }
        if world.dice.chance(0.1) {
            return released(permit).await;
        }
        let effect = effect_of(&permit, request);
        match book(world, &self.health, effect).await {
            Some(Booked::Yes(outcome)) => {
                self.think().await;
                if world.strikes("handler gave up after its effect", world.plan.rates.dropped) {
                    return mutant::give_up(world, permit).await;
                }
                let settled = permit.complete(stored(&outcome)).await;
                self.answer(settled, outcome)
            }
            Some(Booked::Refused) => {
                world.count("effect refused by the ledger");
                drop(permit);
                Answer::NoWord
            }
            // The next owner finds out, because it repeats the idempotent effect.
            None if world.takes_over() => {
                drop(permit);
                Answer::NoWord
            }
            None => {
                let _lapses_otherwise = permit.unknown(UnknownCause::Reported(None)).await;
                Answer::NoWord
            }
        }
    }

    /// Waits: usually for a moment, sometimes for longer than the lease.
    async fn think(&self) {
        let lease = self.world.plan.policy.lease().as_millis() as u64;
        let most = if self.world.dice.chance(0.2) { lease * 2 } else { 5 };
        sleep(self.world.dice.millis(0..most)).await;
        self.health.gate().await;
    }

    /// Fails for good, without an effect.
    async fn fail(&self, permit: Permit, request: &Request) -> Answer {
        let effect = effect_of(&permit, request);
        let outcome = read(&reply_bytes(&effect, Ended::Failed));
        let settled = permit.fail(stored(&outcome)).await;
        self.answer(settled, outcome)
    }

    fn answer(&self, settled: Settled, result: Outcome) -> Answer {
        match settled {
            Settled::Durable => Answer::First { result, durable: true },
            // The next owner may come to another outcome, so this one is not final yet.
            Settled::Pending if self.world.takes_over() => Answer::NoWord,
            Settled::Pending => {
                self.world.count("answered before the outcome was stored");
                Answer::First { result, durable: false }
            }
            Settled::Superseded | Settled::Missing => {
                self.world.count("settlement refused");
                Answer::NoWord
            }
        }
    }
}

/// Sends an effect to the ledger. `None` if its reply was lost. Once sent, the effect arrives or
/// is lost, even if the sender dies.
pub(super) async fn book(world: &Arc<World>, health: &Health, effect: Effect) -> Option<Booked> {
    health.gate().await;
    let (reply, answer) = oneshot::channel();
    let carrier = Arc::clone(world);
    tokio::spawn(async move {
        carrier.travel().await;
        if carrier.strikes("effect lost on its way", carrier.plan.rates.lost) {
            return;
        }
        let booked = carrier.ledger.book(&effect);
        if carrier.strikes("effect's acknowledgement lost", carrier.plan.rates.lost) {
            return;
        }
        carrier.travel().await;
        let _gone = reply.send(booked);
    });
    let answer = answer.await.ok();
    health.gate().await;
    answer
}

fn effect_of(permit: &Permit, request: &Request) -> Effect {
    Effect {
        record: request.record,
        operation: permit.operation(),
        fingerprint: request.intent.fingerprint,
        fence: permit.fence(),
        attempt: request.attempt,
    }
}

async fn released(permit: Permit) -> Answer {
    let _lapses_otherwise = permit.release().await;
    Answer::Released
}

/// Reply bytes that name their request and grant: record, fingerprint, fence, operation, ending.
pub(super) fn reply_bytes(effect: &Effect, ended: Ended) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(90);
    bytes.extend(effect.record.as_bytes());
    bytes.push(effect.fingerprint.rules());
    bytes.extend(effect.fingerprint.digest());
    bytes.extend(effect.fence.0.to_be_bytes());
    bytes.extend(effect.operation.as_uuid().as_bytes());
    bytes.push(u8::from(ended == Ended::Failed));
    bytes
}

/// Reads what [`reply_bytes`] wrote.
fn read(bytes: &[u8]) -> Outcome {
    let array = |from: usize| -> [u8; 32] { std::array::from_fn(|index| bytes[from + index]) };
    let fence: [u8; 8] = std::array::from_fn(|index| bytes[65 + index]);
    Outcome {
        record: RecordId::from_bytes(array(0)),
        fingerprint: Fingerprint::from_digest(bytes[32], array(33)),
        fence: Fence(u64::from_be_bytes(fence)),
        ended: if bytes[89] == 1 { Ended::Failed } else { Ended::Completed },
        bytes: bytes.to_vec(),
    }
}

/// An outcome as the core stores it.
pub(super) fn stored(outcome: &Outcome) -> onceward_core::Outcome {
    onceward_core::Outcome::whole(Tag::from_static("sim/v1"), outcome.bytes.clone())
}
