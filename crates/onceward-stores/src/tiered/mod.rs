//! PostgreSQL decides, and Redis answers what is decided already: replays, and *busy*.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use onceward_stores::postgres::{self, PostgresStore};
//! use onceward_stores::tiered::{self, Tiered};
//!
//! let url = "postgres://localhost/app";
//! let authority = PostgresStore::open(url, postgres::Settings::default()).await?;
//! let settings = tiered::Settings::default();
//! let store = Tiered::open(Arc::new(authority), "redis://localhost", settings).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! All that PostgreSQL alone does. Redis never says *go*: what it has is a copy of a record that
//! PostgreSQL wrote first, and only an answer that changes nothing is given from it, decided by
//! the same truth table. So if Redis is lost, flushed, slow, fails over to a replica that lacks
//! writes, or lies, that costs time and nothing else:
//!
//! - An entry is authenticated by a secret that only PostgreSQL has. One that was damaged, made by
//!   somebody else or moved to another key is absent.
//! - An entry is judged at PostgreSQL's time, asked for at least every [`Settings::trust`], and not
//!   at Redis's or this machine's.
//! - An entry belongs to a generation, a number in PostgreSQL. An operator's decision begins a new
//!   one, so no entry from before is believed by anybody who has heard of it: at once where Redis
//!   does what it is told, within [`Settings::trust`] where it does not.
//! - A claim that is sent again by its own holder is always PostgreSQL's to answer.
//!
//! What *busy* says may be a moment old ([`Settings::busy`]): the client comes again.

mod cache;
mod entry;
mod settings;
mod trust;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::machine::{self, Next};
use onceward_core::{
    Claim, ClaimRequest, Fence, Fenced, Health, Imported, Lease, LossAccepted, Outcome, Page,
    Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, Retained, SettleRequest,
    Settlement, Sketch, State, StateName, Stats, Store, StoreAdmin, StoreError, Timestamp, Verdict,
};
use tokio::sync::Semaphore;

pub use settings::Settings;

use crate::grants::{Grant, Grants};
use crate::postgres::{KeptUntil, PostgresStore};
use crate::redis::link::Address;
use cache::{Cache, Put};
use trust::{Last, Trust};

/// How many records are fetched at once for the cache. What comes in between is not cached yet.
const FETCHES_MAX: usize = 2;

/// PostgreSQL with Redis before it. See the [module](self) for what it promises.
pub struct Tiered {
    shared: Arc<Shared>,
    grants: Grants,
}

struct Shared {
    authority: Arc<PostgresStore>,
    cache: Cache,
    trust: Trust,
    fetches: Semaphore,
    settings: Settings,
}

impl Tiered {
    /// Puts the Redis server at a URL (`redis://…`, `rediss://…`) before a store. Whether Redis
    /// is there is not looked at: it need not be.
    pub async fn open(
        authority: Arc<PostgresStore>,
        url: &str,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        Self::at(authority, &Address::Server(url.to_owned()), settings).await
    }

    /// Puts a Redis Cluster, of which these nodes tell the others, before a store.
    pub async fn open_cluster<'a>(
        authority: Arc<PostgresStore>,
        urls: impl IntoIterator<Item = &'a str>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let urls = urls.into_iter().map(str::to_owned).collect();
        Self::at(authority, &Address::Cluster(urls), settings).await
    }

    async fn at(
        authority: Arc<PostgresStore>,
        address: &Address,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let cache = Cache::new(address, &settings).map_err(OpenError::Address)?;
        let trust = Trust::begin(&authority, settings.trust).await;
        let trust = trust.map_err(OpenError::Unavailable)?;
        let fetches = Semaphore::new(FETCHES_MAX);
        let shared = Shared { authority, cache, trust, fetches, settings };
        Ok(Self { shared: Arc::new(shared), grants: Grants::default() })
    }

    /// Has nobody believe any more what is in Redis now: for whoever changed records in
    /// PostgreSQL by hand. When it returns, no process answers from it.
    pub async fn invalidate(&self) -> Result<(), StoreError> {
        self.begin_generation().await?;
        tokio::time::sleep(self.shared.trust.lasts()).await;
        Ok(())
    }

    async fn begin_generation(&self) -> Result<(), StoreError> {
        self.shared.authority.next_generation().await?;
        self.shared.trust.doubt();
        Ok(())
    }

    /// Keeps what was settled, so that not even the first replay has to ask PostgreSQL.
    async fn keep_settled(&self, request: &SettleRequest, kept: KeptUntil, before: &Last) {
        let grant = self.grants.recall(request.id, request.holder.fence);
        let state = kept.and_then(|until| settled_state(request, until));
        match (state, grant) {
            (Some(state), Some(grant)) => {
                self.shared.keep(&copy(request, grant, state), before).await;
            }
            // *Busy* is over.
            _ => {
                self.shared.cache.forget(&request.id).await;
            }
        }
    }
}

impl Shared {
    /// What Redis has to say that PostgreSQL would say too.
    async fn cached(&self, request: &ClaimRequest) -> Option<Claim> {
        let entry = self.cache.get(&request.id).await?;
        let (generation, now) = self.trust.confirmed(&self.authority).await.ok()?;
        let record = entry::read(&request.id, &entry, &generation)?;
        // Whatever Redis makes of its time to live.
        if record.state.name() == StateName::Running && record.updated_at + self.settings.busy < now
        {
            return None;
        }
        let step = machine::claim(Some(&record), request, Fence(0), now);
        match (step.answer, step.next) {
            (
                claim @ (Claim::Completed { .. } | Claim::Failed { .. } | Claim::Running { .. }),
                Next::Same,
            ) => Some(claim),
            // Everything else changes something, or is PostgreSQL's to explain.
            _ => None,
        }
    }

    /// Fetches what PostgreSQL answered by, for those who ask next.
    fn fetch(self: &Arc<Self>, id: RecordId) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_one) = shared.fetches.try_acquire() else { return };
            let before = shared.trust.last();
            if let Ok(Some(record)) = shared.authority.get(&id).await {
                shared.keep(&record, &before).await;
            }
        });
    }

    async fn forget_busy(&self, id: &RecordId) {
        let Some(entry) = self.cache.get(id).await else { return };
        let generation = self.trust.last().generation;
        let record = entry::read(id, &entry, &generation);
        if record.is_some_and(|record| record.state.name() == StateName::Running) {
            self.cache.forget(id).await;
        }
    }

    /// Puts a record into Redis, if that is of use, under the generation from before it was
    /// looked at: a decision in between must not be outlived.
    async fn keep(&self, record: &Record, before: &Last) {
        let (put, until, most) = match &record.state {
            State::Running { lease_until } => (Put::Busy, *lease_until, self.settings.busy),
            State::Completed { outcome, retained } | State::Failed { outcome, retained }
                if outcome.bytes.len() <= self.settings.outcome_bytes_max =>
            {
                (Put::Final, retained.until, self.settings.keep)
            }
            _ => {
                self.cache.forget(&record.id).await;
                return;
            }
        };
        let keep = before.earliest.until(until).min(most);
        if keep > Duration::ZERO {
            // Since when it is there, for what does not last.
            let record = &Record { updated_at: before.earliest, ..record.clone() };
            let entry = entry::write(record, &before.generation);
            self.cache.put(&record.id, &entry, put, keep).await;
        }
    }
}

/// Where a settlement leaves the record, if that is worth keeping.
fn settled_state(request: &SettleRequest, until: Timestamp) -> Option<State> {
    let retained = Retained { until, tombstone_until: until };
    match &request.settlement {
        Settlement::Complete(outcome) => {
            Some(State::Completed { outcome: Outcome::clone(outcome), retained })
        }
        Settlement::Fail(outcome) => {
            Some(State::Failed { outcome: Outcome::clone(outcome), retained })
        }
        Settlement::Unknown | Settlement::Release => None,
    }
}

/// As much of a record as a replay needs.
fn copy(request: &SettleRequest, grant: Grant, state: State) -> Record {
    Record {
        id: request.id,
        operation: grant.operation,
        scope: entry::nobody(),
        key: None,
        fingerprint: grant.fingerprint,
        sketch: Sketch::default(),
        state,
        owner: request.holder.owner,
        fence: request.holder.fence,
        attempts: 1,
        taken_over: false,
        created_at: Timestamp::default(),
        updated_at: Timestamp::default(),
    }
}

impl fmt::Debug for Tiered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiered")
            .field("authority", &self.shared.authority)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Tiered {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if let Some(claim) = self.shared.cached(request).await {
            return Ok(claim);
        }
        let claim = self.shared.authority.claim(request).await?;
        match &claim {
            Claim::Granted { lease, operation, .. } => {
                let grant = Grant { operation: *operation, fingerprint: request.fingerprint };
                self.grants.remember(request.id, lease.fence, grant);
            }
            Claim::Completed { .. } | Claim::Failed { .. } | Claim::Running { .. } => {
                self.shared.fetch(request.id);
            }
            Claim::Mismatch { .. } | Claim::Unknown { .. } | Claim::Expired => {}
        }
        Ok(claim)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let renewed = self.shared.authority.renew(request).await?;
        if matches!(renewed, Fenced::Applied(_)) {
            // What it says of the lease is not so any more.
            self.shared.cache.forget(&request.id).await;
        }
        Ok(renewed)
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let before = self.shared.trust.last();
        let settled = self.shared.authority.settle_and_tell(request).await?;
        if let Fenced::Applied(kept) = settled {
            self.keep_settled(request, kept, &before).await;
        }
        self.grants.forget(request.id, request.holder.fence);
        Ok(settled.map(drop))
    }

    async fn changed(&self, id: &RecordId) {
        self.shared.authority.changed(id).await;
        // Redis may not know yet.
        self.shared.forget_busy(id).await;
    }
}

#[async_trait]
impl StoreAdmin for Tiered {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.shared.authority.get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.shared.authority.list(query).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        if request.verdict != Verdict::StillUnknown {
            // Before: what is looked at from now on is newer than the decision.
            self.begin_generation().await?;
        }
        let resolved = self.shared.authority.resolve(request).await?;
        self.shared.cache.forget(&request.id).await;
        Ok(resolved)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let imported = self.shared.authority.import(record).await?;
        if imported == Imported::Written && !self.shared.cache.forget(&record.id).await {
            self.begin_generation().await?;
        }
        Ok(imported)
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.shared.authority.purge(limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.authority.stats().await
    }

    /// PostgreSQL's: whatever becomes of the cache costs time only.
    async fn health(&self) -> Result<Health, StoreError> {
        self.shared.authority.health().await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.shared.authority.accept_loss().await
    }
}

/// Why a [`Tiered`] store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address of the cache is not one, or certificates cannot be read.
    #[error("the address or the certificates of the cache cannot be used: {0}")]
    Address(#[source] ::redis::RedisError),
    /// PostgreSQL does not answer.
    #[error("the store behind the cache cannot be used: {0}")]
    Unavailable(#[source] StoreError),
}
