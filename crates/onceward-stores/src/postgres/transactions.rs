//! Claim, business rows and outcome in one commit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use onceward_core::{
    BeginError, Claim, ClaimRequest, Disposition, Done, Effect, Ended, Failure, Fence, Fenced,
    Grant, Holder, Identity, Intent, OperationId, Outcome, Policy, RecordId, Rejection, Replay,
    Retention, RunError, SettleRequest, Settled, Settlement, StoreError, StoreErrorKind,
    SystemAmbient, Tag, machine,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::claimed::Claimed;
use super::error::Fault;
use super::handle::Lent;
use super::open_transaction::{Begun, OpenTransaction};
use super::row::Columns as _;
use super::session::{Ask, Pools, Session, connection};
use super::steps::Steps;

impl PostgresStore {
    /// Asks for the right to run inside of a transaction of the caller's, at READ COMMITTED.
    ///
    /// What is granted counts when the transaction commits, and never was if it does not. So a
    /// lease has no part in it; settle it by [`settle_in`](Self::settle_in) before the commit.
    /// Where another transaction is at the same record, the answer is
    /// [`Running`](Claim::Running) at once, with a nil operation if its record is not visible
    /// yet: retries of a slow key do not wait for it. After an error the transaction can only
    /// be rolled back.
    pub async fn claim_in(
        &self,
        tx: &Transaction<'_>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        Ok(self.steps.claim_in(tx, request).await?)
    }

    /// Says what the operation came to, inside of the transaction that claimed it.
    pub async fn settle_in(
        &self,
        tx: &Transaction<'_>,
        request: &SettleRequest,
    ) -> Result<Fenced<()>, StoreError> {
        Ok(self.steps.settle_in(tx, request).await?)
    }

    /// Says that it succeeded, inside of the transaction that claimed it.
    pub async fn complete_in(
        &self,
        tx: &Transaction<'_>,
        id: RecordId,
        holder: Holder,
        outcome: Outcome,
        retention: Retention,
    ) -> Result<Fenced<()>, StoreError> {
        let settlement = Settlement::Complete(outcome);
        self.settle_in(tx, &SettleRequest { id, holder, settlement, retention }).await
    }

    /// Transactions on this store, under the identity and the policy of its engines.
    pub fn transactions(&self, identity: Identity, policy: Policy) -> Transactions {
        let (steps, pools) = (Arc::clone(&self.steps), Arc::clone(&self.pools));
        let (policy, ambient) = (Arc::new(policy), Arc::new(SystemAmbient::new()));
        Transactions { steps, pools, identity, policy, ambient }
    }
}

impl Steps {
    pub(super) async fn claim_in(
        &self,
        tx: &impl Ask,
        request: &ClaimRequest,
    ) -> Result<Claim, Fault> {
        let lock = self.lock_of(&request.id);
        let locked = tx.ask(&self.statements.try_lock, &[&lock]).await?;
        if locked.first().and_then(|row| row.at(0)) == Some(true) {
            return self.claims(tx, &[request]).await.swap_remove(0);
        }
        self.claim_elsewhere(tx, request).await
    }

    /// The answer while another transaction is at the record: what is committed, if that
    /// settles it.
    async fn claim_elsewhere(&self, tx: &impl Ask, request: &ClaimRequest) -> Result<Claim, Fault> {
        let seen = self.read(tx, &[request.id]).await?.into_iter().next();
        let running = |operation| Claim::Running { operation, lease_left: Duration::ZERO };
        let Some(seen) = seen else { return Ok(running(OperationId::from(Uuid::nil()))) };
        let record = seen.stored?.record;
        let step = machine::claim(Some(&record), request, Fence(0), seen.now);
        match step.next {
            machine::Next::Same => Ok(step.answer),
            machine::Next::Put(_) | machine::Next::Stand(..) | machine::Next::Remove => {
                Ok(running(record.operation))
            }
        }
    }

    /// The advisory lock of a record, apart from those of other schemas.
    fn lock_of(&self, id: &RecordId) -> i64 {
        let mut first = [0; 8];
        first.copy_from_slice(&id.as_bytes()[..8]);
        i64::from_be_bytes(first) ^ self.settings.schema.lock()
    }
}

/// Runs work inside of a transaction that also claims its intent and stores its outcome: all of
/// it is committed, or nothing.
///
/// Whenever the process dies, the intent is as if it had never come. There is no unknown
/// outcome, except where the reply to the commit is lost and the server cannot be asked before
/// the time is up. The work must have no effect outside of the transaction.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Transactions {
    pub(super) steps: Arc<Steps>,
    pools: Arc<Pools>,
    pub(super) identity: Identity,
    pub(super) policy: Arc<Policy>,
    pub(super) ambient: Arc<SystemAmbient>,
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Transactions {
    /// The same transactions, under another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self { policy: Arc::new(policy), ..self.clone() }
    }

    /// The policy that they go by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Begins a transaction that claims an intent, for work that is no closure; else use
    /// [`transact`](Self::transact). Waits for a running owner as long as the policy says.
    ///
    /// Dropped at any point, it leaves no open transaction.
    ///
    /// # Errors
    ///
    /// If the server cannot be asked. Nothing was executed.
    pub async fn begin(&self, intent: &Intent) -> Result<Begun, BeginError> {
        let give_up = Instant::now() + self.policy.wait();
        loop {
            let begun = self.begin_once(intent).await;
            match begun.map_err(|fault| BeginError::Unavailable(fault.into()))? {
                Begun::Reject(Rejection::Running { .. }) if Instant::now() < give_up => {
                    // What is not committed yet wakes nobody.
                    sleep_until((Instant::now() + self.policy.poll_every()).min(give_up)).await;
                }
                begun => return Ok(begun),
            }
        }
    }

    async fn begin_once(&self, intent: &Intent) -> Result<Begun, Fault> {
        let limit = self.steps.settings.call_timeout;
        let lent = Lent::new(connection(&self.pools.transactions, limit).await?);
        let claimed = self.in_time(self.claim_on(&lent, intent)).await?;
        let Claim::Granted { lease, operation, attempt } = claimed.claim else {
            return self.not_begun(intent, claimed, lent).await;
        };
        let request = claimed.request;
        let grant = Grant::without_lease(operation, lease.fence, attempt);
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let place = (request.id, claimed.retention);
        let open = OpenTransaction::new(self.clone(), lent, grant, place, holder);
        Ok(Begun::Execute(Box::new(open)))
    }

    /// Ends a transaction that runs nothing.
    async fn not_begun(
        &self,
        intent: &Intent,
        claimed: Claimed,
        lent: Lent,
    ) -> Result<Begun, Fault> {
        let session = Session::new(&lent, &self.steps.settings);
        let judged = self.in_time(self.judge(&session, intent, &claimed)).await?;
        let end = if claimed.linked { "COMMIT" } else { "ROLLBACK" };
        let ended = async { lent.batch_execute(end).await.map_err(Fault::of) };
        // Where that fails the connection is dropped, and a link is made by the next retry.
        if self.in_time(ended).await.is_ok() {
            lent.give_back();
        }
        Ok(match judged {
            Ok(replay) => Begun::Replay(replay),
            Err(rejection) => Begun::Reject(rejection),
        })
    }

    /// Begins a transaction, claims, and begins the work's part of it.
    async fn claim_on(&self, lent: &Lent, intent: &Intent) -> Result<Claimed, Fault> {
        let session = Session::new(lent, &self.steps.settings);
        lent.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(Fault::of)?;
        let claimed = self.claim(&session, intent).await?;
        if matches!(claimed.claim, Claim::Granted { .. }) {
            lent.batch_execute("SAVEPOINT onceward_work").await.map_err(Fault::of)?;
        }
        Ok(claimed)
    }

    /// Does the work once for an intent, and gives every retry its first result.
    ///
    /// - `Ok` commits its rows together with the result.
    /// - [`Failure::Keep`] rolls its rows back and commits the failure, which retries get.
    /// - [`Failure::Release`] and [`Failure::Unknown`] roll everything back: nothing happened,
    ///   and that is known. Errors of the database belong here.
    /// - [`Failure::Unclassified`] is what the policy says.
    ///
    /// Dropped at any point, it is committed or rolled back, never half, and leaves no open
    /// transaction.
    pub async fn transact<T, E, W>(&self, intent: &Intent, work: W) -> Result<Done<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        W: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure<E>>,
    {
        let limit = self.steps.settings.call_timeout;
        let client = connection(&self.pools.transactions, limit).await;
        let mut client = client.map_err(unavailable)?;
        let ended = self.transact_on(&mut client, intent, work).await;
        if matches!(ended, Err(RunError::Begin(_) | RunError::Unknown { .. })) {
            // Nobody knows what it still has under way: not for the next one.
            drop(Object::take(client));
        }
        ended
    }

    async fn transact_on<T, E, W>(
        &self,
        client: &mut Client,
        intent: &Intent,
        work: W,
    ) -> Result<Done<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        W: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure<E>>,
    {
        let mut tx = self.timely(client.transaction()).await?;
        let claimed = self.in_time(self.claim(&tx, intent)).await.map_err(unavailable)?;
        let Claim::Granted { lease, operation, .. } = claimed.claim else {
            let judging = self.judge(&tx, intent, &claimed);
            let judged = self.in_time(judging).await.map_err(unavailable)?;
            if claimed.linked {
                self.timely(tx.commit()).await?;
            } else {
                self.timely(tx.rollback()).await?;
            }
            return answer(judged);
        };
        let (request, retention) = (claimed.request, claimed.retention);
        let (settlement, result) = match self.work(&mut tx, work).await? {
            Worked::Done(value) => {
                let outcome = stored(&value, operation);
                let settled = Settled::Durable;
                let done = Done { value, operation, replayed: false, settled };
                (Settlement::Complete(outcome), Ok(done))
            }
            Worked::Kept(error) => {
                let outcome = stored(&error, operation);
                let failed = RunError::Failed { error, operation, replayed: false };
                (Settlement::Fail(outcome), Err(failed))
            }
            Worked::Gone => return Err(RunError::Unknown { operation, error: None }),
            Worked::Undone(error) => {
                return match self.timely::<_, E>(tx.rollback()).await {
                    Ok(()) => Err(RunError::Released { error }),
                    Err(unreachable) => Err(unreachable),
                };
            }
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let settle = SettleRequest { id: request.id, holder, settlement, retention };
        let ticket = self.in_time(self.settle(&tx, &settle)).await.map_err(unavailable)?;
        match self.commit(tx.commit(), &ticket).await {
            Ok(()) => result,
            Err(fault) if fault.is_harmless() => Err(unavailable(fault)),
            Err(_) => Err(RunError::Unknown { operation, error: None }),
        }
    }

    /// Does the work behind a savepoint, so that a failure can be kept without its rows.
    async fn work<T, E, W>(
        &self,
        tx: &mut Transaction<'_>,
        work: W,
    ) -> Result<Worked<T, E>, RunError<E>>
    where
        W: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure<E>>,
    {
        let mut inner = self.timely(tx.savepoint("onceward_work")).await?;
        match work(&mut inner).await {
            Ok(value) => match self.ended(inner.commit()).await {
                Ok(()) => Ok(Worked::Done(value)),
                Err(Unended::Gone) => Ok(Worked::Gone),
                Err(Unended::Failed(fault)) => Err(unavailable(fault)),
            },
            Err(failure) => {
                let (keep, error) = self.classify(failure);
                Ok(match self.ended(inner.rollback()).await {
                    Ok(()) if keep => Worked::Kept(error),
                    Err(Unended::Gone) => Worked::Gone,
                    // Where the connection is gone there is nothing to keep it by.
                    Ok(()) | Err(Unended::Failed(_)) => Worked::Undone(error),
                })
            }
        }
    }

    /// Ends the work's part of a transaction.
    pub(super) async fn ended(
        &self,
        ending: impl Future<Output = Result<(), tokio_postgres::Error>>,
    ) -> Result<(), Unended> {
        match timeout(self.steps.settings.call_timeout, ending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_gone(&error) => {
                tracing::error!("the work has ended its transaction by a statement of its own");
                Err(Unended::Gone)
            }
            Ok(Err(error)) => Err(Unended::Failed(Fault::of(error).harmless())),
            Err(_) => Err(Unended::Failed(Fault::late(Effect::NotApplied))),
        }
    }

    /// A call before the commit, in time: until then nothing counts.
    pub(super) async fn in_time<A>(
        &self,
        call: impl Future<Output = Result<A, Fault>>,
    ) -> Result<A, Fault> {
        let called = timeout(self.steps.settings.call_timeout, call).await;
        called.unwrap_or_else(|_| Err(Fault::late(Effect::NotApplied))).map_err(Fault::harmless)
    }

    async fn timely<A, E>(
        &self,
        call: impl Future<Output = Result<A, tokio_postgres::Error>>,
    ) -> Result<A, RunError<E>> {
        let call = async { call.await.map_err(Fault::of) };
        self.in_time(call).await.map_err(unavailable)
    }

    /// Settles the claim, and asks under which number the transaction will be found.
    pub(super) async fn settle(
        &self,
        tx: &impl Ask,
        settle: &SettleRequest,
    ) -> Result<Ticket, Fault> {
        let statement = &self.steps.statements.transaction_id;
        let (settled, ticket) =
            tokio::join!(self.steps.settle_in(tx, settle), tx.ask(statement, &[]));
        // Nobody else can have it: the row is ours until the commit.
        if settled? != Fenced::Applied(()) {
            return Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied));
        }
        let rows = ticket?;
        let ticket = rows.first().and_then(|row| row.at(0).zip(row.at(1)));
        let (transaction, backend) = ticket.ok_or_else(|| Fault::late(Effect::NotApplied))?;
        Ok(Ticket { transaction, backend })
    }

    /// Commits, and where the reply is lost finds out what became of it.
    pub(super) async fn commit(
        &self,
        committing: impl Future<Output = Result<(), tokio_postgres::Error>>,
        ticket: &Ticket,
    ) -> Result<(), Fault> {
        let patience = self.steps.settings.call_timeout;
        match timeout(patience, committing).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => {
                let fault = Fault::of(error);
                if fault.is_harmless() {
                    return Err(fault);
                }
            }
            Err(_) => {}
        }
        let give_up = Instant::now() + patience * 2;
        while Instant::now() < give_up {
            match self.status(ticket).await {
                Ok(Status::Committed) => return Ok(()),
                Ok(Status::Aborted) => {
                    return Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied));
                }
                Ok(Status::InProgress) | Err(_) => sleep(ASK_EVERY).await,
                Ok(Status::Forgotten) => break,
            }
        }
        Err(Fault::late(Effect::MayHaveBeenApplied))
    }

    /// Asks, on another connection, what became of a transaction; and ends it if its own
    /// connection is gone and the server has not noticed.
    async fn status(&self, ticket: &Ticket) -> Result<Status, Fault> {
        let client = connection(&self.pools.admin, self.steps.settings.call_timeout).await?;
        let session = Session::new(&client, &self.steps.settings);
        let statement = &self.steps.statements.transaction_status;
        let values: [&(dyn ToSql + Sync); 2] = [&ticket.transaction, &ticket.backend];
        let asking = session.ask(statement, &values);
        let answered = timeout(self.steps.settings.call_timeout, asking).await;
        let rows = answered.map_err(|_| Fault::late(Effect::NotApplied))??;
        let status = rows.first().and_then(|row| row.get::<_, Option<&str>>(0));
        Ok(match status {
            Some("committed") => Status::Committed,
            Some("aborted") => Status::Aborted,
            Some(_) => Status::InProgress,
            None => Status::Forgotten,
        })
    }

    /// Whether a failure is kept. What is not kept is rolled back, and so never happened.
    fn classify<E>(&self, failure: Failure<E>) -> (bool, E) {
        match failure {
            Failure::Keep(error) => (true, error),
            Failure::Release(error) | Failure::Unknown(error) => (false, error),
            Failure::Unclassified(error) => (self.policy.failures() == Disposition::Keep, error),
        }
    }
}

/// How work ended inside of its transaction.
enum Worked<T, E> {
    Done(T),
    /// Failed for good; its rows are rolled back.
    Kept(E),
    /// To be rolled back with all there is.
    Undone(E),
    /// It has ended the transaction itself, and nobody knows how.
    Gone,
}

/// Why the work's part of a transaction could not be ended.
pub(super) enum Unended {
    /// Our savepoint is gone: what was done may be committed, without its outcome.
    Gone,
    /// Nothing of it is committed.
    Failed(Fault),
}

fn is_gone(error: &tokio_postgres::Error) -> bool {
    let gone = [SqlState::NO_ACTIVE_SQL_TRANSACTION, SqlState::S_E_INVALID_SPECIFICATION];
    error.code().is_some_and(|code| gone.contains(code))
}

/// How long between two questions about a transaction that still goes on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Under which a transaction is found, and the server's process that has it.
#[derive(Debug)]
pub(super) struct Ticket {
    transaction: String,
    backend: i32,
}

/// What became of a transaction.
enum Status {
    Committed,
    Aborted,
    InProgress,
    /// Too long ago for the server to know.
    Forgotten,
}

/// What was decided, as values of the caller's.
fn answer<T: DeserializeOwned, E: DeserializeOwned>(
    judged: Result<Replay, Rejection>,
) -> Result<Done<T>, RunError<E>> {
    let Replay { operation, ended, outcome } = judged?;
    let unreadable = |source| RunError::Unreadable { operation, source };
    match ended {
        Ended::Completed => {
            let value = outcome.read_json().map_err(unreadable)?;
            Ok(Done { value, operation, replayed: true, settled: Settled::Durable })
        }
        Ended::Failed => {
            let error = outcome.read_json().map_err(unreadable)?;
            Err(RunError::Failed { error, operation, replayed: true })
        }
    }
}

fn stored<T: Serialize>(value: &T, operation: OperationId) -> Outcome {
    Outcome::json(value).unwrap_or_else(|error| {
        tracing::error!(%operation, %error, "the result cannot be serialised");
        Outcome::omitted(Tag::JSON, "")
    })
}

fn unavailable<E>(fault: Fault) -> RunError<E> {
    RunError::Begin(BeginError::Unavailable(fault.into()))
}
