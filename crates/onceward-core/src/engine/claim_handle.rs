//! A granted claim, and the store calls of its owner.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::Engine;
use super::claim_sender::timed;
use super::lease_clock::LeaseClock;
use super::lease_renewer::{LeaseRenewer, RenewerRef};
use super::permit::{LeaseLost, Settled};
use crate::intent::{Fingerprint, OperationId, RecordId, Scope};
use crate::log::LogSubject;
use crate::log_operation;
use crate::record::{Holder, UnknownCause};
use crate::store::{Fenced, RenewRequest, SettleRequest, Settlement, StoreError};

/// A granted claim.
pub(super) struct ClaimHandle {
    pub(super) engine: Engine,
    pub(super) renewed_by: RenewerRef,
    pub(super) id: RecordId,
    pub(super) operation: OperationId,
    pub(super) scope: Scope,
    pub(super) fingerprint: Fingerprint,
    pub(super) holder: Holder,
    /// When the claim was sent.
    pub(super) began: Instant,
    pub(super) lease: LeaseClock,
}

impl ClaimHandle {
    /// The renewer of its lease.
    pub(super) fn renewer(&self) -> &Arc<LeaseRenewer> {
        self.engine.shared().renewers.get(&self.renewed_by)
    }

    /// The request that settles it.
    pub(super) fn request(&self, settlement: Settlement) -> SettleRequest {
        let retention = self.engine.policy().retention();
        SettleRequest { id: self.id, holder: self.holder, settlement, retention }
    }

    /// Tries once to settle it.
    pub(super) async fn settle(&self, request: &SettleRequest) -> Result<Settled, StoreError> {
        let fenced = timed(&self.engine, self.engine.shared().store.settle(request)).await?;
        self.engine.shared().waiters.wake(&self.id);
        Ok(match fenced {
            Fenced::Applied(()) => Settled::Durable,
            Fenced::Stale => {
                self.log_stale();
                Settled::Superseded
            }
            Fenced::Missing => {
                log_operation!(ERROR, self.log_subject(), { state = "missing", },
                    "the store has lost the record of a running operation");
                Settled::Missing
            }
        })
    }

    /// The operation, for log lines.
    pub(super) fn log_subject(&self) -> LogSubject<'_> {
        LogSubject::of_claim(&self.scope, self.id, &self.fingerprint).operation_id(self.operation)
    }

    #[cold]
    fn log_stale(&self) {
        if let Some(occurrences) = self.engine.shared().logs.stale.occurred() {
            let fence = self.holder.fence.0;
            log_operation!(WARN, self.log_subject(), {
                fence, occurrences, reason = "another owner took over, or it is settled",
            }, "a stale settlement was refused");
        }
    }

    /// Logs that the outcome is unknown.
    #[cold]
    pub(super) fn log_unknown(&self, cause: &UnknownCause) {
        if let Some(occurrences) = self.engine.shared().logs.unknown.occurred() {
            log_operation!(WARN, self.log_subject(), {
                state = "unknown", reason = cause.name(), occurrences,
            }, "the outcome is unknown");
        }
    }

    /// Tries once to renew the lease. Returns when the next renewal is due (soon after a
    /// failure, while the lease lives), or that the lease is lost.
    pub(super) async fn renew(&self) -> Result<Instant, LeaseLost> {
        let policy = self.engine.policy();
        let sent = Instant::now();
        let request = RenewRequest { id: self.id, holder: self.holder, lease: policy.lease() };
        match timed(&self.engine, self.engine.shared().store.renew(&request)).await {
            Ok(Fenced::Applied(_)) => {
                self.lease.extend(sent + policy.lease() - policy.drift());
                Ok(sent + policy.renew_every())
            }
            Ok(Fenced::Stale) => Err(LeaseLost::Stale),
            Ok(Fenced::Missing) => {
                tracing::error!(record = ?self.id, "the store has lost a running record");
                Err(LeaseLost::Missing)
            }
            Err(error) if Instant::now() >= self.lease.deadline() => {
                tracing::warn!(%error, "the lease could not be renewed and has lapsed");
                Err(LeaseLost::Lapsed)
            }
            Err(error) => {
                tracing::debug!(%error, "the lease could not be renewed, will retry");
                Ok(self.soon())
            }
        }
    }

    /// When to retry a renewal that failed or may have failed.
    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.engine.policy().renew_every() / 4
    }
}

impl fmt::Debug for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimHandle").field("id", &self.id).field("holder", &self.holder).finish()
    }
}
