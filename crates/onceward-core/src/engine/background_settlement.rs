//! Settlements that go on in the background after their permit is gone.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::claim_handle::ClaimHandle;
use super::lease_renewer::TrackedClaim;
use super::permit::{LeaseLost, Settled};
use crate::log_operation;
use crate::record::UnknownCause;
use crate::store::{Lapsed, SettleRequest, Settlement};

/// A claim that is not settled, and whose permit is gone or no longer counts.
pub(super) struct BackgroundSettlement {
    handle: Arc<ClaimHandle>,
    renew_at: Instant,
    backoff: Backoff,
    /// Makes a drain wait.
    _tracked: TrackedClaim,
}

/// Retries a settlement that failed at first, until the policy's patience ends or a drain cuts
/// it off.
#[cold]
pub(super) fn settle(tracked: TrackedClaim, request: SettleRequest) -> oneshot::Receiver<Settled> {
    let (landed, reply) = oneshot::channel();
    let runtime = tracked.handle.renewer().runtime().clone();
    runtime.spawn(BackgroundSettlement::from(tracked).settle(request, landed));
    reply
}

/// Marks the claim of a dropped permit unknown.
#[cold]
pub(super) fn abandon(tracked: TrackedClaim, cause: UnknownCause) {
    mark_unknown(tracked, cause, Patience::UntilLapse);
}

/// Marks a claim unknown that still runs at the end of a drain.
#[cold]
pub(super) fn cut_off(tracked: TrackedClaim) {
    tracked.handle.lease.end(LeaseLost::Drained);
    mark_unknown(tracked, UnknownCause::Shutdown, Patience::None);
}

/// Time limit of the retries.
#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    /// After that the record stands at unknown anyway.
    UntilLapse,
}

/// Says now what the lapse of the lease would say later. Where a lapse means takeover this does
/// nothing: unknown would stop the next owner.
fn mark_unknown(tracked: TrackedClaim, cause: UnknownCause, patience: Patience) {
    if tracked.handle.engine.policy().lapsed() == Lapsed::Takeover {
        return;
    }
    tracked.handle.log_unknown(&cause);
    let runtime = tracked.handle.renewer().runtime().clone();
    runtime.spawn(BackgroundSettlement::from(tracked).mark_unknown(cause, patience));
}

impl From<TrackedClaim> for BackgroundSettlement {
    fn from(tracked: TrackedClaim) -> Self {
        let handle = Arc::clone(&tracked.handle);
        // `None`: a renewal is under way, which may fail.
        let renew_at = tracked.renew_at.unwrap_or_else(|| handle.soon());
        Self { handle, renew_at, backoff: Backoff::default(), _tracked: tracked }
    }
}

impl BackgroundSettlement {
    async fn settle(mut self, request: SettleRequest, landed: oneshot::Sender<Settled>) {
        let handle = Arc::clone(&self.handle);
        tokio::select! {
            biased;
            settled = self.retry(&request) => {
                let _caller_may_be_gone = landed.send(settled);
            }
            () = handle.engine.shared().drain.cut_off() => {}
        }
    }

    /// Retries a settlement, renewing the lease meanwhile.
    async fn retry(&mut self, request: &SettleRequest) -> Settled {
        let give_up = Instant::now() + self.handle.engine.policy().settle_patience();
        loop {
            if Instant::now() >= self.renew_at && !self.handle.lease.is_lost() {
                self.renew().await;
            }
            match self.handle.settle(request).await {
                Ok(settled) => return settled,
                Err(error) if Instant::now() >= give_up => {
                    log_operation!(ERROR, self.handle.log_subject(), {
                        state = "unknown", reason = UnknownCause::Unstored.name(), %error,
                    }, "the outcome could not be stored and is unknown");
                    self.say_unstored().await;
                    return Settled::Pending;
                }
                Err(error) => {
                    tracing::debug!(%error, "the outcome could not be stored, will retry");
                }
            }
            self.pause().await;
        }
    }

    /// Tries once to store why the record is unknown: the store may accept that, for example where
    /// the outcome cannot be sealed. After any failure the lease lapses instead.
    async fn say_unstored(&self) {
        if self.handle.engine.policy().lapsed() == Lapsed::Takeover {
            return;
        }
        let request = self.handle.request(Settlement::Unknown(UnknownCause::Unstored));
        if let Err(error) = self.handle.settle(&request).await {
            tracing::debug!(%error, "the record could not be marked unknown");
        }
    }

    async fn renew(&mut self) {
        match self.handle.renew().await {
            Ok(renew_at) => self.renew_at = renew_at,
            Err(lost) => self.handle.lease.end(lost),
        }
    }

    async fn mark_unknown(mut self, cause: UnknownCause, patience: Patience) {
        let request = self.handle.request(Settlement::Unknown(cause));
        loop {
            match self.handle.settle(&request).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the record could not be marked unknown"),
            }
            match patience {
                Patience::UntilLapse if Instant::now() < self.handle.lease.deadline() => {
                    self.pause().await;
                }
                Patience::UntilLapse | Patience::None => return,
            }
        }
    }

    async fn pause(&mut self) {
        self.backoff.pause(&*self.handle.engine.shared().ambient).await;
    }
}
