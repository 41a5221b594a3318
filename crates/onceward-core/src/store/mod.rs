//! The store traits: the seam between the engine and the place where records are kept.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Store` and `StoreAdmin`, their requests and answers, `StoreError` |
//! | `machine` | the truth table that every store follows |
//! | `memory` | the memory store |
//! | `metered` | a decorator that counts and times any store (feature `metrics`) |
//! | `claim_request` | constructors of claims |

mod claim_request;
pub mod machine;
mod memory;
#[cfg(feature = "metrics")]
mod metered;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::intent::{Fingerprint, Key, OperationId, RecordId, RequestPath, Scope, Sketch};
use crate::record::{
    Fence, Holder, Outcome, OwnerToken, Record, RecordVersion, Replay, Retention, StateName,
    UnknownCause,
};

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

    /// Extends a live lease. Refused once it has lapsed, even to its own holder: another caller
    /// may have been told that the outcome is unknown.
    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError>;

    /// Settles the operation. Accepted from the current holder even after its lease has lapsed;
    /// refused once the fence has moved.
    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError>;

    /// Returns the answer that a claim of a settled record would get, where the store knows it at
    /// once: without waiting and without writing. Most retries come after the first attempt is
    /// settled, and need no more.
    ///
    /// `None` tells nothing: send a claim.
    fn recall(&self, _id: &RecordId, _fingerprint: &Fingerprint) -> Option<Replay> {
        None
    }

    /// True if [`recall`](Store::recall) is supported. If not, callers skip preparing for it.
    fn recalls(&self) -> bool {
        false
    }

    /// Returns when the record may have changed. A hint: it may come late or without a change,
    /// and without notifications it never returns (the engine polls meanwhile).
    async fn changed(&self, _id: &RecordId) {
        std::future::pending::<()>().await;
    }
}

/// The part of a store for operators and background tasks.
#[async_trait]
pub trait StoreAdmin: Send + Sync + 'static {
    /// Returns a record as it is stored, or `None`.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;

    /// Returns a page of records, in the order of their ids.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Returns the record of an operation, or `None`.
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

    /// Returns true if a record stands at unknown by the store's clock, as a running one does
    /// whose lease has lapsed. Asks with [`Verdict::StillUnknown`], which is accepted for these
    /// records only and changes nothing.
    async fn is_unknown(&self, record: &Record) -> Result<bool, StoreError> {
        let (id, fence, verdict) = (record.id, record.fence, Verdict::StillUnknown);
        let retention = Retention { keep: Duration::from_secs(1), tombstone: Duration::ZERO };
        let asked = self.resolve(&ResolveRequest { id, fence, verdict, retention }).await?;
        Ok(asked == Fenced::Applied(()))
    }

    /// Applies evidence to a record whose outcome is unknown, if its fence is still the
    /// request's. Idempotent for the same evidence.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError>;

    /// Drops the content of a settled record's outcome, so that it is never replayed again; see
    /// [`Outcome::invalidated`]. The record stays: its key does not run again before its retention
    /// is over. Refused as stale for a record that is not settled, is expired, or has another
    /// fence. Atomic and idempotent.
    ///
    /// Afterwards no call reads the content from the store. Its bytes leave the disk as those of a
    /// removed record do.
    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError>;

    /// Removes at most `limit` records that are past their retention. Never touches running or
    /// unknown ones.
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError>;

    /// True if the store supports [`due`](Self::due) and
    /// [`purge_versions`](Self::purge_versions), and removes no record in any other way. Then its
    /// expired records can be [archived](crate::Archive).
    fn archives(&self) -> bool {
        false
    }

    /// Returns records that [`purge`](Self::purge) would change now, as they are stored: sealed
    /// outcomes stay sealed. At most `limit` of them, and not much more than [`DUE_BYTES_MAX`].
    /// Records that cannot be read are left out.
    async fn due(&self, _limit: usize) -> Result<Due, StoreError> {
        Err(not_archivable())
    }

    /// Purges records of these versions. Records that have changed since stay.
    async fn purge_versions(&self, _versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        Err(not_archivable())
    }

    /// Returns how much the store holds.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Writes a record of another store as it is, its times included, if it is
    /// [later](crate::machine::is_later) than the one stored here. Atomic and idempotent. A
    /// record never goes back, so records may come late, repeatedly and in any order.
    ///
    /// Later grants of this store for the key have higher fences. Times are judged by this
    /// store's clock: the two clocks have to agree as closely as leases and retention require.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError>;

    /// True if copies of records are kept in a cache in front of the store.
    fn has_cache(&self) -> bool {
        false
    }

    /// Makes every process ask the store again: copies of records in the cache, made before this
    /// call, do not count any more. For use after records were changed in the store by hand. Safe
    /// at any time, as a lost copy costs time only. Idempotent.
    ///
    /// When it returns, no process answers from such a copy. Without a cache it does nothing.
    async fn invalidate_cache(&self, _copies: &CachedCopies) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns whether the store grants new claims, and what may soon stop it. Changes nothing.
    /// `Err`: the store cannot be asked.
    async fn health(&self) -> Result<Health, StoreError> {
        Ok(Health::default())
    }

    /// Grants claims again after the store noticed that it had lost records. An operator says so,
    /// knowing that no client retries requests from before the loss, or that their effects may be
    /// repeated. Idempotent. After an error a part of the store may grant claims again.
    ///
    /// Stores that cannot lose records unnoticed have nothing to accept.
    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        Ok(LossAccepted::NothingWasLost)
    }
}

/// A store for engines and operators.
pub trait FullStore: Store + StoreAdmin {}

impl<S: Store + StoreAdmin> FullStore for S {}

/// A request for the right to run.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The record.
    pub id: RecordId,
    /// Token of this attempt, the same on each repetition of it.
    pub owner: OwnerToken,
    /// The operation's id if this claim begins one.
    pub operation: OperationId,
    /// Tenant, caller and operation name, for operators.
    pub scope: Scope,
    /// The client's key, only where the policy keeps it.
    pub key: Option<Key>,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Sketch of the request's parts, to explain a later mismatch.
    pub sketch: Sketch,
    /// The path that the request was sent to, for operators.
    pub path: Option<RequestPath>,
    /// Length of the lease.
    pub lease: Duration,
    /// Rule for a lapsed lease of another owner.
    pub lapsed: Lapsed,
    /// Rule for a record that is past its time.
    pub unpurged: Unpurged,
}

/// Rule for a claim that finds a lapsed lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapsed {
    /// Answer that the outcome is unknown.
    Unknown,
    /// Run again under a higher fence. Only for effects that are fenced or idempotent
    /// themselves.
    Takeover,
}

/// Rule for a claim that finds a record past its time, which no purge has removed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unpurged {
    /// Replace it: the key is new.
    #[default]
    Replace,
    /// Answer that the key has expired. For records that are archived before they are removed, as
    /// a claim in their place would lose them.
    Keep,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller may run.
    Granted {
        /// Fence and end of the lease.
        lease: Lease,
        /// The operation's id.
        operation: OperationId,
        /// Number of this attempt, counted from one.
        attempt: u32,
    },
    /// Another owner holds a live lease.
    Running {
        /// The operation's id.
        operation: OperationId,
        /// Remaining time of that lease.
        lease_left: Duration,
    },
    /// It succeeded: replay the outcome.
    Completed {
        /// The operation's id.
        operation: OperationId,
        /// The outcome.
        outcome: Outcome,
    },
    /// It failed for good: replay the failure.
    Failed {
        /// The operation's id.
        operation: OperationId,
        /// The outcome.
        outcome: Outcome,
    },
    /// The key was used for another request.
    Mismatch {
        /// Sketch of the first request's parts.
        first: Sketch,
    },
    /// It cannot be proved what happened.
    Unknown {
        /// The operation's id.
        operation: OperationId,
    },
    /// The key's record is past its retention.
    Expired,
}

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Number of the grant.
    pub fence: Fence,
    /// End of the lease, on the store's clock.
    pub until: Timestamp,
}

/// The answer to a call that needs the current fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced<T> {
    /// Applied, now or by an earlier sending of the same call.
    Applied(T),
    /// Refused: another owner decides now, or the operation is settled.
    Stale,
    /// There is no such record. If the caller was granted it, the store has lost data.
    Missing,
}

impl<T> Fenced<T> {
    /// Changes the value of `Applied`.
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
    /// The owner and its fence.
    pub holder: Holder,
    /// Length of the lease from now.
    pub lease: Duration,
}

/// Settlement of an operation by its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It succeeded.
    Complete(Outcome),
    /// It failed for good.
    Fail(Outcome),
    /// It cannot be proved what happened, for this reason. The first reason is kept.
    Unknown(UnknownCause),
    /// Nothing happened. From an owner that took over, this means only that *it* did nothing:
    /// the lease ends, and the intent stands as before the takeover.
    Release,
}

/// A settlement by the holder of a lease.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// The record.
    pub id: RecordId,
    /// The owner and its fence.
    pub holder: Holder,
    /// The settlement.
    pub settlement: Settlement,
    /// Retention of the outcome.
    pub retention: Retention,
}

/// Evidence about an operation whose outcome is unknown.
#[derive(Debug, Clone)]
pub struct ResolveRequest {
    /// The record.
    pub id: RecordId,
    /// The fence that the evidence is about.
    pub fence: Fence,
    /// The verdict of the evidence.
    pub verdict: Verdict,
    /// Retention of the outcome.
    pub retention: Retention,
}

/// Invalidation of a stored outcome: a correction of data has removed the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidateRequest {
    /// The record.
    pub id: RecordId,
    /// The fence of the outcome.
    pub fence: Fence,
}

/// Verdict about an operation whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened, with this outcome.
    Happened(Outcome),
    /// It did not happen **and cannot happen any more** under this fence.
    DidNotHappen,
    /// Still unknown. Changes nothing.
    StillUnknown,
}

/// Selects records for a listing.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only records that stand at this state now (a lapsed lease stands at unknown).
    pub standing: Option<StateName>,
    /// Only records of this tenant.
    pub tenant: Option<String>,
    /// Only records of this operation name.
    pub operation_name: Option<String>,
    /// Only records after this id.
    pub after: Option<RecordId>,
    /// Most records in a page; zero means 100.
    pub limit: usize,
}

impl Query {
    /// Returns true if a record matches at `now`, apart from paging.
    pub fn matches(&self, record: &Record, now: Timestamp) -> bool {
        let standing = record.standing(now);
        standing.is_some()
            && self.standing.is_none_or(|wanted| standing == Some(wanted))
            && self.tenant.as_ref().is_none_or(|wanted| record.scope.tenant() == wanted)
            && self.operation_name.as_ref().is_none_or(|wanted| record.scope.operation() == wanted)
    }

    /// Size of a page.
    pub fn page_size(&self) -> usize {
        if self.limit == 0 { 100 } else { self.limit }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// The `after` of the next page, if there is one.
    pub next: Option<RecordId>,
    /// Records that exist and cannot be read. They are listed for every query, because it is
    /// unknown whether they match, and they count against the limit. Claims of them fail as
    /// [`StoreErrorKind::Undecodable`]; one of them does not hide the others.
    pub undecodable: Vec<RecordId>,
}

/// Most bytes of [`StoreAdmin::due`] apart from its last record: they are in memory at once.
pub const DUE_BYTES_MAX: usize = 16 << 20;

/// Records that are past their retention.
#[derive(Debug, Clone, Default)]
pub struct Due {
    /// The records.
    pub records: Vec<Record>,
    /// True if more records are due now.
    pub more: bool,
}

fn not_archivable() -> StoreError {
    StoreError::new("store", StoreErrorKind::Unavailable, Effect::NotApplied)
        .caused_by("this store cannot be archived")
}

/// Effect of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Records removed.
    pub removed: usize,
    /// Records whose outcome was dropped, while the key is still known as expired.
    pub tombstoned: usize,
    /// True if more records are due now.
    pub more: bool,
}

/// Effect of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Imported {
    /// The record was written.
    Written,
    /// The store kept its own, which is the same or a later one.
    Kept,
}

/// Size of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records of every state.
    pub records: u64,
    /// About how many bytes the records take.
    pub bytes: u64,
    /// Records by state, in the order of [`StateName::ALL`]. A lapsed lease counts as unknown. A
    /// record past its retention counts by its last state until it is purged.
    pub by_state: [u64; StateName::ALL.len()],
    /// Time of the last change of the oldest record that stands at unknown, by the store's clock:
    /// when it was settled as unknown, or when its lapsed lease was granted or renewed.
    pub oldest_unknown: Option<Timestamp>,
}

impl Stats {
    /// Corrects the counts by an open record, which was counted by its stored state: running until
    /// `lease_until`, or unknown (`None`). For stores, which call it once for each of them.
    pub fn correct_open(
        &mut self,
        lease_until: Option<Timestamp>,
        updated_at: Timestamp,
        now: Timestamp,
    ) {
        if let Some(lease_until) = lease_until {
            if now < lease_until {
                return;
            }
            let running = &mut self.by_state[StateName::Running as usize];
            // A count and a record may be read at different times.
            if *running > 0 {
                *running -= 1;
                self.by_state[StateName::Unknown as usize] += 1;
            }
        }
        let oldest = self.oldest_unknown.map_or(updated_at, |oldest| oldest.min(updated_at));
        self.oldest_unknown = Some(oldest);
    }
}

/// Copies of records in a cache in front of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedCopies {
    /// All of them.
    All,
    /// Those of these records, which need not be in the store any more. Their bytes leave the cache
    /// at once. Other copies may be made again, too.
    Of(Vec<RecordId>),
}

/// Readiness of a store to grant claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Reason why no new claims are granted, if so. Stored outcomes are still replayed, and
    /// holders may settle.
    pub refuses: Option<String>,
    /// Warnings for operators to act on before claims are refused.
    pub warnings: Vec<String>,
}

impl Health {
    /// A store that grants claims, with warnings.
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
    /// Effect of the call: whether the step may have been taken.
    pub effect: Effect,
    /// Kind of the failure.
    pub kind: StoreErrorKind,
    /// Name of the store.
    pub store: &'static str,
    /// The underlying error.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// Effect of a failed call on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Certainly not.
    NotApplied,
    /// Possibly: the reply was lost.
    MayHaveBeenApplied,
}

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached or refuses service.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// No room for new claims.
    Full,
    /// The record exists and cannot be read. Never treated as absent.
    Undecodable,
    /// The store has failed for good and must be reopened.
    Poisoned,
}

impl StoreError {
    /// An error of the named store.
    #[cold]
    pub fn new(store: &'static str, kind: StoreErrorKind, effect: Effect) -> Self {
        Self { effect, kind, store, source: None }
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// True if the step may have been taken nevertheless.
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
