//! A claim that was granted, and what its holder tells the store.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::Engine;
use super::claim_sender::timed;
use super::lease_clock::Life;
use super::lease_renewer::{Keeper, KeptBy};
use super::permit::{Lost, Settled};
use crate::intent::RecordId;
use crate::record::Holder;
use crate::store::{Fenced, RenewRequest, SettleRequest, Settlement, StoreError};

/// A claim that was granted.
pub(super) struct Held {
    pub(super) engine: Engine,
    pub(super) kept_by: KeptBy,
    pub(super) id: RecordId,
    pub(super) holder: Holder,
    pub(super) life: Life,
}

impl Held {
    /// Who renews its lease.
    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        self.engine.shared().keepers.get(&self.kept_by)
    }

    /// What to send to settle it.
    pub(super) fn request(&self, settlement: Settlement) -> SettleRequest {
        let retention = self.engine.policy().retention();
        SettleRequest { id: self.id, holder: self.holder, settlement, retention }
    }

    /// One attempt to settle it.
    pub(super) async fn settle(&self, request: &SettleRequest) -> Result<Settled, StoreError> {
        let fenced = timed(&self.engine, self.engine.shared().store.settle(request)).await?;
        self.engine.shared().waiters.wake(&self.id);
        Ok(match fenced {
            Fenced::Applied(()) => Settled::Durable,
            Fenced::Stale => Settled::Superseded,
            Fenced::Missing => Settled::Missing,
        })
    }

    /// One attempt to renew the lease. Tells when the next one is due (soon after a failure,
    /// as long as the lease lives), or that the lease is lost.
    pub(super) async fn renew(&self) -> Result<Instant, Lost> {
        let policy = self.engine.policy();
        let sent = Instant::now();
        let request = RenewRequest { id: self.id, holder: self.holder, lease: policy.lease() };
        match timed(&self.engine, self.engine.shared().store.renew(&request)).await {
            Ok(Fenced::Applied(_)) => {
                self.life.extend(sent + policy.lease() - policy.drift());
                Ok(sent + policy.renew_every())
            }
            Ok(Fenced::Stale) => Err(Lost::Stale),
            Ok(Fenced::Missing) => {
                tracing::error!(record = ?self.id, "the store has lost a running record");
                Err(Lost::Missing)
            }
            Err(error) if Instant::now() >= self.life.deadline() => {
                tracing::warn!(%error, "the lease could not be renewed and has lapsed");
                Err(Lost::Lapsed)
            }
            Err(error) => {
                tracing::debug!(%error, "renewing again soon");
                Ok(self.soon())
            }
        }
    }

    /// When to try a renewal again whose fate is not known or not liked.
    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.engine.policy().renew_every() / 4
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("id", &self.id).field("holder", &self.holder).finish()
    }
}
