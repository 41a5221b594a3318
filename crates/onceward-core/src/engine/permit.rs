//! The right to run an operation, and the duty to settle it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::background_settlement;
use super::claim_handle::ClaimHandle;
use super::lease_renewer::{Position, TrackedClaim};
use crate::intent::{DownstreamKey, OperationId};
use crate::record::{Ended, Fence, Outcome, UnknownCause};
use crate::store::{SettleRequest, Settlement};

/// The part of a [`Permit`] that a handler may see. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grant {
    operation: OperationId,
    fence: Fence,
    attempt: u32,
    term: Term,
}

/// Duration of a grant.
#[derive(Debug, Clone)]
enum Term {
    /// As long as the lease.
    Leased(Arc<ClaimHandle>),
    /// As long as the process.
    Endless,
}

/// Why a grant no longer covers new effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLost {
    /// The lease was not renewed in time.
    #[error("the lease has lapsed; begin no new effect")]
    Lapsed,
    /// Another owner took over, or the operation was settled.
    #[error("another owner holds the lease, or the operation is settled; begin no new effect")]
    Stale,
    /// The store no longer has the record: it has lost data.
    #[error("the store has lost the record; begin no new effect")]
    Missing,
    /// The engine is shutting down, and the outcome was marked unknown.
    #[error("the engine is shutting down; begin no new effect")]
    Drained,
}

/// Time to the deadline of a grant without a lease: longer than any process lasts.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Grant {
    /// A grant without a lease, for work that is committed in one transaction with its
    /// settlement. It is never lost.
    pub fn without_lease(operation: OperationId, fence: Fence, attempt: u32) -> Self {
        Self { operation, fence, attempt, term: Term::Endless }
    }

    /// The operation's id.
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// The fence, for conditional writes: refuse writes with a lower one.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Number of this attempt at the operation, counted from one.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The idempotency key for the next system, the same on every attempt.
    pub fn downstream_key(&self) -> DownstreamKey {
        DownstreamKey::of(&self.operation)
    }

    /// The time until which effects may be begun. Each renewal moves it.
    pub fn deadline(&self) -> Instant {
        match &self.term {
            Term::Leased(handle) => handle.lease.deadline(),
            Term::Endless => Instant::now() + FOR_EVER,
        }
    }

    /// Checks that effects may still be begun. Call it before each one: a process that was
    /// paused does not notice by itself.
    pub fn check(&self) -> Result<(), LeaseLost> {
        match &self.term {
            Term::Leased(handle) => handle.lease.check(),
            Term::Endless => Ok(()),
        }
    }

    /// Returns once effects may no longer be begun.
    pub async fn lost(&mut self) -> LeaseLost {
        match &self.term {
            Term::Leased(handle) => handle.lease.lost().await,
            Term::Endless => std::future::pending().await,
        }
    }
}

/// The right to run an operation. The lease is renewed in the background while the permit
/// lives.
///
/// Dropping it makes the record unknown. Only [`release`](Permit::release) says that nothing
/// happened. A settlement survives its future: once called it is carried through, awaited or
/// not.
#[must_use = "dropping a permit leaves the outcome unknown"]
#[derive(Debug)]
pub struct Permit {
    grant: Grant,
    claim: UnsettledClaim,
}

/// Result of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// Stored; every retry gets it.
    Durable,
    /// Not stored yet: the store cannot be reached. The settlement is retried in the
    /// background and the lease renewed meanwhile; if it is never stored, the record is unknown.
    /// Under [`OnLapse::Takeover`](crate::OnLapse::Takeover) do not answer it as final: the
    /// next owner may come to another outcome.
    Pending,
    /// Refused: the fence has moved, or evidence settled the operation. The caller's outcome
    /// is not the one that counts.
    Superseded,
    /// The store no longer has the record: it has lost data.
    Missing,
}

impl Permit {
    /// Issues the permit of a claim whose first renewal is due at `renew_at`.
    pub(super) fn issue(
        handle: Arc<ClaimHandle>,
        operation: OperationId,
        attempt: u32,
        renew_at: Instant,
    ) -> Self {
        let (fence, term) = (handle.holder.fence, Term::Leased(Arc::clone(&handle)));
        let position = handle.renewer().track(Arc::clone(&handle), renew_at);
        let claim = UnsettledClaim { handle, position: Some(position) };
        Self { grant: Grant { operation, fence, attempt, term }, claim }
    }

    /// Revokes a permit that was not handed out. Settles nothing.
    #[cold]
    pub(super) fn revoke(mut self) {
        let _untracked = self.claim.take();
    }

    /// The grant, for the handler.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Settles as succeeded: every retry gets this outcome.
    pub fn complete(self, outcome: Outcome) -> impl Future<Output = Settled> {
        self.end(Ended::Completed, outcome)
    }

    /// Settles as failed for good: every retry gets this outcome.
    pub fn fail(self, outcome: Outcome) -> impl Future<Output = Settled> {
        self.end(Ended::Failed, outcome)
    }

    /// Settles as completed or failed: every retry gets this outcome.
    pub fn end(self, ended: Ended, outcome: Outcome) -> impl Future<Output = Settled> {
        self.settle(match ended {
            Ended::Completed => Settlement::Complete(outcome),
            Ended::Failed => Settlement::Fail(outcome),
        })
    }

    /// Settles as unknown: it cannot be proved what happened, for this reason.
    pub fn unknown(self, cause: UnknownCause) -> impl Future<Output = Settled> {
        self.settle(Settlement::Unknown(cause))
    }

    /// Settles as released: nothing happened, and the key is free. After a takeover, only the
    /// lease ends, and the next owner may try.
    pub fn release(self) -> impl Future<Output = Settled> {
        self.settle(Settlement::Release)
    }

    fn settle(self, settlement: Settlement) -> impl Future<Output = Settled> {
        let Self { grant: Grant { operation, .. }, claim } = self;
        let request = claim.handle.request(settlement);
        let settling = PendingSettlement { claim, request };
        async move {
            // The first try needs no task of its own.
            match settling.claim.handle.settle(&settling.request).await {
                Ok(settled) => {
                    settling.done();
                    settled
                }
                Err(error) => {
                    tracing::warn!(%operation, %error, "the outcome could not be stored, will retry");
                    settling.go_on().boxed().await
                }
            }
        }
    }
}

impl Deref for Permit {
    type Target = Grant;

    fn deref(&self) -> &Grant {
        &self.grant
    }
}

/// The claim of a permit that was not settled. Dropped, it is marked unknown in the background.
#[derive(Debug)]
struct UnsettledClaim {
    handle: Arc<ClaimHandle>,
    /// Its position in the renewer; `None` after it was taken out.
    position: Option<Position>,
}

impl UnsettledClaim {
    /// Takes the claim out of its renewer. `None` if that was done before, here or by a drain.
    fn take(&mut self) -> Option<TrackedClaim> {
        self.handle.renewer().take(&self.handle, self.position.take()?)
    }
}

impl Drop for UnsettledClaim {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        let cause = if panicking { UnknownCause::Panicked } else { UnknownCause::Dropped };
        if let Some(tracked) = self.take() {
            background_settlement::abandon(tracked, cause);
        }
    }
}

/// A settlement under way. Dropped, it goes on in the background, so a cancelled caller does not
/// lose its outcome.
#[derive(Debug)]
struct PendingSettlement {
    claim: UnsettledClaim,
    request: SettleRequest,
}

impl PendingSettlement {
    fn done(mut self) {
        let _untracked = self.claim.take();
    }

    /// Goes on in the background, and waits there for the policy's `settle_wait`.
    async fn go_on(mut self) -> Settled {
        let settle_wait = self.claim.handle.engine.policy().settle_wait();
        let Some(tracked) = self.claim.take() else { return Settled::Pending }; // a drain took it
        let landed = background_settlement::settle(tracked, self.request.clone());
        match timeout(settle_wait, landed).await {
            Ok(Ok(settled)) => settled,
            Ok(Err(_)) | Err(_) => Settled::Pending,
        }
    }
}

impl Drop for PendingSettlement {
    fn drop(&mut self) {
        if let Some(tracked) = self.claim.take() {
            drop(background_settlement::settle(tracked, self.request.clone()));
        }
    }
}
