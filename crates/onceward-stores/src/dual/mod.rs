//! Two stores as one, to move from the first to the second while everything goes on.
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
//! let copied = store.copy(|copied| println!("{} records", copied.written)).await?;
//! assert!(copied.is_clean());
//! store.flip().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - One of the two stores, the **authority**, decides every call. What was answered is in the
//!   other one, the **follower**, before the answer, or noted as behind.
//! - A follower that fails fails no call. While anything is behind, in whatever process, the
//!   authority does not change.
//! - However many processes there are, and however late one of them is: **no two of them ever
//!   have grants by different authorities counted.** A call whose authority ended while it was
//!   under way is answered as an error that says *may have been applied*; sent again with the
//!   same token, as engines do, it means the same at the new one.
//! - After a change, holders renew and settle what they were granted before it.
//!
//! # How
//!
//! Both stores keep a *charter*, which says who decides. A call begins and counts only under a
//! charter that its process has read a short lease ago, from the authority itself. A change of
//! the authority is announced in it and waits for that lease, so that whoever still relies on the
//! old one is done, or has to ask again and learns. The change is one compare-and-set in the old
//! authority. `docs/stores.md` has the procedure and what it needs: clocks of the stores that
//! agree to within seconds, and no process that uses the old store without this one.

mod behind;
mod charter;
mod clocks;
mod error;
mod flip;
mod reigns;
mod seats;
mod settings;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Effect, Fenced, FullStore, Health, Imported, Lease, LossAccepted, Page,
    Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, StateName, Stats,
    Store, StoreAdmin, StoreError, StoreErrorKind,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

pub use charter::Side;
pub use error::{DualProblem, FlipError, OpenError};
pub use flip::Flipped;
pub use settings::Settings;

use crate::copy::{Copied, Verified, copy, is_about_moving, verify};
use behind::{Behind, Lacks};
use charter::{Charter, Phase, Place};
use error::{perhaps, surely_not};
use reigns::{Authority, Reigns};
use seats::{Heard, Seats};

/// Two stores as one. See the [module](self) for what it promises.
#[derive(Clone)]
pub struct DualStore {
    inner: Arc<Inner>,
}

struct Inner {
    seats: Seats,
    /// The record by which clocks are compared.
    clock: Place,
    reigns: Reigns,
    behind: Behind,
    settings: Settings,
    /// Until then a follower that failed is left alone.
    resting: Mutex<Option<Instant>>,
    /// One pass at a time. Held while it waits for the stores, by operators' calls only.
    catching_up: tokio::sync::Mutex<()>,
}

/// How a move stands, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Which store decides.
    pub authority: Side,
    /// Whether it is about to change.
    pub closing: bool,
    /// Whether the follower was given everything once.
    pub copied: bool,
    /// Records that are behind in this process; the largest number if it lost count.
    pub behind_here: usize,
    /// Notes of other processes whose records are behind, or were when they died.
    pub behind_elsewhere: usize,
}

/// What a copy within a move came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedAll {
    /// What was copied.
    pub copied: Copied,
    /// What a comparison found afterwards.
    pub verified: Verified,
}

impl CopiedAll {
    /// Whether the follower has everything: only then the authority can change.
    pub fn is_clean(&self) -> bool {
        self.copied.is_whole() && self.verified.is_clean()
    }
}

/// What a pass over what is behind came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaughtUp {
    /// Records that were looked at.
    pub records: u64,
    /// Records that are behind now: new ones, or those that the follower did not take.
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
        let seats = Seats { old, new, place: Place::new(name, "charter")? };
        let charter = opened(&seats, &settings).await?;
        let inner = Inner {
            seats,
            clock: Place::new(name, "clock")?,
            reigns: Reigns::unsure(charter),
            behind: Behind::default(),
            settings,
            resting: Mutex::default(),
            catching_up: tokio::sync::Mutex::default(),
        };
        inner.reigns.look(&inner.seats).await.map_err(OpenError::Unavailable)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How the move stands.
    pub async fn status(&self) -> Result<Status, StoreError> {
        self.inner.reigns.look(&self.inner.seats).await?;
        let charter = self.inner.reigns.charter();
        let others = charter.troubled.iter().filter(|note| !self.inner.behind.has(note));
        Ok(Status {
            authority: charter.authority,
            closing: charter.phase == Phase::Closing,
            copied: charter.copied,
            behind_here: self.inner.behind.count(),
            behind_elsewhere: others.count(),
        })
    }

    /// Gives the follower everything, compares the two, and if they are the same says so in the
    /// charter. Calls go on meanwhile. Needed once before the first [`flip`](Self::flip), when
    /// **every** process has opened the move: what others do at the old store alone is not
    /// followed.
    pub async fn copy(
        &self,
        progress: impl FnMut(&Copied) + Send,
    ) -> Result<CopiedAll, StoreError> {
        let inner = &self.inner;
        let authority = inner.reigns.begin(&inner.seats, inner.settings.patience).await?;
        let (from, to) = inner.sides(authority);
        let copied = copy(&from, &to, progress).await?;
        let verified = verify(&from, &to, |_| {}).await?;
        let all = CopiedAll { copied, verified };
        if all.is_clean() {
            // In case the follower lost it with everything else.
            let _kept = inner.seats.write(authority.side.other(), &inner.reigns.charter()).await?;
            inner.amend(authority, |it| Charter { copied: true, ..it.clone() }).await?;
        }
        Ok(all)
    }

    /// Brings the follower what is behind in this process. What it does not take stays behind.
    /// Goes on when the caller does not.
    pub async fn catch_up(&self) -> Result<CaughtUp, StoreError> {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.catch_up().await }).await.map_err(unjoined)?
    }

    /// Strikes the notes of other processes: an operator says that **those have ended**, and
    /// with them what they knew to be behind. Everything has to be [copied](Self::copy) again
    /// before the authority can change.
    pub async fn forget_others(&self) -> Result<(), StoreError> {
        let inner = &self.inner;
        let authority = inner.reigns.begin(&inner.seats, inner.settings.patience).await?;
        inner.not_copied().await?;
        inner.strike(authority, |note| !inner.behind.has(note)).await
    }

    /// Makes the follower the authority, for all processes, and the other way round when called
    /// again. Calls wait meanwhile, for about the [lease](Settings::lease). Goes on when the
    /// caller does not.
    pub async fn flip(&self) -> Result<Flipped, FlipError> {
        let inner = Arc::clone(&self.inner);
        let flipping = tokio::spawn(async move { flip::flip(&inner).await });
        flipping.await.map_err(|error| unjoined(error).into()).and_then(|flipped| flipped)
    }

    /// One call: decided by the authority, followed, and counted if that is still the authority.
    /// In a task of its own, so that a caller who goes away does not leave the follower behind.
    async fn step<A, F>(
        &self,
        id: RecordId,
        work: impl FnOnce(Arc<dyn FullStore>) -> F + Send + 'static,
    ) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, StoreError>> + Send,
    {
        let inner = Arc::clone(&self.inner);
        let stepping = async move {
            let beginning = inner.reigns.begin(&inner.seats, inner.settings.patience);
            let authority = beginning.await.map_err(surely_not)?;
            let answer = work(inner.sides(authority).0).await?;
            inner.follow(authority, id).await.map_err(perhaps)?;
            Ok(answer)
        };
        tokio::spawn(stepping).await.map_err(unjoined)?
    }
}

impl Inner {
    /// The authority, and the follower.
    fn sides(&self, authority: Authority) -> (Arc<dyn FullStore>, Arc<dyn FullStore>) {
        let store = |side| Arc::clone(self.seats.store(side));
        (store(authority.side), store(authority.side.other()))
    }

    /// Brings the follower to what the authority has decided, and sees to it that this counts.
    ///
    /// Looked at twice: what was decided by what was no authority any more must not come into
    /// the follower, which may be the authority by now; and what was not followed before the
    /// change must not be told.
    async fn follow(&self, authority: Authority, id: RecordId) -> Result<(), StoreError> {
        self.reigns.still_serving(&self.seats, authority).await?;
        if !self.brought(authority, id).await? {
            self.note(authority, id).await?;
        }
        self.reigns.still_reigning(&self.seats, authority).await
    }

    /// Whether the follower has taken the record as the authority has it.
    async fn brought(&self, authority: Authority, id: RecordId) -> Result<bool, StoreError> {
        let (from, to) = self.sides(authority);
        let Some(record) = from.get(&id).await? else { return Ok(true) };
        if self.rests() {
            return Ok(false);
        }
        let taken = timeout(self.settings.follower_timeout, to.import(&record)).await;
        let (error, alone) = match taken {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) => (error.to_string(), error.kind == StoreErrorKind::Undecodable),
            Err(_) => ("no answer in time".to_owned(), false),
        };
        tracing::warn!(error, behind = self.behind.count() + 1, "the follower fell behind");
        if !alone {
            *self.resting.lock() = Some(Instant::now() + self.settings.follower_rest);
        }
        Ok(false)
    }

    fn rests(&self) -> bool {
        self.resting.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Remembers that a record is behind, in a way that other processes know of.
    async fn note(&self, authority: Authority, id: RecordId) -> Result<(), StoreError> {
        let Some(note) = self.behind.add(id) else { return Ok(()) };
        self.amend(authority, |charter| {
            let mut next = charter.clone();
            next.troubled.insert(note);
            next
        })
        .await?;
        self.behind.entered(note);
        Ok(())
    }

    async fn strike(
        &self,
        authority: Authority,
        over: impl Fn(&uuid::Uuid) -> bool + Send + Sync,
    ) -> Result<(), StoreError> {
        self.amend(authority, |charter| {
            let mut next = charter.clone();
            next.troubled.retain(|note| !over(note));
            next
        })
        .await
    }

    async fn not_copied(&self) -> Result<(), StoreError> {
        let Charter { authority: side, reign, .. } = self.reigns.charter();
        let authority = Authority { side, reign };
        self.amend(authority, |it| Charter { copied: false, ..it.clone() }).await
    }

    /// Changes the charter under a reign.
    async fn amend(
        &self,
        Authority { side, reign }: Authority,
        change: impl Fn(&Charter) -> Charter + Send + Sync,
    ) -> Result<(), StoreError> {
        let amended = self.seats.amend(side, reign, |charter| Some(change(charter)));
        if let Ok(heard) = amended.await? {
            self.reigns.learn(heard);
        }
        Ok(())
    }

    async fn catch_up(&self) -> Result<CaughtUp, StoreError> {
        let _one_at_a_time = self.catching_up.lock().await;
        let authority = self.reigns.begin(&self.seats, self.settings.patience).await?;
        *self.resting.lock() = None;
        let records = self.bring_all(authority).await?;
        let over = self.behind.over();
        if !over.is_empty() {
            self.strike(authority, |note| over.contains(note)).await?;
            self.behind.struck(&over);
        }
        Ok(CaughtUp { records, left: self.behind.count() })
    }

    /// Brings everything that is behind; what fails is behind again.
    async fn bring_all(&self, authority: Authority) -> Result<u64, StoreError> {
        let mut ids = match self.behind.take() {
            Lacks::These(ids) => ids,
            Lacks::All => return self.copy_all(authority).await,
        };
        let (mut records, mut failed) = (0, BTreeSet::new());
        while let Some(id) = ids.pop_first() {
            match self.brought(authority, id).await {
                Ok(true) => records += 1,
                Ok(false) => drop(failed.insert(id)),
                Err(error) => {
                    failed.insert(id);
                    self.behind.put_back(Lacks::These(ids));
                    self.behind.put_back(Lacks::These(failed));
                    return Err(error);
                }
            }
        }
        self.behind.put_back(Lacks::These(failed));
        Ok(records)
    }

    async fn copy_all(&self, authority: Authority) -> Result<u64, StoreError> {
        let (from, to) = self.sides(authority);
        match copy(&from, &to, |_| {}).await {
            Ok(copied) if copied.is_whole() => Ok(copied.written + copied.kept),
            Ok(_) => {
                self.behind.put_back(Lacks::All);
                Ok(0)
            }
            Err(error) => {
                self.behind.put_back(Lacks::All);
                Err(error)
            }
        }
    }
}

/// The charter to begin with: as it is found, or made where the move is new.
async fn opened(seats: &Seats, settings: &Settings) -> Result<Charter, OpenError> {
    match (seats.read(Side::Old).await, seats.read(Side::New).await) {
        (Ok(None), Ok(None)) => founded(seats, settings).await,
        (Ok(Some(old)), Ok(Some(new))) => Ok(later(old, new)),
        // The new one is new to the move, or has lost everything: it has to be copied to.
        (Ok(Some(Heard { charter, .. })), Ok(None)) if charter.authority == Side::Old => {
            let Charter { reign, authority, .. } = charter;
            let amended = seats
                .amend(authority, reign, |it| Some(Charter { copied: false, ..it.clone() }))
                .await
                .map_err(OpenError::Unavailable)?;
            let charter = amended.map_or_else(|it| it, |heard| heard.charter);
            let _kept = seats.write(Side::New, &charter).await.map_err(OpenError::Unavailable)?;
            Ok(charter)
        }
        (Ok(Some(Heard { charter, .. })), Err(_)) if charter.authority == Side::Old => Ok(charter),
        // The old one may be gone for good by now.
        (_, Ok(Some(Heard { charter, .. }))) if charter.authority == Side::New => Ok(charter),
        (Ok(None), Ok(Some(_))) | (Ok(Some(_)), Ok(None)) => Err(OpenError::Lost),
        (Err(error), _) | (_, Err(error)) => Err(OpenError::Unavailable(error)),
    }
}

/// Begins a move, unless somebody else does so right now.
async fn founded(seats: &Seats, settings: &Settings) -> Result<Charter, OpenError> {
    let first = Charter::first(settings.lease);
    let _kept = seats.write(Side::Old, &first).await.map_err(OpenError::Unavailable)?;
    let heard = seats.read(Side::Old).await.map_err(OpenError::Unavailable)?;
    let Heard { charter, .. } = heard.ok_or(OpenError::Lost)?;
    let _kept = seats.write(Side::New, &charter).await.map_err(OpenError::Unavailable)?;
    Ok(charter)
}

fn later(one: Heard, other: Heard) -> Charter {
    let (one, other) = (one.charter, other.charter);
    if one.term >= other.term { one } else { other }
}

/// A task of ours was ended: by a panic of a store, or with the runtime.
fn unjoined(error: tokio::task::JoinError) -> StoreError {
    let kind = StoreErrorKind::Unavailable;
    StoreError::new("dual", kind, Effect::MayHaveBeenApplied).caused_by(error)
}

#[async_trait]
impl Store for DualStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.step(request.id, move |store| async move { store.claim(&request).await }).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let request = *request;
        self.step(request.id, move |store| async move { store.renew(&request).await }).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let request = request.clone();
        self.step(request.id, move |store| async move { store.settle(&request).await }).await
    }

    async fn changed(&self, id: &RecordId) {
        let side = self.inner.reigns.charter().authority;
        self.inner.seats.store(side).changed(id).await;
    }
}

#[async_trait]
impl StoreAdmin for DualStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let side = self.inner.reigns.reading(&self.inner.seats).await?;
        self.inner.seats.store(side).get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let side = self.inner.reigns.reading(&self.inner.seats).await?;
        let mut page = self.inner.seats.store(side).list(query).await?;
        page.records.retain(|record| !is_about_moving(&record.scope));
        Ok(page)
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let request = request.clone();
        self.step(request.id, move |store| async move { store.resolve(&request).await }).await
    }

    /// Of both; counted is what the authority removed.
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        let inner = &self.inner;
        let side = inner.reigns.reading(&inner.seats).await?;
        let purged = inner.seats.store(side).purge(limit).await?;
        if !inner.rests() {
            let follower = inner.seats.store(side.other()).purge(limit);
            // Next time, if not now.
            let _done = timeout(inner.settings.follower_timeout, follower).await;
        }
        Ok(purged)
    }

    /// The authority's, without the charter.
    async fn stats(&self) -> Result<Stats, StoreError> {
        let side = self.inner.reigns.reading(&self.inner.seats).await?;
        let mut stats = self.inner.seats.store(side).stats().await?;
        let completed = &mut stats.by_state[StateName::Completed as usize];
        *completed = completed.saturating_sub(1);
        stats.records = stats.records.saturating_sub(1);
        Ok(stats)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let record = record.clone();
        self.step(record.id, move |store| async move { store.import(&record).await }).await
    }

    /// The authority's, which decides.
    async fn health(&self) -> Result<Health, StoreError> {
        let side = self.inner.reigns.reading(&self.inner.seats).await?;
        self.inner.seats.store(side).health().await
    }

    /// In both stores: a follower that refuses records falls behind.
    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        let side = self.inner.reigns.reading(&self.inner.seats).await?;
        let authority = self.inner.seats.store(side).accept_loss().await?;
        let follower = self.inner.seats.store(side.other()).accept_loss().await?;
        Ok(match (authority, follower) {
            (LossAccepted::NothingWasLost, LossAccepted::NothingWasLost) => {
                LossAccepted::NothingWasLost
            }
            _ => LossAccepted::Reopened,
        })
    }
}

impl fmt::Debug for DualStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DualStore")
            .field("move", &self.inner.seats.place.name)
            .field("charter", &self.inner.reigns.charter())
            .field("behind", &self.inner.behind.count())
            .finish_non_exhaustive()
    }
}
