//! Outcomes compressed and encrypted, over any store.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use onceward_core::{Engine, MemoryStore};
//! use onceward_stores::sealed::{Keys, Sealed};
//!
//! let keys = Keys::from_file("sealing.keys")?;
//! let store = Sealed::new(Arc::new(MemoryStore::new()), keys);
//! let engine = Engine::new(Arc::new(store));
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - Whoever reads the store learns nothing of an outcome but its size and the id of the key:
//!   bytes, codec and resource are sealed by AES-256-GCM-SIV.
//! - Whoever writes the store can destroy an outcome, but not change it, nor pass off one
//!   record's for another's, an earlier one under the same key for today's, a failure for a
//!   success: an outcome opens only beside the record id (scope and key), the operation id, the
//!   fingerprint and the end that it was sealed for.
//! - What does not open is there and is an error,
//!   [`Undecodable`](onceward_core::StoreErrorKind::Undecodable): never absent, never run again.
//! - It decides nothing: every answer is the inner store's, in one call. Only after a change of
//!   keys a settlement that is sent again costs a second look.
//!
//! # What it does not hide
//!
//! - Everything of a record that is not its outcome: scope, times, states, and the client's key
//!   where the policy keeps it.
//! - Sizes. **Compression makes sizes speak**: where somebody can have text of their choice
//!   stored beside a secret in one reply, and see the sizes in the store, they can find the
//!   secret out by trying. [`Compression::Off`] is for such replies.
//! - That a *whole* store was put back to an earlier state. Its records are genuine.
//!
//! # Changing keys
//!
//! 1. Add the new key **after** the one that seals, on every node.
//! 2. When all have it, put it **first**, on every node.
//! 3. Remove the old one when everything it sealed has expired (retention after step 2), or
//!    after [`Sealed::reseal`] has sealed all of it anew.

mod envelope;
mod error;
mod keys;
mod packer;
mod payload;
mod reseal;

use std::sync::Arc;
use std::{fmt, mem};

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Ended, Fence, Fenced, Health, Imported, Lease, LossAccepted, Outcome,
    Page, Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Settlement,
    State, Stats, Store, StoreAdmin, StoreError, Verdict,
};

pub use envelope::{SEAL_BYTES_MAX, TAG};
pub use error::{SealError, SealProblem};
pub use keys::{KEY_BYTES, KEY_ID_BYTES_MAX, KeyProblem, Keys, KeysError};
pub use reseal::Resealed;

use crate::grants::{Grant, Grants};
use envelope::{Bound, Envelopes};

/// How outcomes are sealed.
#[derive(Debug, Clone)]
pub struct Sealing {
    /// With which keys.
    pub keys: Keys,
    /// Whether they are compressed before.
    pub compression: Compression,
    /// What becomes of outcomes that are found unsealed.
    pub plain: Plain,
}

/// Whether outcomes are compressed before they are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Never: sizes then tell only sizes.
    Off,
    /// Those that take more than so many bytes, by zstd, where it saves something.
    Above(usize),
}

/// What becomes of outcomes that are found unsealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Plain {
    /// They are an error: somebody may have put them there.
    #[default]
    Refuse,
    /// They are answered as they are. Only for as long as outcomes from before sealing
    /// live, as whoever can write to the store can then forge any.
    Read,
}

impl Default for Compression {
    /// Below four kilobytes packing costs more time than the bytes it saves are worth.
    fn default() -> Self {
        Self::Above(4 << 10)
    }
}

impl From<Keys> for Sealing {
    fn from(keys: Keys) -> Self {
        Self { keys, compression: Compression::default(), plain: Plain::default() }
    }
}

/// A store whose outcomes are sealed. See the [module](self) for what it promises.
pub struct Sealed<S: ?Sized> {
    inner: Arc<S>,
    envelopes: Envelopes,
    plain: Plain,
    grants: Grants,
}

impl<S: ?Sized> Sealed<S> {
    /// Seals the outcomes of a store, with [`Keys`] alone or with all settings.
    pub fn new(inner: Arc<S>, sealing: impl Into<Sealing>) -> Self {
        let Sealing { keys, compression, plain } = sealing.into();
        let envelopes = Envelopes::new(keys, compression);
        Self { inner, envelopes, plain, grants: Grants::default() }
    }

    fn seal(&self, bound: &Bound, outcome: &Outcome) -> Result<Outcome, StoreError> {
        self.envelopes.seal(bound, outcome).map_err(|problem| problem.of(bound.id))
    }

    fn open(&self, bound: &Bound, stored: &Outcome) -> Result<Outcome, StoreError> {
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

/// A record with another outcome, where it has one.
fn with_outcome(
    mut record: Record,
    change: impl FnOnce(&Bound, &Outcome) -> Result<Outcome, StoreError>,
) -> Result<Record, StoreError> {
    let (ended, outcome) = match &record.state {
        State::Completed { outcome, .. } => (Ended::Completed, outcome),
        State::Failed { outcome, .. } => (Ended::Failed, outcome),
        State::Running { .. } | State::Released { .. } | State::Unknown | State::Expired { .. } => {
            return Ok(record);
        }
    };
    let changed = change(&Bound::of(&record, ended), outcome)?;
    if let State::Completed { outcome, .. } | State::Failed { outcome, .. } = &mut record.state {
        *outcome = changed;
    }
    Ok(record)
}

impl<S: StoreAdmin + ?Sized> Sealed<S> {
    /// What an outcome of this grant is bound to; `None` if there is no such record.
    async fn bound(
        &self,
        id: RecordId,
        fence: Fence,
        ended: Ended,
    ) -> Result<Option<Bound>, StoreError> {
        if let Some(Grant { operation, fingerprint }) = self.grants.recall(id, fence) {
            return Ok(Some(Bound { id, operation, fingerprint, ended }));
        }
        let record = self.inner.get(&id).await?;
        Ok(record.map(|record| Bound::of(&record, ended)))
    }

    /// The stored outcome as it is, if the same one is inside: sealed with an earlier key, or
    /// compressed by another release, it has other bytes. What it means that the same was
    /// said before is then the inner store's to decide.
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
        let opened = self.open(&Bound::of(&record, ended), stored)?;
        Ok((opened == *outcome).then(|| stored.clone()))
    }
}

#[async_trait]
impl<S: Store + StoreAdmin + ?Sized> Store for Sealed<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let ClaimRequest { id, fingerprint, .. } = *request;
        // Answered only where the fingerprint is the record's.
        let bound = |operation, ended| Bound { id, operation, fingerprint, ended };
        match self.inner.claim(request).await? {
            Claim::Granted { lease, operation, attempt } => {
                self.grants.remember(id, lease.fence, Grant { operation, fingerprint });
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
            Settlement::Unknown | Settlement::Release => return self.inner.settle(request).await,
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
impl<S: StoreAdmin + ?Sized> StoreAdmin for Sealed<S> {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await?.map(|record| self.open_record(record)).transpose()
    }

    /// Records whose outcomes do not open are named as undecodable, beside the others.
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

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.inner.purge(limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }

    /// Records come open and are sealed here, with this store's first key.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.inner.import(&self.seal_record(record.clone())?).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.inner.health().await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.inner.accept_loss().await
    }
}

impl<S: ?Sized> fmt::Debug for Sealed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed")
            .field("keys", &self.envelopes.keys)
            .field("compression", &self.envelopes.compression)
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}
