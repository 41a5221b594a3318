//! Sends claims, renewals and settlements to the server, over a few connections with a task each. A
//! call is sent at once if a connection is free. Calls that arrive while all are busy are sent
//! together, as one statement for each kind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use deadpool_postgres::Object;
use onceward_core::{
    Claim, ClaimRequest, Effect, Fenced, Lease, RenewRequest, SettleRequest, StoreError,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::error::Fault;
use super::executor::{Executor, RetainedUntil};
use super::session::{Pools, Session, connection};

/// Calls in the queue and in flight. Dropping it ends its tasks; callers that still wait learn that
/// their call may have been applied.
#[derive(Debug)]
pub(super) struct Batcher {
    queue: Arc<Queue>,
    tasks: Vec<AbortHandle>,
}

impl Batcher {
    pub(super) fn start(executor: &Arc<Executor>, pools: &Arc<Pools>) -> Self {
        let queue = Arc::new(Queue::default());
        let worker = || Worker {
            queue: Arc::clone(&queue),
            executor: Arc::clone(executor),
            pools: Arc::clone(pools),
        };
        let count = executor.settings.connections;
        let tasks = (0..count).map(|_| tokio::spawn(worker().run()).abort_handle()).collect();
        Self { queue, tasks }
    }

    /// Sends a call and waits for its answer, for at most the time of a call. A call that a task
    /// has taken is carried out even if its caller goes away.
    pub(super) async fn send<A>(
        &self,
        executor: &Executor,
        job: impl FnOnce(ReplySender<A>) -> Job,
    ) -> Result<A, StoreError> {
        let (sender, answered) = oneshot::channel();
        let state = Arc::new(CallState::default());
        self.queue.push(job(ReplySender { sender, state: Arc::clone(&state) }));
        match timeout(executor.settings.call_timeout, answered).await {
            Ok(Ok(answer)) => answer.map_err(StoreError::from),
            Ok(Err(_)) => Err(Fault::late(state.give_up()).into()),
            Err(_) => Err(Fault::late(state.give_up()).into()),
        }
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A call, and where to send its reply.
#[derive(Debug)]
pub(super) enum Job {
    Claim(Box<ClaimRequest>, ReplySender<Claim>),
    Renew(RenewRequest, ReplySender<Fenced<Lease>>),
    Settle(Box<SettleRequest>, ReplySender<Fenced<RetainedUntil>>),
}

#[derive(Debug)]
pub(super) struct ReplySender<A> {
    sender: oneshot::Sender<Result<A, Fault>>,
    state: Arc<CallState>,
}

/// Whether a call still belongs to its caller, or to the task that took it.
#[derive(Debug, Default)]
struct CallState(AtomicU8);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl CallState {
    /// For the task. Returns whether the call is still wanted; from then on it may be applied.
    fn take(&self) -> bool {
        self.0.compare_exchange(WAITING, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// For the caller. Returns whether the call may be applied all the same.
    fn give_up(&self) -> Effect {
        match self.0.compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Effect::NotApplied,
            Err(_) => Effect::MayHaveBeenApplied,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    arrived: Notify,
}

impl Queue {
    fn push(&self, job: Job) {
        self.jobs.lock().push_back(job);
        self.arrived.notify_one();
    }

    /// Takes up to `most` calls. Waits while there are none.
    async fn take(&self, most: usize) -> Batch {
        loop {
            let batch = self.try_take(most);
            if !batch.is_empty() {
                return batch;
            }
            self.arrived.notified().await;
        }
    }

    fn try_take(&self, most: usize) -> Batch {
        let mut batch = Batch::default();
        let mut jobs = self.jobs.lock();
        let count = jobs.len().min(most);
        jobs.drain(..count).for_each(|job| batch.push(job));
        if !jobs.is_empty() {
            // One wake-up may stand for several calls.
            self.arrived.notify_one();
        }
        batch
    }
}

/// Calls of one kind, with their reply senders.
type Calls<R, A> = Vec<(R, Option<ReplySender<A>>)>;

#[derive(Debug, Default)]
struct Batch {
    claims: Calls<Box<ClaimRequest>, Claim>,
    renewals: Calls<RenewRequest, Fenced<Lease>>,
    settlements: Calls<Box<SettleRequest>, Fenced<RetainedUntil>>,
}

impl Batch {
    /// Adds a call, unless its caller has gone away.
    fn push(&mut self, job: Job) {
        match job {
            Job::Claim(call, reply) if reply.is_wanted() => self.claims.push((call, Some(reply))),
            Job::Renew(call, reply) if reply.is_wanted() => self.renewals.push((call, Some(reply))),
            Job::Settle(call, reply) if reply.is_wanted() => {
                self.settlements.push((call, Some(reply)));
            }
            Job::Claim(..) | Job::Renew(..) | Job::Settle(..) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.renewals.is_empty() && self.settlements.is_empty()
    }

    /// Fails all calls that have no answer yet.
    fn fail(&mut self, fault: &Fault) {
        fail(&mut self.claims, fault);
        fail(&mut self.renewals, fault);
        fail(&mut self.settlements, fault);
    }
}

impl<A> ReplySender<A> {
    fn is_wanted(&self) -> bool {
        !self.sender.is_closed() && self.state.take()
    }
}

fn fail<R, A>(calls: &mut Calls<R, A>, fault: &Fault) {
    for (_, reply) in calls {
        answer(reply, Err(fault.clone()));
    }
}

fn answer<A>(reply: &mut Option<ReplySender<A>>, answer: Result<A, Fault>) {
    if let Some(reply) = reply.take() {
        // Ignored: a caller that has gone away needs no answer.
        let _gone = reply.sender.send(answer);
    }
}

/// The task of one connection.
struct Worker {
    queue: Arc<Queue>,
    executor: Arc<Executor>,
    pools: Arc<Pools>,
}

impl Worker {
    async fn run(self) {
        loop {
            let mut batch = self.queue.take(self.executor.settings.batch_calls_max).await;
            match connection(&self.pools.calls, self.executor.settings.call_timeout).await {
                Ok(client) => self.send_batch(client, &mut batch).await,
                Err(fault) => batch.fail(&fault),
            }
        }
    }

    /// Sends a batch. A connection that does not answer in time is closed: its late work must not
    /// meet the next batch.
    async fn send_batch(&self, client: Object, batch: &mut Batch) {
        let session = Session::new(&client, &self.executor.settings);
        let sent = timeout(self.executor.settings.call_timeout, async {
            let Batch { claims, renewals, settlements } = batch;
            // Pipelined: all three are sent at once, and the server runs them in turn.
            tokio::join!(
                self.claims(&session, claims),
                self.settlements(&session, settlements),
                self.renewals(&session, renewals),
            )
        });
        if sent.await.is_err() {
            batch.fail(&Fault::late(Effect::MayHaveBeenApplied));
            drop(Object::take(client));
        }
    }

    async fn claims(&self, session: &Session<'_>, calls: &mut Calls<Box<ClaimRequest>, Claim>) {
        let requests: Vec<&ClaimRequest> = calls.iter().map(|(call, _)| &**call).collect();
        let mut answers = self.executor.claims(session, &requests).await;
        for again in to_retry_alone(&answers) {
            answers[again] = self.executor.claims(session, &[requests[again]]).await.swap_remove(0);
        }
        answer_all(calls, answers);
    }

    async fn renewals(
        &self,
        session: &Session<'_>,
        calls: &mut Calls<RenewRequest, Fenced<Lease>>,
    ) {
        let requests: Vec<&RenewRequest> = calls.iter().map(|(call, _)| call).collect();
        let mut answers = self.executor.renewals(session, &requests).await;
        for again in to_retry_alone(&answers) {
            answers[again] =
                self.executor.renewals(session, &[requests[again]]).await.swap_remove(0);
        }
        answer_all(calls, answers);
    }

    async fn settlements(
        &self,
        session: &Session<'_>,
        calls: &mut Calls<Box<SettleRequest>, Fenced<RetainedUntil>>,
    ) {
        let requests: Vec<&SettleRequest> = calls.iter().map(|(call, _)| &**call).collect();
        let mut answers = self.executor.settlements(session, &requests).await;
        for again in to_retry_alone(&answers) {
            answers[again] =
                self.executor.settlements(session, &[requests[again]]).await.swap_remove(0);
        }
        answer_all(calls, answers);
    }
}

/// The calls to send again, each on its own, as they may have failed because of another call of
/// their statement: one locked record must not fail all calls of a batch.
fn to_retry_alone<A>(answers: &[Result<A, Fault>]) -> Vec<usize> {
    if answers.len() < 2 {
        return Vec::new();
    }
    let failed = |answer: &Result<A, Fault>| answer.as_ref().is_err_and(Fault::is_harmless);
    (0..answers.len()).filter(|call| failed(&answers[*call])).collect()
}

fn answer_all<R, A>(calls: &mut Calls<R, A>, answers: Vec<Result<A, Fault>>) {
    for ((_, reply), it) in calls.iter_mut().zip(answers) {
        answer(reply, it);
    }
}
