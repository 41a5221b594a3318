//! The way of claims, renewals and settlements to the server: a few connections, each with a
//! task. A call goes out at once if a connection is free; calls that come while all are busy go
//! out together, as one statement a kind.

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
use super::session::{Pools, Session, connection};
use super::steps::{KeptUntil, Steps};

/// Calls on their way. Dropped, it ends its tasks; whoever still waits learns that its call may
/// have been applied.
#[derive(Debug)]
pub(super) struct Lanes {
    queue: Arc<Queue>,
    tasks: Vec<AbortHandle>,
}

impl Lanes {
    pub(super) fn start(steps: &Arc<Steps>, pools: &Arc<Pools>) -> Self {
        let queue = Arc::new(Queue::default());
        let lane = || Lane {
            queue: Arc::clone(&queue),
            steps: Arc::clone(steps),
            pools: Arc::clone(pools),
        };
        let count = steps.settings.connections;
        let tasks = (0..count).map(|_| tokio::spawn(lane().run()).abort_handle()).collect();
        Self { queue, tasks }
    }

    /// Sends a call and waits for its answer, as long as a call may take. The call itself
    /// does not end with its caller: it is taken or not, never half.
    pub(super) async fn send<A>(
        &self,
        steps: &Steps,
        job: impl FnOnce(Reply<A>) -> Job,
    ) -> Result<A, StoreError> {
        let (sender, answered) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        self.queue.push(job(Reply { sender, ticket: Arc::clone(&ticket) }));
        match timeout(steps.settings.call_timeout, answered).await {
            Ok(Ok(answer)) => answer.map_err(StoreError::from),
            Ok(Err(_)) => Err(Fault::late(ticket.give_up()).into()),
            Err(_) => Err(Fault::late(ticket.give_up()).into()),
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// One call with the way back.
#[derive(Debug)]
pub(super) enum Job {
    Claim(Box<ClaimRequest>, Reply<Claim>),
    Renew(RenewRequest, Reply<Fenced<Lease>>),
    Settle(Box<SettleRequest>, Reply<Fenced<KeptUntil>>),
}

#[derive(Debug)]
pub(super) struct Reply<A> {
    sender: oneshot::Sender<Result<A, Fault>>,
    ticket: Arc<Ticket>,
}

/// Who has a call: its caller while it waits, or the lane that took it.
#[derive(Debug, Default)]
struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Ticket {
    /// By the lane: whether the call is still wanted. From then on it may be applied.
    fn take(&self) -> bool {
        self.0.compare_exchange(WAITING, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// By the caller: says whether the call may be applied all the same.
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

    /// Up to `most` calls, as many as there are.
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
            // A wake-up may have stood for several calls.
            self.arrived.notify_one();
        }
        batch
    }
}

/// Calls of one kind, each with the way back.
type Calls<R, A> = Vec<(R, Option<Reply<A>>)>;

#[derive(Debug, Default)]
struct Batch {
    claims: Calls<Box<ClaimRequest>, Claim>,
    renewals: Calls<RenewRequest, Fenced<Lease>>,
    settlements: Calls<Box<SettleRequest>, Fenced<KeptUntil>>,
}

impl Batch {
    /// Takes a call in, unless its caller has gone.
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

    /// Tells all that have no answer yet what went wrong.
    fn fail(&mut self, fault: &Fault) {
        fail(&mut self.claims, fault);
        fail(&mut self.renewals, fault);
        fail(&mut self.settlements, fault);
    }
}

impl<A> Reply<A> {
    fn is_wanted(&self) -> bool {
        !self.sender.is_closed() && self.ticket.take()
    }
}

fn fail<R, A>(calls: &mut Calls<R, A>, fault: &Fault) {
    for (_, reply) in calls {
        answer(reply, Err(fault.clone()));
    }
}

fn answer<A>(reply: &mut Option<Reply<A>>, answer: Result<A, Fault>) {
    if let Some(reply) = reply.take() {
        // A caller that has gone does not hear it; what was done is done.
        let _gone = reply.sender.send(answer);
    }
}

/// One connection's worth of work.
struct Lane {
    queue: Arc<Queue>,
    steps: Arc<Steps>,
    pools: Arc<Pools>,
}

impl Lane {
    async fn run(self) {
        loop {
            let mut batch = self.queue.take(self.steps.settings.batch_calls_max).await;
            match connection(&self.pools.calls, self.steps.settings.call_timeout).await {
                Ok(client) => self.carry(client, &mut batch).await,
                Err(fault) => batch.fail(&fault),
            }
        }
    }

    /// Carries a batch to the server. A connection that does not answer in time is given up:
    /// what it still has under way must not meet the next batch.
    async fn carry(&self, client: Object, batch: &mut Batch) {
        let session = Session::new(&client, &self.steps.settings);
        let carried = timeout(self.steps.settings.call_timeout, async {
            let Batch { claims, renewals, settlements } = batch;
            // Sent one behind the other without waiting; the server takes them in turn.
            tokio::join!(
                self.claims(&session, claims),
                self.settlements(&session, settlements),
                self.renewals(&session, renewals),
            )
        });
        if carried.await.is_err() {
            batch.fail(&Fault::late(Effect::MayHaveBeenApplied));
            drop(Object::take(client));
        }
    }

    async fn claims(&self, session: &Session<'_>, calls: &mut Calls<Box<ClaimRequest>, Claim>) {
        let requests: Vec<&ClaimRequest> = calls.iter().map(|(call, _)| &**call).collect();
        let mut answers = self.steps.claims(session, &requests).await;
        for again in alone(&answers) {
            answers[again] = self.steps.claims(session, &[requests[again]]).await.swap_remove(0);
        }
        give(calls, answers);
    }

    async fn renewals(
        &self,
        session: &Session<'_>,
        calls: &mut Calls<RenewRequest, Fenced<Lease>>,
    ) {
        let requests: Vec<&RenewRequest> = calls.iter().map(|(call, _)| call).collect();
        let mut answers = self.steps.renewals(session, &requests).await;
        for again in alone(&answers) {
            answers[again] = self.steps.renewals(session, &[requests[again]]).await.swap_remove(0);
        }
        give(calls, answers);
    }

    async fn settlements(
        &self,
        session: &Session<'_>,
        calls: &mut Calls<Box<SettleRequest>, Fenced<KeptUntil>>,
    ) {
        let requests: Vec<&SettleRequest> = calls.iter().map(|(call, _)| &**call).collect();
        let mut answers = self.steps.settlements(session, &requests).await;
        for again in alone(&answers) {
            answers[again] =
                self.steps.settlements(session, &[requests[again]]).await.swap_remove(0);
        }
        give(calls, answers);
    }
}

/// The calls that failed with others and not by their own fault, perhaps: one record that
/// somebody else has locked must not fail all that came with it.
fn alone<A>(answers: &[Result<A, Fault>]) -> Vec<usize> {
    if answers.len() < 2 {
        return Vec::new();
    }
    let failed = |answer: &Result<A, Fault>| answer.as_ref().is_err_and(Fault::is_harmless);
    (0..answers.len()).filter(|call| failed(&answers[*call])).collect()
}

fn give<R, A>(calls: &mut Calls<R, A>, answers: Vec<Result<A, Fault>>) {
    for ((_, reply), it) in calls.iter_mut().zip(answers) {
        answer(reply, it);
    }
}
