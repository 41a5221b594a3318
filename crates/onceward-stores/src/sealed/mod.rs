//! Outcomes compressed and encrypted, over any store.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use onceward_core::{CachedCopies, Engine, MemoryStore};
//! use onceward_stores::sealed::{Keys, SealedStore};
//!
//! let keys = Keys::from_file("sealing.keys")?;
//! let store = SealedStore::new(Arc::new(MemoryStore::new()), keys);
//! let engine = Engine::new(Arc::new(store));
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A reader of the store learns only the size of an outcome, the id of its key, and the HTTP
//!   status and error code beside it: bytes, codec and resource are sealed by AES-256-GCM-SIV.
//! - A writer of the store can destroy an outcome, but not change it, nor pass off the outcome of
//!   another record, of an earlier operation under the same key, or of a failure as a success. An
//!   outcome opens only together with the record id (scope and key), the operation id, the
//!   fingerprint and the way it ended.
//! - What remains of an [invalidated](Outcome::invalidated) outcome is not sealed. A writer of the
//!   store can forge that too, which destroys the outcome.
//! - An outcome that does not open is an error,
//!   [`Undecodable`](onceward_core::StoreErrorKind::Undecodable): never absent, never run again.
//! - The decorator decides nothing: every answer is the inner store's, in one call. Only after a
//!   change of keys, a settlement that is sent again needs a second read.
//!
//! # What is not hidden
//!
//! - All of a record but its outcome: scope, times, state, the cause of an unknown outcome, and the
//!   client's key where the policy keeps it.
//! - Status and error code of an outcome. A writer of the store can change these two labels; replays
//!   take the status from the sealed bytes.
//! - Sizes. **Compression makes sizes tell more**: if an attacker can put text of their choice into
//!   the same reply as a secret, and sees the sizes in the store, they can find the secret by
//!   trial. Use [`Compression::Off`] for such replies.
//! - That a *whole* store was put back to an earlier state. Its records are genuine.
//!
//! # Changing keys
//!
//! 1. Add the new key **after** the one that seals, on every node.
//! 2. When all nodes have it, put it **first**, on every node.
//! 3. Remove the old key when everything it sealed has expired (the retention after step 2), or
//!    after [`SealedStore::reseal`] has sealed all of it again.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the decorator |
//! | `envelope` | one sealed outcome, and what it is bound to |
//! | `payload` | an outcome as bytes, before it is sealed |
//! | `keys` | keys from files, variables and text |
//! | `reseal` | sealing again with a new key |
//! | `zstd_pool` | compression |
//! | `error` | why an outcome does not open |

mod envelope;
mod error;
mod keys;
mod payload;
mod reseal;
mod zstd_pool;

use std::sync::Arc;
use std::{fmt, mem};

use async_trait::async_trait;
use onceward_core::{
    CachedCopies, Claim, ClaimRequest, Due, Ended, Fence, Fenced, Health, Imported,
    InvalidateRequest, Lease, LossAccepted, Outcome, Page, Purged, Query, Record, RecordId,
    RecordVersion, RenewRequest, ResolveRequest, SettleRequest, Settlement, State, Stats, Store,
    StoreAdmin, StoreError, Verdict,
};

pub use envelope::{SEAL_BYTES_MAX, TAG};
pub use error::{SealError, SealProblem};
pub use keys::{KEY_BYTES, KEY_ID_BYTES_MAX, KeyProblem, Keys, KeysError};
pub use reseal::Resealed;

use crate::recent_grants::{GrantedIntent, RecentGrants};
use envelope::{Binding, Envelopes};

/// Settings of a sealed store.
#[derive(Debug, Clone)]
pub struct Sealing {
    /// The first key seals, all of them open.
    pub keys: Keys,
    /// Compression before sealing.
    pub compression: Compression,
    /// Handling of outcomes that are not sealed.
    pub plain: Plain,
}

/// Compression of outcomes before they are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Never: sizes then tell only sizes.
    Off,
    /// By zstd, for outcomes above this many bytes, where it saves something.
    Above(usize),
}

/// Handling of stored outcomes that are not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Plain {
    /// Fail: they may be forged.
    #[default]
    Refuse,
    /// Answer them as they are. Use it only while outcomes from before sealing are retained:
    /// meanwhile, anyone who can write to the store can forge outcomes.
    Read,
}

impl Default for Compression {
    /// Below 4 KiB compressing costs more time than the saved bytes are worth.
    fn default() -> Self {
        Self::Above(4 << 10)
    }
}

impl From<Keys> for Sealing {
    fn from(keys: Keys) -> Self {
        Self { keys, compression: Compression::default(), plain: Plain::default() }
    }
}

/// A store with sealed outcomes. See the [module](self) for its guarantees.
pub struct SealedStore<S: ?Sized> {
    inner: Arc<S>,
    envelopes: Envelopes,
    plain: Plain,
    grants: RecentGrants,
}

impl<S: ?Sized> SealedStore<S> {
    /// Seals the outcomes of a store, with [`Keys`] alone or with all settings.
    pub fn new(inner: Arc<S>, sealing: impl Into<Sealing>) -> Self {
        let Sealing { keys, compression, plain } = sealing.into();
        let envelopes = Envelopes::new(keys, compression);
        Self { inner, envelopes, plain, grants: RecentGrants::default() }
    }

    fn seal(&self, bound: &Binding, outcome: &Outcome) -> Result<Outcome, StoreError> {
        if outcome.is_invalidated() {
            return Ok(plain_remains(outcome));
        }
        self.envelopes.seal(bound, outcome).map_err(|problem| problem.of(bound.id))
    }

    fn open(&self, bound: &Binding, stored: &Outcome) -> Result<Outcome, StoreError> {
        if stored.is_invalidated() {
            return Ok(plain_remains(stored));
        }
        match (self.envelopes.open(bound, stored), self.plain) {
            (Err(SealProblem::Plain { .. }), Plain::Read) => Ok(stored.clone()),
            (opened, _) => opened.map_err(|problem| problem.of(bound.id)),
        }
    }

    fn open_record(&self, record: Record) -> Result<Record, StoreError> {
        with_outcome(record, |bound, stored| self.open(bound, stored))
    }

    fn seal_record(&self, record: Record) -> Result<Record, StoreError> {
        with_outcome(record, |bound, outcome| self.seal(bound, outcome))
    }
}

/// Returns the remains of an invalidated outcome. A resource beside it would be neither hidden nor proved.
fn plain_remains(invalidated: &Outcome) -> Outcome {
    Outcome { resource: None, ..invalidated.clone() }
}

/// Replaces the outcome of a record that has one.
fn with_outcome(
    mut record: Record,
    change: impl FnOnce(&Binding, &Outcome) -> Result<Outcome, StoreError>,
) -> Result<Record, StoreError> {
    let (ended, outcome) = match &record.state {
        State::Completed { outcome, .. } => (Ended::Completed, outcome),
        State::Failed { outcome, .. } => (Ended::Failed, outcome),
        State::Running { .. }
        | State::Released { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => return Ok(record),
    };
    let changed = change(&Binding::of(&record, ended), outcome)?;
    if let State::Completed { outcome, .. } | State::Failed { outcome, .. } = &mut record.state {
        *outcome = changed;
    }
    Ok(record)
}

impl<S: StoreAdmin + ?Sized> SealedStore<S> {
    /// Returns the binding for an outcome of this grant; `None` if there is no such record.
    async fn bound(
        &self,
        id: RecordId,
        fence: Fence,
        ended: Ended,
    ) -> Result<Option<Binding>, StoreError> {
        if let Some(GrantedIntent { operation, fingerprint }) = self.grants.recall(id, fence) {
            return Ok(Some(Binding { id, operation, fingerprint, ended }));
        }
        let record = self.inner.get(&id).await?;
        Ok(record.map(|record| Binding::of(&record, ended)))
    }

    /// Returns the stored outcome if it opens to the same one. Sealed with an earlier key, or
    /// compressed by another release, it has other bytes. The inner store then decides about the
    /// repetition.
    async fn stored_alike(
        &self,
        id: RecordId,
        fence: Fence,
        ended: Ended,
        outcome: &Outcome,
    ) -> Result<Option<Outcome>, StoreError> {
        let record = self.inner.get(&id).await?.filter(|record| record.fence == fence);
        let Some(record) = record else { return Ok(None) };
        let stored = match (&record.state, ended) {
            (State::Completed { outcome, .. }, Ended::Completed)
            | (State::Failed { outcome, .. }, Ended::Failed) => outcome,
            _ => return Ok(None),
        };
        let opened = self.open(&Binding::of(&record, ended), stored)?;
        Ok((opened == *outcome).then(|| stored.clone()))
    }
}

#[async_trait]
impl<S: Store + StoreAdmin + ?Sized> Store for SealedStore<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let ClaimRequest { id, fingerprint, .. } = *request;
        // Outcomes are answered only to requests with the record's fingerprint.
        let bound = |operation, ended| Binding { id, operation, fingerprint, ended };
        match self.inner.claim(request).await? {
            Claim::Granted { lease, operation, attempt } => {
                self.grants.remember(id, lease.fence, GrantedIntent { operation, fingerprint });
                Ok(Claim::Granted { lease, operation, attempt })
            }
            Claim::Completed { operation, outcome } => {
                let outcome = self.open(&bound(operation, Ended::Completed), &outcome)?;
                Ok(Claim::Completed { operation, outcome })
            }
            Claim::Failed { operation, outcome } => {
                let outcome = self.open(&bound(operation, Ended::Failed), &outcome)?;
                Ok(Claim::Failed { operation, outcome })
            }
            other @ (Claim::Running { .. }
            | Claim::Mismatch { .. }
            | Claim::Unknown { .. }
            | Claim::Expired) => Ok(other),
        }
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.inner.renew(request).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let (id, fence) = (request.id, request.holder.fence);
        let (ended, outcome) = match &request.settlement {
            Settlement::Complete(outcome) => (Ended::Completed, outcome),
            Settlement::Fail(outcome) => (Ended::Failed, outcome),
            Settlement::Unknown(_) | Settlement::Release => {
                return self.inner.settle(request).await;
            }
        };
        let saying = |outcome| {
            let settlement = match ended {
                Ended::Completed => Settlement::Complete(outcome),
                Ended::Failed => Settlement::Fail(outcome),
            };
            SettleRequest { settlement, ..request.clone() }
        };
        let Some(bound) = self.bound(id, fence, ended).await? else { return Ok(Fenced::Missing) };
        let answer = self.inner.settle(&saying(self.seal(&bound, outcome)?)).await?;
        if answer != Fenced::Stale {
            self.grants.forget(id, fence);
            return Ok(answer);
        }
        match self.stored_alike(id, fence, ended, outcome).await? {
            Some(stored) => self.inner.settle(&saying(stored)).await,
            None => Ok(Fenced::Stale),
        }
    }

    async fn changed(&self, id: &RecordId) {
        self.inner.changed(id).await;
    }
}

#[async_trait]
impl<S: StoreAdmin + ?Sized> StoreAdmin for SealedStore<S> {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await?.map(|record| self.open_record(record)).transpose()
    }

    /// A record whose outcome does not open is listed as undecodable.
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut page = self.inner.list(query).await?;
        for record in mem::take(&mut page.records) {
            let id = record.id;
            match self.open_record(record) {
                Ok(record) => page.records.push(record),
                Err(_) => page.undecodable.push(id),
            }
        }
        Ok(page)
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let (id, fence, ended) = (request.id, request.fence, Ended::Completed);
        let outcome = match &request.verdict {
            Verdict::Happened(outcome) => outcome,
            Verdict::DidNotHappen | Verdict::StillUnknown => {
                return self.inner.resolve(request).await;
            }
        };
        let saying = |outcome| {
            let verdict = Verdict::Happened(outcome);
            ResolveRequest { verdict, ..request.clone() }
        };
        let Some(bound) = self.bound(id, fence, ended).await? else { return Ok(Fenced::Missing) };
        let answer = self.inner.resolve(&saying(self.seal(&bound, outcome)?)).await?;
        if answer != Fenced::Stale {
            return Ok(answer);
        }
        match self.stored_alike(id, fence, ended, outcome).await? {
            Some(stored) => self.inner.resolve(&saying(stored)).await,
            None => Ok(Fenced::Stale),
        }
    }

    /// Needs no key: what remains of the outcome is not sealed.
    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.inner.invalidate(request).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.inner.purge(limit).await
    }

    fn archives(&self) -> bool {
        self.inner.archives()
    }

    /// Sealed, as they are stored.
    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.inner.due(limit).await
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        self.inner.purge_versions(versions).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }

    /// Takes records with plain outcomes and seals them with the first key.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.inner.import(&self.seal_record(record.clone())?).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.inner.health().await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.inner.accept_loss().await
    }

    fn has_cache(&self) -> bool {
        self.inner.has_cache()
    }

    async fn invalidate_cache(&self, copies: &CachedCopies) -> Result<(), StoreError> {
        self.inner.invalidate_cache(copies).await
    }
}

impl<S: ?Sized> fmt::Debug for SealedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStore")
            .field("keys", &self.envelopes.keys)
            .field("compression", &self.envelopes.compression)
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}
