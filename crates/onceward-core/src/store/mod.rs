//! The seam between the engine and whatever keeps the records.

pub mod machine;
mod memory;
#[cfg(feature = "metrics")]
mod metered;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::intent::{Fingerprint, Key, OperationId, RecordId, Scope, Sketch};
use crate::record::{Fence, Holder, Outcome, OwnerToken, Record, Replay, Retention, StateName};

pub use memory::{MemoryLimits, MemoryStore};
#[cfg(feature = "metrics")]
pub use metered::{MeteredStore, Meters};

/// Keeps records and decides, atomically per record, who may run.
///
/// Every method is one atomic step of [`machine`](crate::machine) at the store's own time.
/// Every method is idempotent for the same arguments: drivers and engines send again when
/// a reply is lost. Every future may be dropped at any point; the step is then taken or not
/// taken, never half. An `Err` says by [`StoreError::effect`] whether it may have been taken.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Asks for the right to run. The same owner token gets the same answer while its
    /// lease lives.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Extends a live lease. Refused once it has lapsed, even to its
    /// own holder: somebody may have been told that the outcome is unknown.
    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError>;

    /// Says what the operation came to. Accepted from the current holder even after its
    /// lease has lapsed; refused once the fence has moved.
    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError>;

    /// What a claim of a settled record would be answered, where the store can say it at once:
    /// without waiting for anything, and without writing anything. Most retries come after
    /// the first attempt is settled, and need no more.
    ///
    /// `None` says nothing: a claim has to be made to know.
    fn recall(&self, _id: &RecordId, _fingerprint: &Fingerprint) -> Option<Replay> {
        None
    }

    /// Whether [`recall`](Store::recall) ever says anything. Where not, nobody prepares to ask.
    fn recalls(&self) -> bool {
        false
    }

    /// Returns when the record may have changed. A hint: it may come late, or for nothing,
    /// and stores without notifications never return (the engine polls beside it).
    async fn changed(&self, _id: &RecordId) {
        std::future::pending::<()>().await;
    }
}

/// What operators and background work need of a store.
#[async_trait]
pub trait StoreAdmin: Send + Sync + 'static {
    /// One record as it is stored, or `None`.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;

    /// A page of records, in the order of their ids.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// The record of an operation, if it is there.
    async fn find(&self, operation: &OperationId) -> Result<Option<Record>, StoreError> {
        let after = Some(operation.before_records());
        let mut query = Query { after, limit: 2, ..Query::default() };
        loop {
            let page = self.list(&query).await?;
            for record in page.records {
                if record.operation == *operation {
                    return Ok(Some(record));
                }
                if !operation.may_be_of(&record.id) {
                    return Ok(None);
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Whether a record stands at unknown by the store's clock, as a running one does whose lease
    /// has lapsed. Evidence that nobody knows is accepted of these only, and changes nothing.
    async fn is_unknown(&self, record: &Record) -> Result<bool, StoreError> {
        let (id, fence, verdict) = (record.id, record.fence, Verdict::StillUnknown);
        let retention = Retention { keep: Duration::from_secs(1), tombstone: Duration::ZERO };
        let asked = self.resolve(&ResolveRequest { id, fence, verdict, retention }).await?;
        Ok(asked == Fenced::Applied(()))
    }

    /// Applies evidence to a record whose outcome is unknown, if its fence is still
    /// `fence`. Idempotent for the same evidence.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError>;

    /// Removes records that are past their time, at most `limit` of them. Never touches
    /// running or unknown ones.
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError>;

    /// How much the store holds.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Takes over a record of another store as it is, its times included, if it is
    /// [later](crate::machine::is_later) than what is here. Atomic and idempotent; it never
    /// goes back, so records may come late, repeatedly and in any order.
    ///
    /// Grants that this store makes of the key from then on have higher fences. Times are
    /// judged by this store's clock: the two clocks have to agree as well as the user
    /// expects of leases and retention.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError>;

    /// Whether the store grants new claims, and what may soon keep it from doing so. Changes
    /// nothing. `Err` says that the store cannot be asked.
    async fn health(&self) -> Result<Health, StoreError> {
        Ok(Health::default())
    }

    /// Grants claims again after the store noticed that it had lost records: an operator says
    /// that no client sends again what it sent before the loss, or that such effects may be
    /// repeated. Idempotent. After an error a part of the store may grant claims again.
    ///
    /// Stores that cannot lose records behind our back have nothing to accept.
    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        Ok(LossAccepted::NothingWasLost)
    }
}

/// A store that serves engines and operators alike.
pub trait FullStore: Store + StoreAdmin {}

impl<S: Store + StoreAdmin> FullStore for S {}

/// A request for the right to run.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The record in question.
    pub id: RecordId,
    /// Drawn afresh for this attempt, and sent again with each repetition of it.
    pub owner: OwnerToken,
    /// The operation's name if this claim begins one.
    pub operation: OperationId,
    /// Whose it is, for operators.
    pub scope: Scope,
    /// The client's key, only where the policy says to keep it.
    pub key: Option<Key>,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// What to remember of its parts, to explain a later mismatch.
    pub sketch: Sketch,
    /// For how long, until renewed.
    pub lease: Duration,
    /// What to do about an owner whose lease has lapsed.
    pub lapsed: Lapsed,
}

/// What a claim does when it finds a lapsed lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapsed {
    /// Nobody knows what the old owner did: the outcome is unknown.
    Unknown,
    /// Run again under a higher fence. Only for effects that are fenced or idempotent
    /// themselves.
    Takeover,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller may run.
    Granted {
        /// For how long, and under which fence.
        lease: Lease,
        /// The operation's name.
        operation: OperationId,
        /// Which attempt at it this is, counted from one.
        attempt: u32,
    },
    /// Somebody else holds a live lease.
    Running {
        /// The operation's name.
        operation: OperationId,
        /// How long that lease still lasts.
        lease_left: Duration,
    },
    /// It was done: replay.
    Completed {
        /// The operation's name.
        operation: OperationId,
        /// What to replay.
        outcome: Outcome,
    },
    /// It failed for good: replay the failure.
    Failed {
        /// The operation's name.
        operation: OperationId,
        /// What to replay.
        outcome: Outcome,
    },
    /// The key was used for another request.
    Mismatch {
        /// What the record remembers of the first request's parts.
        first: Sketch,
    },
    /// Nobody can prove what happened.
    Unknown {
        /// The operation's name.
        operation: OperationId,
    },
    /// The key's record is past its retention.
    Expired,
}

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Which grant it is.
    pub fence: Fence,
    /// When it lapses, on the store's clock.
    pub until: Timestamp,
}

/// The answer to a call that needs the current fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced<T> {
    /// Done, now or by an earlier sending of the same call.
    Applied(T),
    /// Refused: the caller is no longer the one who decides, or the matter is settled.
    Stale,
    /// There is no such record. If the caller was granted it, the store has lost data.
    Missing,
}

impl<T> Fenced<T> {
    /// The same, with something else to say of what was applied.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fenced<U> {
        match self {
            Self::Applied(it) => Fenced::Applied(change(it)),
            Self::Stale => Fenced::Stale,
            Self::Missing => Fenced::Missing,
        }
    }
}

/// A request for more time by the holder of a lease.
#[derive(Debug, Clone, Copy)]
pub struct RenewRequest {
    /// The record.
    pub id: RecordId,
    /// Who asks.
    pub holder: Holder,
    /// For how long from now.
    pub lease: Duration,
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It succeeded.
    Complete(Outcome),
    /// It failed for good.
    Fail(Outcome),
    /// Nobody knows.
    Unknown,
    /// Nothing happened. From an owner that took over, this says only that *it* did
    /// nothing: the lease ends, and the intent stands as before the takeover.
    Release,
}

/// A settlement by the holder of a lease.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// The record.
    pub id: RecordId,
    /// Who speaks.
    pub holder: Holder,
    /// What they say.
    pub settlement: Settlement,
    /// How long to keep it.
    pub retention: Retention,
}

/// Evidence about an operation whose outcome is unknown.
#[derive(Debug, Clone)]
pub struct ResolveRequest {
    /// The record.
    pub id: RecordId,
    /// The fence that the evidence is about.
    pub fence: Fence,
    /// What the evidence says.
    pub verdict: Verdict,
    /// How long to keep it.
    pub retention: Retention,
}

/// What evidence says about an operation whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened, and this is what it came to.
    Happened(Outcome),
    /// It did not happen **and cannot happen any more** under this fence.
    DidNotHappen,
    /// Still nobody knows. Changes nothing.
    StillUnknown,
}

/// Which records to list.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only records that stand there now (a lapsed lease stands at unknown).
    pub standing: Option<StateName>,
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only this operation name's.
    pub operation_name: Option<String>,
    /// Only records after this one.
    pub after: Option<RecordId>,
    /// At most so many; zero means 100.
    pub limit: usize,
}

impl Query {
    /// Whether a record belongs to the answer at `now`, apart from paging.
    pub fn matches(&self, record: &Record, now: Timestamp) -> bool {
        let standing = record.standing(now);
        standing.is_some()
            && self.standing.is_none_or(|wanted| standing == Some(wanted))
            && self.tenant.as_ref().is_none_or(|wanted| record.scope.tenant() == wanted)
            && self.operation_name.as_ref().is_none_or(|wanted| record.scope.operation() == wanted)
    }

    /// The page size that applies.
    pub fn page_size(&self) -> usize {
        if self.limit == 0 { 100 } else { self.limit }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// Where the next page goes on, if there is one.
    pub next: Option<RecordId>,
    /// Records that are there and cannot be read, whatever the query asks for: nobody can
    /// tell whether they match. They count against the limit. Claims of them fail as
    /// [`StoreErrorKind::Undecodable`], and one of them does not hide the others.
    pub undecodable: Vec<RecordId>,
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Records removed.
    pub removed: usize,
    /// Records whose outcome was dropped, the key staying known as expired.
    pub tombstoned: usize,
    /// Whether more is due now.
    pub more: bool,
}

/// What became of a record that came from another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Imported {
    /// It is what the store has now.
    Written,
    /// The store has this one already, or a later one of the same key.
    Kept,
}

/// How much a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records of every state.
    pub records: u64,
    /// About how many bytes they take.
    pub bytes: u64,
    /// Records by stored state, in the order of [`StateName::ALL`].
    pub by_state: [u64; StateName::ALL.len()],
}

/// Whether a store grants new claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why no new claims are granted. Stored outcomes are replayed, and holders may settle.
    pub refuses: Option<String>,
    /// Warnings that an operator should act on before claims are refused.
    pub warnings: Vec<String>,
}

impl Health {
    /// A store that grants claims, and has this to warn about.
    pub fn warning(warnings: impl IntoIterator<Item = String>) -> Self {
        Self { refuses: None, warnings: warnings.into_iter().collect() }
    }

    /// A store that grants no claims.
    pub fn refusing(why: impl Into<String>) -> Self {
        Self { refuses: Some(why.into()), warnings: Vec::new() }
    }
}

/// Effect of accepting a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossAccepted {
    /// Claims were refused because records were lost, and are granted again.
    Reopened,
    /// No claims were refused for this reason.
    NothingWasLost,
}

/// A failed store call. [`StoreError::effect`] is what safety depends on.
#[derive(Debug, thiserror::Error)]
#[error("{store}: {kind} ({effect})")]
pub struct StoreError {
    /// Whether the step may have been taken all the same.
    pub effect: Effect,
    /// What went wrong.
    pub kind: StoreErrorKind,
    /// Which store said so.
    pub store: &'static str,
    /// What it said.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// Whether a failed call changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Surely not.
    NotApplied,
    /// Perhaps: the reply was lost.
    MayHaveBeenApplied,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached or refuses service.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// No room for new claims.
    Full,
    /// A record is there and cannot be read. Never treated as absent.
    Undecodable,
    /// The store has failed for good and must be reopened.
    Poisoned,
}

impl StoreError {
    /// An error of `store` that says what happened.
    #[cold]
    pub fn new(store: &'static str, kind: StoreErrorKind, effect: Effect) -> Self {
        Self { effect, kind, store, source: None }
    }

    /// Keeps the error underneath.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether the step may have been taken all the same.
    pub fn may_have_been_applied(&self) -> bool {
        self.effect == Effect::MayHaveBeenApplied
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplied => "not applied",
            Self::MayHaveBeenApplied => "may have been applied",
        })
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "no answer in time",
            Self::Full => "full, no room for new claims",
            Self::Undecodable => "a record cannot be read",
            Self::Poisoned => "stopped after a failure, reopen it",
        })
    }
}
