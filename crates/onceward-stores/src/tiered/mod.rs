//! PostgreSQL decides, and Redis answers what is decided already: replays and *busy*.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use onceward_stores::postgres::{self, PostgresStore};
//! use onceward_stores::tiered::{self, TieredStore};
//!
//! let url = "postgres://localhost/app";
//! let authority = PostgresStore::open(url, postgres::Settings::default()).await?;
//! let settings = tiered::Settings::default();
//! let store = TieredStore::open(Arc::new(authority), "redis://localhost", settings).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! The same as PostgreSQL alone. Redis never grants a claim: it has copies of records that
//! PostgreSQL wrote first, and the core's truth table answers from them only what changes nothing.
//! If Redis is lost, flushed, slow, lies, or fails over to a replica that lacks writes, that costs
//! time and nothing else:
//!
//! - An entry is authenticated by a secret that only PostgreSQL has. An entry that was damaged,
//!   forged or moved to another key counts as absent.
//! - An entry is judged at PostgreSQL's time, which is read at least once in [`Settings::trust`],
//!   and not at the time of Redis or of this machine.
//! - An entry belongs to a generation, a number in PostgreSQL. An operator's decision begins a new
//!   generation, and a process ignores entries of earlier ones as soon as it knows. The entry
//!   itself is removed, so other processes see the decision at once, and within [`Settings::trust`]
//!   if Redis did not remove it. An entry has the generation from before its record was read, so a
//!   slow process cannot put a copy back that counts.
//! - A claim that its own holder sends again is always answered by PostgreSQL.
//!
//! *Busy* may be out of date by [`Settings::busy`]: the client retries.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the store: which of the two answers |
//! | `cache` | the Redis, which may fail |
//! | `cache_entry` | a record in Redis, authenticated |
//! | `generation_cache` | PostgreSQL's generation and time, as last read |
//! | `settings` | sizes and times |

mod cache;
mod cache_entry;
mod generation_cache;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use onceward_core::machine::{self, Next};
use onceward_core::{
    CachedCopies, Claim, ClaimRequest, Due, Fence, Fenced, Health, Imported, InvalidateRequest,
    Lease, LossAccepted, Outcome, Page, Purged, Query, Record, RecordId, RecordVersion,
    RenewRequest, ResolveRequest, Retained, SettleRequest, Settlement, Sketch, State, StateName,
    Stats, Store, StoreAdmin, StoreError, Timestamp, Verdict,
};
use tokio::sync::Semaphore;

pub use settings::Settings;

use crate::postgres::{PostgresStore, RetainedUntil};
use crate::recent_grants::{GrantedIntent, RecentGrants};
use crate::redis::connection::Address;
use cache::{Cache, Put};
use generation_cache::{GenerationCache, KnownGeneration};

/// Records fetched for the cache at once. Beyond that a record is not cached yet.
const FETCHES_MAX: usize = 2;

/// Copies removed at once, on one connection.
const FORGET_AT_ONCE: usize = 64;

/// PostgreSQL with Redis as a cache. See the [module](self) for its guarantees.
pub struct TieredStore {
    shared: Arc<Shared>,
    grants: RecentGrants,
}

struct Shared {
    authority: Arc<PostgresStore>,
    cache: Cache,
    generation: GenerationCache,
    fetches: Semaphore,
    settings: Settings,
}

impl TieredStore {
    /// Puts the Redis server at a URL (`redis://…`, `rediss://…`) in front of a store. Redis is not
    /// contacted: it need not be there.
    pub async fn open(
        authority: Arc<PostgresStore>,
        url: &str,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        Self::at(authority, &Address::Server(url.to_owned()), settings).await
    }

    /// Puts a Redis Cluster in front of a store. The given nodes name the others.
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
        let generation = GenerationCache::begin(&authority, settings.trust).await;
        let generation = generation.map_err(OpenError::Unavailable)?;
        let fetches = Semaphore::new(FETCHES_MAX);
        let shared = Shared { authority, cache, generation, fetches, settings };
        Ok(Self { shared: Arc::new(shared), grants: RecentGrants::default() })
    }

    async fn begin_generation(&self) -> Result<(), StoreError> {
        self.shared.authority.next_generation().await?;
        self.shared.generation.expire();
        Ok(())
    }

    /// Caches what was settled, so that even the first replay does not need PostgreSQL.
    async fn keep_settled(
        &self,
        request: &SettleRequest,
        kept: RetainedUntil,
        before: &KnownGeneration,
    ) {
        let grant = self.grants.recall(request.id, request.holder.fence);
        let state = kept.and_then(|until| settled_state(request, until));
        match (state, grant) {
            (Some(state), Some(grant)) => {
                self.shared.keep(&copy(request, grant, state), before).await;
            }
            // *Busy* is out of date now.
            _ => {
                self.shared.cache.forget(&request.id).await;
            }
        }
    }
}

impl Shared {
    /// The answer from Redis, if PostgreSQL would give the same.
    async fn cached(&self, request: &ClaimRequest) -> Option<Claim> {
        let entry = self.cache.get(&request.id).await?;
        let (generation, now) = self.generation.confirmed(&self.authority).await.ok()?;
        let record = cache_entry::read(&request.id, &entry, &generation)?;
        // Redis may keep the entry longer than its time to live.
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
            // All other answers change something, or need PostgreSQL.
            _ => None,
        }
    }

    /// Fetches the record from PostgreSQL in the background, for later claims.
    fn fetch(self: &Arc<Self>, id: RecordId) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_one) = shared.fetches.try_acquire() else { return };
            let before = shared.generation.last();
            if let Ok(Some(record)) = shared.authority.get(&id).await {
                shared.keep(&record, &before).await;
            }
        });
    }

    async fn forget_busy(&self, id: &RecordId) {
        let Some(entry) = self.cache.get(id).await else { return };
        let generation = self.generation.last().generation;
        let record = cache_entry::read(id, &entry, &generation);
        if record.is_some_and(|record| record.state.name() == StateName::Running) {
            self.cache.forget(id).await;
        }
    }

    /// Caches a record, if it is of use, under the generation from before the record was read: an
    /// entry must not outlive a decision made in between.
    async fn keep(&self, record: &Record, before: &KnownGeneration) {
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
            // The time of the entry, by which *busy* ends.
            let record = &Record { updated_at: before.earliest, ..record.clone() };
            let entry = cache_entry::write(record, &before.generation);
            self.cache.put(&record.id, &entry, put, keep).await;
        }
    }
}

/// The state after a settlement, if it can be cached.
fn settled_state(request: &SettleRequest, until: Timestamp) -> Option<State> {
    let retained = Retained { until, tombstone_until: until };
    match &request.settlement {
        Settlement::Complete(outcome) => {
            Some(State::Completed { outcome: Outcome::clone(outcome), retained })
        }
        Settlement::Fail(outcome) => {
            Some(State::Failed { outcome: Outcome::clone(outcome), retained })
        }
        Settlement::Unknown(_) | Settlement::Release => None,
    }
}

/// The parts of a record that a replay needs.
fn copy(request: &SettleRequest, grant: GrantedIntent, state: State) -> Record {
    Record {
        id: request.id,
        operation: grant.operation,
        scope: cache_entry::placeholder_scope(),
        key: None,
        fingerprint: grant.fingerprint,
        sketch: Sketch::default(),
        path: None,
        state,
        owner: request.holder.owner,
        fence: request.holder.fence,
        attempts: 1,
        taken_over: false,
        created_at: Timestamp::default(),
        updated_at: Timestamp::default(),
    }
}

impl fmt::Debug for TieredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredStore")
            .field("authority", &self.shared.authority)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for TieredStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if let Some(claim) = self.shared.cached(request).await {
            return Ok(claim);
        }
        let claim = self.shared.authority.claim(request).await?;
        match &claim {
            Claim::Granted { lease, operation, .. } => {
                let grant =
                    GrantedIntent { operation: *operation, fingerprint: request.fingerprint };
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
            // The cached lease is out of date now.
            self.shared.cache.forget(&request.id).await;
        }
        Ok(renewed)
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let before = self.shared.generation.last();
        let settled = self.shared.authority.settle_with_retention(request).await?;
        if let Fenced::Applied(kept) = settled {
            self.keep_settled(request, kept, &before).await;
        }
        self.grants.forget(request.id, request.holder.fence);
        Ok(settled.map(drop))
    }

    async fn changed(&self, id: &RecordId) {
        self.shared.authority.changed(id).await;
        // Redis may still say *busy*.
        self.shared.forget_busy(id).await;
    }
}

#[async_trait]
impl StoreAdmin for TieredStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.shared.authority.get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.shared.authority.list(query).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        if request.verdict != Verdict::StillUnknown {
            // Before the decision: what is read from now on is newer.
            self.begin_generation().await?;
        }
        let resolved = self.shared.authority.resolve(request).await?;
        self.shared.cache.forget(&request.id).await;
        Ok(resolved)
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        let invalidated = self.shared.authority.invalidate(request).await?;
        // After the change: what was read before it has an earlier generation, and cannot be
        // cached as current by another process any more.
        self.begin_generation().await?;
        self.shared.cache.forget(&request.id).await;
        Ok(invalidated)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let imported = self.shared.authority.import(record).await?;
        let forgotten = imported == Imported::Written && self.shared.cache.forget(&record.id).await;
        let invalidated = record.state.outcome().is_some_and(Outcome::is_invalidated);
        if imported == Imported::Written && (!forgotten || invalidated) {
            self.begin_generation().await?;
        }
        Ok(imported)
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.shared.authority.purge(limit).await
    }

    fn archives(&self) -> bool {
        self.shared.authority.archives()
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.shared.authority.due(limit).await
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        self.shared.authority.purge_versions(versions).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.authority.stats().await
    }

    fn has_cache(&self) -> bool {
        true
    }

    /// Begins a new generation, as copies that other processes make at this moment would not be
    /// removed. Waits until all processes know it.
    async fn invalidate_cache(&self, copies: &CachedCopies) -> Result<(), StoreError> {
        self.begin_generation().await?;
        if let CachedCopies::Of(ids) = copies {
            let removing = stream::iter(ids).for_each_concurrent(FORGET_AT_ONCE, async |id| {
                self.shared.cache.forget(id).await;
            });
            removing.await;
        }
        tokio::time::sleep(self.shared.generation.ttl()).await;
        Ok(())
    }

    /// PostgreSQL's health: without the cache, calls are only slower.
    async fn health(&self) -> Result<Health, StoreError> {
        self.shared.authority.health().await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.shared.authority.accept_loss().await
    }
}

/// Why a [`TieredStore`] does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not valid, or certificates cannot be read.
    #[error("the address or the certificates of the cache cannot be used: {0}")]
    Address(#[source] ::redis::RedisError),
    /// PostgreSQL does not answer.
    #[error("the store behind the cache cannot be used: {0}")]
    Unavailable(#[source] StoreError),
}
