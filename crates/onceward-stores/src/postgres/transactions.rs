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
use super::error::Fault;
use super::executor::Executor;
use super::open_transaction::{Begun, OpenTransaction};
use super::row::DriverRow as _;
use super::session::{Pools, Session, SqlClient, connection};
use super::transaction_claim::TransactionClaim;
use super::transaction_handle::TransactionConnection;

impl PostgresStore {
    /// Claims within the caller's transaction, at READ COMMITTED.
    ///
    /// A grant counts when the transaction commits, and never existed if it does not. So its lease
    /// does not matter; settle it by [`settle_in`](Self::settle_in) before the commit. If another
    /// transaction works on the same record, the answer is [`Running`](Claim::Running) at once,
    /// with a nil operation if its record is not visible yet: retries of a slow key do not wait.
    /// After an error the transaction can only be rolled back.
    pub async fn claim_in(
        &self,
        tx: &Transaction<'_>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        Ok(self.executor.claim_in(tx, request).await?)
    }

    /// Settles within the transaction that claimed.
    pub async fn settle_in(
        &self,
        tx: &Transaction<'_>,
        request: &SettleRequest,
    ) -> Result<Fenced<()>, StoreError> {
        Ok(self.executor.settle_in(tx, request).await?)
    }

    /// Settles as completed, within the transaction that claimed.
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

    /// Returns transactions on this store, with the identity and the policy of its engines.
    pub fn transactions(&self, identity: Identity, policy: Policy) -> Transactions {
        let (executor, pools) = (Arc::clone(&self.executor), Arc::clone(&self.pools));
        let (policy, ambient) = (Arc::new(policy), Arc::new(SystemAmbient::new()));
        Transactions { executor, pools, identity, policy, ambient }
    }
}

impl Executor {
    pub(super) async fn claim_in(
        &self,
        tx: &impl SqlClient,
        request: &ClaimRequest,
    ) -> Result<Claim, Fault> {
        let lock = self.lock_of(&request.id);
        let locked = tx.run(&self.statements.try_lock, &[&lock]).await?;
        if locked.first().and_then(|row| row.at(0)) != Some(true) {
            return self.claim_elsewhere(tx, request).await;
        }
        let claim = self.claims(tx, &[request]).await.swap_remove(0)?;
        if let Claim::Granted { operation, .. } = &claim {
            let operation = operation.to_string();
            tx.run(&self.statements.set_operation, &[&operation]).await?;
        }
        Ok(claim)
    }

    /// The answer while another transaction works on the record: what is committed, if that is a
    /// final answer.
    async fn claim_elsewhere(
        &self,
        tx: &impl SqlClient,
        request: &ClaimRequest,
    ) -> Result<Claim, Fault> {
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

    /// The advisory lock of a record, different from those of other schemas.
    fn lock_of(&self, id: &RecordId) -> i64 {
        let mut first = [0; 8];
        first.copy_from_slice(&id.as_bytes()[..8]);
        i64::from_be_bytes(first) ^ self.settings.schema.lock()
    }
}

/// Runs work within a transaction that also claims its intent and stores its outcome: all of it is
/// committed, or nothing.
///
/// If the process dies, the intent is as if it had never come. The outcome is unknown only if the
/// reply to the commit is lost and the server cannot be asked in time. The work must have no effect
/// outside of the transaction.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Transactions {
    pub(super) executor: Arc<Executor>,
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
    /// The same transactions with another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self { policy: Arc::new(policy), ..self.clone() }
    }

    /// The policy of these transactions.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Begins a transaction that claims an intent, for work that is not a closure; for a closure
    /// use [`transact`](Self::transact). Waits for a running owner as long as the policy says.
    ///
    /// Dropped at any point, it leaves no open transaction.
    ///
    /// # Errors
    ///
    /// The server cannot be asked. No work was done.
    pub async fn begin(&self, intent: &Intent) -> Result<Begun, BeginError> {
        let give_up = Instant::now() + self.policy.wait();
        loop {
            let begun = self.begin_once(intent).await;
            match begun.map_err(|fault| BeginError::Unavailable(fault.into()))? {
                Begun::Reject(Rejection::Running { .. }) if Instant::now() < give_up => {
                    // A transaction that is not committed yet wakes no waiter.
                    sleep_until((Instant::now() + self.policy.poll_every()).min(give_up)).await;
                }
                begun => return Ok(begun),
            }
        }
    }

    async fn begin_once(&self, intent: &Intent) -> Result<Begun, Fault> {
        let limit = self.executor.settings.call_timeout;
        let connection =
            TransactionConnection::new(connection(&self.pools.transactions, limit).await?);
        let claimed = self.in_time(self.claim_on(&connection, intent)).await?;
        let Claim::Granted { lease, operation, attempt } = claimed.claim else {
            return self.not_begun(intent, claimed, connection).await;
        };
        let request = claimed.request;
        let grant = Grant::without_lease(operation, lease.fence, attempt);
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let place = (request.id, claimed.retention);
        let open = OpenTransaction::new(self.clone(), connection, grant, place, holder);
        Ok(Begun::Execute(Box::new(open)))
    }

    /// Ends a transaction that does no work.
    async fn not_begun(
        &self,
        intent: &Intent,
        claimed: TransactionClaim,
        connection: TransactionConnection,
    ) -> Result<Begun, Fault> {
        let session = Session::new(&connection, &self.executor.settings);
        let judged = self.in_time(self.judge(&session, intent, &claimed)).await?;
        let end = if claimed.linked { "COMMIT" } else { "ROLLBACK" };
        let ended = async { connection.batch_execute(end).await.map_err(Fault::of) };
        // If that fails the connection is dropped, and the next retry makes the link.
        if self.in_time(ended).await.is_ok() {
            connection.give_back();
        }
        Ok(match judged {
            Ok(replay) => Begun::Replay(replay),
            Err(rejection) => Begun::Reject(rejection),
        })
    }

    /// Begins a transaction, claims, and sets the savepoint of the work.
    async fn claim_on(
        &self,
        connection: &TransactionConnection,
        intent: &Intent,
    ) -> Result<TransactionClaim, Fault> {
        let session = Session::new(connection, &self.executor.settings);
        connection
            .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await
            .map_err(Fault::of)?;
        let claimed = self.claim(&session, intent).await?;
        if matches!(claimed.claim, Claim::Granted { .. }) {
            connection.batch_execute("SAVEPOINT onceward_work").await.map_err(Fault::of)?;
        }
        Ok(claimed)
    }

    /// Does the work once for an intent, and gives every retry its first result.
    ///
    /// - `Ok` commits the rows of the work together with the result.
    /// - [`Failure::Keep`] rolls the rows back and commits the failure, which retries get.
    /// - [`Failure::Release`] and [`Failure::Unknown`] roll everything back: it is certain that
    ///   nothing happened. Use them for errors of the database.
    /// - [`Failure::Unclassified`] is treated as the policy says.
    ///
    /// Dropped at any point, it is committed or rolled back as a whole, and leaves no open
    /// transaction.
    pub async fn transact<T, E, W>(&self, intent: &Intent, work: W) -> Result<Done<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        W: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure<E>>,
    {
        let limit = self.executor.settings.call_timeout;
        let client = connection(&self.pools.transactions, limit).await;
        let mut client = client.map_err(unavailable)?;
        let ended = self.transact_on(&mut client, intent, work).await;
        if matches!(ended, Err(RunError::Begin(_) | RunError::Unknown { .. })) {
            // It may have a statement in flight, which must not meet the next caller.
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
            WorkResult::Done(value) => {
                let outcome = stored(&value, operation);
                let settled = Settled::Durable;
                let done = Done { value, operation, replayed: false, settled };
                (Settlement::Complete(outcome), Ok(done))
            }
            WorkResult::Failed(error) => {
                let outcome = stored(&error, operation);
                let failed = RunError::Failed { error, operation, replayed: false };
                (Settlement::Fail(outcome), Err(failed))
            }
            WorkResult::EndedByWork => return Err(RunError::Unknown { operation, error: None }),
            WorkResult::RollBack(error) => {
                return match self.timely::<_, E>(tx.rollback()).await {
                    Ok(()) => Err(RunError::Released { error }),
                    Err(unreachable) => Err(unreachable),
                };
            }
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let settle = SettleRequest { id: request.id, holder, settlement, retention };
        let id = self.in_time(self.settle(&tx, &settle)).await.map_err(unavailable)?;
        match self.commit(tx.commit(), &id).await {
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
    ) -> Result<WorkResult<T, E>, RunError<E>>
    where
        W: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure<E>>,
    {
        let mut inner = self.timely(tx.savepoint("onceward_work")).await?;
        match work(&mut inner).await {
            Ok(value) => match self.end_work(inner.commit()).await {
                Ok(()) => Ok(WorkResult::Done(value)),
                Err(EndError::EndedByWork) => Ok(WorkResult::EndedByWork),
                Err(EndError::Failed(fault)) => Err(unavailable(fault)),
            },
            Err(failure) => {
                let (keep, error) = self.classify(failure);
                Ok(match self.end_work(inner.rollback()).await {
                    Ok(()) if keep => WorkResult::Failed(error),
                    Err(EndError::EndedByWork) => WorkResult::EndedByWork,
                    // Without a connection the failure cannot be stored.
                    Ok(()) | Err(EndError::Failed(_)) => WorkResult::RollBack(error),
                })
            }
        }
    }

    /// Releases or rolls back the work's savepoint.
    pub(super) async fn end_work(
        &self,
        ending: impl Future<Output = Result<(), tokio_postgres::Error>>,
    ) -> Result<(), EndError> {
        match timeout(self.executor.settings.call_timeout, ending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_gone(&error) => {
                tracing::error!("the work has ended its transaction by a statement of its own");
                Err(EndError::EndedByWork)
            }
            Ok(Err(error)) => Err(EndError::Failed(Fault::of(error).harmless())),
            Err(_) => Err(EndError::Failed(Fault::late(Effect::NotApplied))),
        }
    }

    /// A call before the commit, within a time limit. Nothing counts before the commit.
    pub(super) async fn in_time<A>(
        &self,
        call: impl Future<Output = Result<A, Fault>>,
    ) -> Result<A, Fault> {
        let called = timeout(self.executor.settings.call_timeout, call).await;
        called.unwrap_or_else(|_| Err(Fault::late(Effect::NotApplied))).map_err(Fault::harmless)
    }

    async fn timely<A, E>(
        &self,
        call: impl Future<Output = Result<A, tokio_postgres::Error>>,
    ) -> Result<A, RunError<E>> {
        let call = async { call.await.map_err(Fault::of) };
        self.in_time(call).await.map_err(unavailable)
    }

    /// Settles the claim, and asks for the transaction's number.
    pub(super) async fn settle(
        &self,
        tx: &impl SqlClient,
        settle: &SettleRequest,
    ) -> Result<TransactionId, Fault> {
        let statement = &self.executor.statements.transaction_id;
        let (settled, id) =
            tokio::join!(self.executor.settle_in(tx, settle), tx.run(statement, &[]));
        // Only this transaction can have the row until the commit.
        if settled? != Fenced::Applied(()) {
            return Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied));
        }
        let rows = id?;
        let id = rows.first().and_then(|row| row.at(0).zip(row.at(1)));
        let (transaction, backend) = id.ok_or_else(|| Fault::late(Effect::NotApplied))?;
        Ok(TransactionId { transaction, backend })
    }

    /// Commits. If the reply is lost, finds out what became of the transaction.
    pub(super) async fn commit(
        &self,
        committing: impl Future<Output = Result<(), tokio_postgres::Error>>,
        id: &TransactionId,
    ) -> Result<(), Fault> {
        let patience = self.executor.settings.call_timeout;
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
            match self.status(id).await {
                Ok(TransactionStatus::Committed) => return Ok(()),
                Ok(TransactionStatus::Aborted) => {
                    return Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied));
                }
                Ok(TransactionStatus::InProgress) | Err(_) => sleep(POLL_EVERY).await,
                Ok(TransactionStatus::Forgotten) => break,
            }
        }
        Err(Fault::late(Effect::MayHaveBeenApplied))
    }

    /// Asks on another connection what became of a transaction. Ends it if its own connection is
    /// gone and the server has not noticed.
    async fn status(&self, id: &TransactionId) -> Result<TransactionStatus, Fault> {
        let client = connection(&self.pools.admin, self.executor.settings.call_timeout).await?;
        let session = Session::new(&client, &self.executor.settings);
        let statement = &self.executor.statements.transaction_status;
        let values: [&(dyn ToSql + Sync); 2] = [&id.transaction, &id.backend];
        let asking = session.run(statement, &values);
        let answered = timeout(self.executor.settings.call_timeout, asking).await;
        let rows = answered.map_err(|_| Fault::late(Effect::NotApplied))??;
        let status = rows.first().and_then(|row| row.get::<_, Option<&str>>(0));
        Ok(match status {
            Some("committed") => TransactionStatus::Committed,
            Some("aborted") => TransactionStatus::Aborted,
            Some(_) => TransactionStatus::InProgress,
            None => TransactionStatus::Forgotten,
        })
    }

    /// Returns whether a failure is kept. A failure that is not kept is rolled back, so it never
    /// happened.
    fn classify<E>(&self, failure: Failure<E>) -> (bool, E) {
        match failure {
            Failure::Keep(error) => (true, error),
            Failure::Release(error) | Failure::Unknown(error) => (false, error),
            Failure::Unclassified(error) => (self.policy.failures() == Disposition::Keep, error),
        }
    }
}

/// The result of work in its transaction.
enum WorkResult<T, E> {
    Done(T),
    /// A failure to keep; the rows of the work are rolled back.
    Failed(E),
    /// A failure that rolls the whole transaction back.
    RollBack(E),
    /// The work has ended the transaction by a statement of its own: committed or rolled back.
    EndedByWork,
}

/// Why the work's savepoint could not be released or rolled back.
pub(super) enum EndError {
    /// The savepoint is gone: the rows of the work may be committed, without an outcome.
    EndedByWork,
    /// Nothing of it is committed.
    Failed(Fault),
}

fn is_gone(error: &tokio_postgres::Error) -> bool {
    let gone = [SqlState::NO_ACTIVE_SQL_TRANSACTION, SqlState::S_E_INVALID_SPECIFICATION];
    error.code().is_some_and(|code| gone.contains(code))
}

/// Time between two questions about a transaction in progress.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The number of a transaction, and its server process.
#[derive(Debug)]
pub(super) struct TransactionId {
    transaction: String,
    backend: i32,
}

/// The status of a transaction.
enum TransactionStatus {
    Committed,
    Aborted,
    InProgress,
    /// Too long ago for the server to know.
    Forgotten,
}

/// Decodes a stored answer.
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
