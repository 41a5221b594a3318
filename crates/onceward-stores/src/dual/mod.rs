//! Two stores as one, to move from the first to the second while calls go on.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use onceward_core::FullStore;
//! # async fn example(redis: Arc<dyn FullStore>, postgres: Arc<dyn FullStore>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use onceward_stores::dual::{DualStore, Settings};
//!
//! // In every process, instead of the old store.
//! let store = DualStore::open("to-postgres", redis, postgres, Settings::default()).await?;
//!
//! // When all of them have it, in one of them:
//! let report = store.copy(|copied| println!("{} records", copied.written)).await?;
//! assert!(report.is_clean());
//! store.switch_over().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - One of the two stores, the **authority**, decides every call. Before a call is answered, its
//!   record is in the other store, the **follower**, or noted as lagging.
//! - A follower that fails fails no call. While records lag in any process, there is no
//!   switchover.
//! - However many processes there are, and however late one of them is: **no two of them ever
//!   have grants by different authorities counted.** A call during which its authority changed
//!   fails as *may have been applied*. Sent again with the same token, as engines do, it means
//!   the same at the new authority.
//! - After a switchover, holders renew and settle what they were granted before it.
//!
//! # How it works
//!
//! Both stores keep an *authority record*, which names the authority. A call begins and counts
//! only under an authority record that its process has read at most a short lease ago, from the
//! authority itself. A switchover is announced in that record and waits for the lease: by then
//! every process has finished its calls under the old authority, or has to read the record again.
//! The switchover itself is one compare-and-set in the old authority. `docs/stores.md` has the
//! procedure and its conditions: clocks of the stores that agree to within seconds, and no
//! process that uses the old store without this one.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the store: calls, replication, copying |
//! | `authority_record` | which store decides, as a record of both stores |
//! | `replicas` | the two stores; compare-and-set of the authority record |
//! | `authority_lease` | how long this process relies on what it has read |
//! | `switchover` | making the follower the authority |
//! | `lag` | records that the follower does not have yet |
//! | `clock_offset` | the difference between the clocks of the stores |
//! | `settings`, `error` | times; errors |

mod authority_lease;
mod authority_record;
mod clock_offset;
mod error;
mod lag;
mod replicas;
mod settings;
mod switchover;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    CachedCopies, Claim, ClaimRequest, Due, Effect, Fenced, FullStore, Health, Imported,
    InvalidateRequest, Lease, LossAccepted, Page, Purged, Query, Record, RecordId, RecordVersion,
    RenewRequest, ResolveRequest, SettleRequest, StateName, Stats, Store, StoreAdmin, StoreError,
    StoreErrorKind,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

pub use authority_record::Side;
pub use error::{DualProblem, OpenError, SwitchoverError};
pub use settings::Settings;
pub use switchover::Switchover;

use crate::copy::{Copied, Verified, belongs_to_a_move, copy, verify};
use authority_lease::{Authority, AuthorityLease};
use authority_record::{AuthorityRecord, Phase, ReservedRecord};
use error::{maybe_applied, not_applied};
use lag::{Lag, Lagging};
use replicas::{Observed, Replicas};

/// Two stores as one. See the [module](self) for its guarantees.
#[derive(Clone)]
pub struct DualStore {
    inner: Arc<Inner>,
}

struct Inner {
    replicas: Replicas,
    /// Claimed to measure the clocks of the stores.
    clock: ReservedRecord,
    lease: AuthorityLease,
    lag: Lag,
    settings: Settings,
    /// Until then the follower, which failed, is not called.
    backoff_until: Mutex<Option<Instant>>,
    /// Lets one operator at a time catch up. Held while that waits for the stores.
    catching_up: tokio::sync::Mutex<()>,
}

/// The state of a move, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The store that decides.
    pub authority: Side,
    /// True during a switchover.
    pub closing: bool,
    /// True once the follower was given all records.
    pub copied: bool,
    /// Records of this process that the follower lacks; `usize::MAX` if there are too many to
    /// remember.
    pub lagging_here: usize,
    /// Other processes whose records the follower lacks, or did when they died.
    pub lagging_elsewhere: usize,
}

/// The result of a copy within a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// The records that were copied.
    pub copied: Copied,
    /// The comparison afterwards.
    pub verified: Verified,
}

impl CopyReport {
    /// True if the follower has all records: only then a switchover is possible.
    pub fn is_clean(&self) -> bool {
        self.copied.is_whole() && self.verified.is_clean()
    }
}

/// The result of catching up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaughtUp {
    /// Records that the follower has now.
    pub records: u64,
    /// Records that lag now: new ones, and those that the follower did not take.
    pub left: usize,
}

impl DualStore {
    /// Opens the move of this name between two stores. All of its processes give the same name
    /// and the same two stores; **another move needs another name**.
    ///
    /// The first opening needs both stores, and makes the old one the authority. Later ones need
    /// the authority.
    pub async fn open(
        name: &str,
        old: Arc<dyn FullStore>,
        new: Arc<dyn FullStore>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let settings = settings.sane();
        let replicas = Replicas { old, new, reserved: ReservedRecord::new(name, "charter")? };
        let record = find_or_create_record(&replicas, &settings).await?;
        let inner = Inner {
            replicas,
            clock: ReservedRecord::new(name, "clock")?,
            lease: AuthorityLease::expired(record),
            lag: Lag::default(),
            settings,
            backoff_until: Mutex::default(),
            catching_up: tokio::sync::Mutex::default(),
        };
        inner.lease.refresh(&inner.replicas).await.map_err(OpenError::Unavailable)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the state of the move.
    pub async fn status(&self) -> Result<Status, StoreError> {
        self.inner.lease.refresh(&self.inner.replicas).await?;
        let record = self.inner.lease.record();
        let others = record.lag_markers.iter().filter(|marker| !self.inner.lag.owns(marker));
        Ok(Status {
            authority: record.authority,
            closing: record.phase == Phase::Closing,
            copied: record.copied,
            lagging_here: self.inner.lag.count(),
            lagging_elsewhere: others.count(),
        })
    }

    /// Copies all records to the follower, compares the two stores, and if they are the same
    /// writes so into the authority record. Calls go on meanwhile. Needed once before the first
    /// [`switch_over`](Self::switch_over), after **every** process has opened the move: calls that
    /// a process makes to the old store directly are not replicated.
    pub async fn copy(
        &self,
        progress: impl FnMut(&Copied) + Send,
    ) -> Result<CopyReport, StoreError> {
        let inner = &self.inner;
        let authority = inner.begin().await?;
        let (from, to) = inner.sides(authority);
        let copied = copy(&from, &to, progress).await?;
        let verified = verify(&from, &to, |_| {}).await?;
        let report = CopyReport { copied, verified };
        if report.is_clean() {
            // The follower may have lost it with its other records.
            let _kept = inner.replicas.write(authority.side.other(), &inner.lease.record()).await?;
            inner.amend(authority, |it| AuthorityRecord { copied: true, ..it.clone() }).await?;
        }
        Ok(report)
    }

    /// Replicates the lagging records of this process. Records that the follower does not take
    /// stay lagging. Continues if the caller goes away.
    pub async fn catch_up(&self) -> Result<CaughtUp, StoreError> {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.catch_up().await }).await.map_err(task_failed)?
    }

    /// Removes the lag markers of other processes: an operator states that **those processes have
    /// ended**, and with them the knowledge of which records lag. A switchover then needs a new
    /// [copy](Self::copy).
    pub async fn forget_others(&self) -> Result<(), StoreError> {
        let inner = &self.inner;
        let authority = inner.begin().await?;
        inner.set_not_copied().await?;
        inner.remove_markers(authority, |marker| !inner.lag.owns(marker)).await
    }

    /// Makes the follower the authority, for all processes. Called again, switches back. Calls
    /// wait meanwhile, for about the [lease](Settings::lease). Continues if the caller goes away.
    pub async fn switch_over(&self) -> Result<Switchover, SwitchoverError> {
        let inner = Arc::clone(&self.inner);
        let switching = tokio::spawn(async move { switchover::switch_over(&inner).await });
        switching.await.map_err(|error| task_failed(error).into()).and_then(|switched| switched)
    }

    /// One call: the authority decides, the record is replicated, and the answer counts if that
    /// store is still the authority. Runs in a task of its own, so that the record is replicated
    /// even if the caller goes away.
    async fn call<A, F>(
        &self,
        id: RecordId,
        work: impl FnOnce(Arc<dyn FullStore>) -> F + Send + 'static,
    ) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, StoreError>> + Send,
    {
        let inner = Arc::clone(&self.inner);
        let calling = async move {
            let authority = inner.begin().await.map_err(not_applied)?;
            let answer = work(inner.sides(authority).0).await?;
            inner.replicate_and_confirm(authority, id).await.map_err(maybe_applied)?;
            Ok(answer)
        };
        tokio::spawn(calling).await.map_err(task_failed)?
    }
}

impl Inner {
    async fn begin(&self) -> Result<Authority, StoreError> {
        self.lease.begin(&self.replicas, self.settings.switchover_timeout).await
    }

    /// The authority, and the follower.
    fn sides(&self, authority: Authority) -> (Arc<dyn FullStore>, Arc<dyn FullStore>) {
        let store = |side| Arc::clone(self.replicas.store(side));
        (store(authority.side), store(authority.side.other()))
    }

    /// Replicates a record that the authority has just decided about, and confirms that the
    /// decision counts.
    ///
    /// The authority is confirmed twice. A decision by a store that was no authority any more must
    /// not reach the follower, which may be the authority by now. And a decision that was not
    /// replicated before the switchover must not be answered.
    async fn replicate_and_confirm(
        &self,
        authority: Authority,
        id: RecordId,
    ) -> Result<(), StoreError> {
        self.lease.confirm_serving(&self.replicas, authority).await?;
        if !self.replicate(authority, id).await? {
            self.mark_lagging(authority, id).await?;
        }
        self.lease.confirm_term(&self.replicas, authority).await
    }

    /// Imports a record of the authority into the follower. Returns whether the follower has it.
    async fn replicate(&self, authority: Authority, id: RecordId) -> Result<bool, StoreError> {
        let (from, to) = self.sides(authority);
        let Some(record) = from.get(&id).await? else { return Ok(true) };
        if self.is_backing_off() {
            return Ok(false);
        }
        let taken = timeout(self.settings.follower_timeout, to.import(&record)).await;
        let (error, only_this_record) = match taken {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) => (error.to_string(), error.kind == StoreErrorKind::Undecodable),
            Err(_) => ("no answer in time".to_owned(), false),
        };
        tracing::warn!(error, lagging = self.lag.count() + 1, "the follower lags");
        if !only_this_record {
            *self.backoff_until.lock() = Some(Instant::now() + self.settings.follower_backoff);
        }
        Ok(false)
    }

    fn is_backing_off(&self) -> bool {
        self.backoff_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Remembers that a record lags, and tells other processes by a lag marker.
    async fn mark_lagging(&self, authority: Authority, id: RecordId) -> Result<(), StoreError> {
        let Some(marker) = self.lag.add(id) else { return Ok(()) };
        self.amend(authority, |record| {
            let mut next = record.clone();
            next.lag_markers.insert(marker);
            next
        })
        .await?;
        self.lag.marker_written(marker);
        Ok(())
    }

    async fn remove_markers(
        &self,
        authority: Authority,
        obsolete: impl Fn(&uuid::Uuid) -> bool + Send + Sync,
    ) -> Result<(), StoreError> {
        self.amend(authority, |record| {
            let mut next = record.clone();
            next.lag_markers.retain(|marker| !obsolete(marker));
            next
        })
        .await
    }

    async fn set_not_copied(&self) -> Result<(), StoreError> {
        let AuthorityRecord { authority: side, term, .. } = self.lease.record();
        let authority = Authority { side, term };
        self.amend(authority, |it| AuthorityRecord { copied: false, ..it.clone() }).await
    }

    /// Changes the authority record within a term.
    async fn amend(
        &self,
        Authority { side, term }: Authority,
        change: impl Fn(&AuthorityRecord) -> AuthorityRecord + Send + Sync,
    ) -> Result<(), StoreError> {
        let amended = self.replicas.amend(side, term, |record| Some(change(record)));
        if let Ok(observed) = amended.await? {
            self.lease.learn(observed);
        }
        Ok(())
    }

    async fn catch_up(&self) -> Result<CaughtUp, StoreError> {
        let _one_at_a_time = self.catching_up.lock().await;
        let authority = self.begin().await?;
        *self.backoff_until.lock() = None;
        let records = self.replicate_lagging(authority).await?;
        let obsolete = self.lag.obsolete_markers();
        if !obsolete.is_empty() {
            self.remove_markers(authority, |marker| obsolete.contains(marker)).await?;
            self.lag.markers_removed(&obsolete);
        }
        Ok(CaughtUp { records, left: self.lag.count() })
    }

    /// Replicates the lagging records. Those that fail stay lagging.
    async fn replicate_lagging(&self, authority: Authority) -> Result<u64, StoreError> {
        let mut ids = match self.lag.take() {
            Lagging::Records(ids) => ids,
            Lagging::All => return self.copy_all(authority).await,
        };
        let (mut records, mut failed) = (0, BTreeSet::new());
        while let Some(id) = ids.pop_first() {
            match self.replicate(authority, id).await {
                Ok(true) => records += 1,
                Ok(false) => drop(failed.insert(id)),
                Err(error) => {
                    failed.insert(id);
                    self.lag.put_back(Lagging::Records(ids));
                    self.lag.put_back(Lagging::Records(failed));
                    return Err(error);
                }
            }
        }
        self.lag.put_back(Lagging::Records(failed));
        Ok(records)
    }

    async fn copy_all(&self, authority: Authority) -> Result<u64, StoreError> {
        let (from, to) = self.sides(authority);
        match copy(&from, &to, |_| {}).await {
            Ok(copied) if copied.is_whole() => Ok(copied.written + copied.kept),
            Ok(_) => {
                self.lag.put_back(Lagging::All);
                Ok(0)
            }
            Err(error) => {
                self.lag.put_back(Lagging::All);
                Err(error)
            }
        }
    }
}

/// Returns the authority record of the stores, or creates it for a new move.
async fn find_or_create_record(
    replicas: &Replicas,
    settings: &Settings,
) -> Result<AuthorityRecord, OpenError> {
    match (replicas.read(Side::Old).await, replicas.read(Side::New).await) {
        (Ok(None), Ok(None)) => create_record(replicas, settings).await,
        (Ok(Some(old)), Ok(Some(new))) => Ok(later(old, new)),
        // The new store has just joined the move, or has lost its records: it needs a copy.
        (Ok(Some(Observed { record, .. })), Ok(None)) if record.authority == Side::Old => {
            let AuthorityRecord { term, authority, .. } = record;
            let amended = replicas
                .amend(authority, term, |it| Some(AuthorityRecord { copied: false, ..it.clone() }))
                .await
                .map_err(OpenError::Unavailable)?;
            let record = amended.map_or_else(|it| it, |observed| observed.record);
            let _kept = replicas.write(Side::New, &record).await.map_err(OpenError::Unavailable)?;
            Ok(record)
        }
        (Ok(Some(Observed { record, .. })), Err(_)) if record.authority == Side::Old => Ok(record),
        // The old store may be gone for good by now.
        (_, Ok(Some(Observed { record, .. }))) if record.authority == Side::New => Ok(record),
        (Ok(None), Ok(Some(_))) | (Ok(Some(_)), Ok(None)) => Err(OpenError::Lost),
        (Err(error), _) | (_, Err(error)) => Err(OpenError::Unavailable(error)),
    }
}

/// Creates the authority record of a new move. If another process does so at the same time, its
/// record counts.
async fn create_record(
    replicas: &Replicas,
    settings: &Settings,
) -> Result<AuthorityRecord, OpenError> {
    let first = AuthorityRecord::first(settings.lease);
    let _kept = replicas.write(Side::Old, &first).await.map_err(OpenError::Unavailable)?;
    let observed = replicas.read(Side::Old).await.map_err(OpenError::Unavailable)?;
    let Observed { record, .. } = observed.ok_or(OpenError::Lost)?;
    let _kept = replicas.write(Side::New, &record).await.map_err(OpenError::Unavailable)?;
    Ok(record)
}

fn later(one: Observed, other: Observed) -> AuthorityRecord {
    let (one, other) = (one.record, other.record);
    if one.revision >= other.revision { one } else { other }
}

/// The error of a task that was ended: by a panic of a store, or with the runtime.
fn task_failed(error: tokio::task::JoinError) -> StoreError {
    let kind = StoreErrorKind::Unavailable;
    StoreError::new("dual", kind, Effect::MayHaveBeenApplied).caused_by(error)
}

#[async_trait]
impl Store for DualStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.call(request.id, move |store| async move { store.claim(&request).await }).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let request = *request;
        self.call(request.id, move |store| async move { store.renew(&request).await }).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let request = request.clone();
        self.call(request.id, move |store| async move { store.settle(&request).await }).await
    }

    async fn changed(&self, id: &RecordId) {
        let side = self.inner.lease.record().authority;
        self.inner.replicas.store(side).changed(id).await;
    }
}

#[async_trait]
impl StoreAdmin for DualStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        self.inner.replicas.store(side).get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        let mut page = self.inner.replicas.store(side).list(query).await?;
        page.records.retain(|record| !belongs_to_a_move(&record.scope));
        Ok(page)
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let request = request.clone();
        self.call(request.id, move |store| async move { store.resolve(&request).await }).await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        let request = *request;
        self.call(request.id, move |store| async move { store.invalidate(&request).await }).await
    }

    /// Purges both stores. Only what the authority removed is counted.
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        let inner = &self.inner;
        let side = inner.lease.for_reading(&inner.replicas).await?;
        let purged = inner.replicas.store(side).purge(limit).await?;
        if !inner.is_backing_off() {
            let follower = inner.replicas.store(side.other()).purge(limit);
            // If this fails, the next purge does it.
            let _done = timeout(inner.settings.follower_timeout, follower).await;
        }
        Ok(purged)
    }

    /// True if both stores can be archived: either may decide.
    fn archives(&self) -> bool {
        self.inner.replicas.old.archives() && self.inner.replicas.new.archives()
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        self.inner.replicas.store(side).due(limit).await
    }

    /// Purges them in both stores. Only what the authority removed is counted.
    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        let inner = &self.inner;
        let side = inner.lease.for_reading(&inner.replicas).await?;
        let purged = inner.replicas.store(side).purge_versions(versions).await?;
        if !inner.is_backing_off() {
            let follower = inner.replicas.store(side.other()).purge_versions(versions);
            // If this fails, the follower has them longer. As the authority, it archives them again.
            let _done = timeout(inner.settings.follower_timeout, follower).await;
        }
        Ok(purged)
    }

    /// The authority's numbers, without the authority record.
    async fn stats(&self) -> Result<Stats, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        let mut stats = self.inner.replicas.store(side).stats().await?;
        let completed = &mut stats.by_state[StateName::Completed as usize];
        *completed = completed.saturating_sub(1);
        stats.records = stats.records.saturating_sub(1);
        Ok(stats)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let record = record.clone();
        self.call(record.id, move |store| async move { store.import(&record).await }).await
    }

    /// The authority's health.
    async fn health(&self) -> Result<Health, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        self.inner.replicas.store(side).health().await
    }

    /// Accepts the loss in both stores, as a follower that refuses records lags.
    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        let side = self.inner.lease.for_reading(&self.inner.replicas).await?;
        let authority = self.inner.replicas.store(side).accept_loss().await?;
        let follower = self.inner.replicas.store(side.other()).accept_loss().await?;
        Ok(match (authority, follower) {
            (LossAccepted::NothingWasLost, LossAccepted::NothingWasLost) => {
                LossAccepted::NothingWasLost
            }
            _ => LossAccepted::Reopened,
        })
    }

    fn has_cache(&self) -> bool {
        self.inner.replicas.old.has_cache() || self.inner.replicas.new.has_cache()
    }

    /// Of both stores, whichever decides.
    async fn invalidate_cache(&self, copies: &CachedCopies) -> Result<(), StoreError> {
        self.inner.replicas.old.invalidate_cache(copies).await?;
        self.inner.replicas.new.invalidate_cache(copies).await
    }
}

impl fmt::Debug for DualStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DualStore")
            .field("move", &self.inner.replicas.reserved.key)
            .field("authority_record", &self.inner.lease.record())
            .field("lagging", &self.inner.lag.count())
            .finish_non_exhaustive()
    }
}
