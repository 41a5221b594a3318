//! The right to run an operation, and the duty to say what came of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::background_settlement;
use super::claim_handle::Held;
use super::lease_renewer::{Kept, Place};
use crate::intent::{DownstreamKey, OperationId};
use crate::record::{Ended, Fence, Outcome};
use crate::store::{SettleRequest, Settlement};

/// What a handler may know about the grant it runs under. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grant {
    operation: OperationId,
    fence: Fence,
    attempt: u32,
    term: Term,
}

/// How long a grant lasts.
#[derive(Debug, Clone)]
enum Term {
    /// As long as the lease.
    Leased(Arc<Held>),
    Endless,
}

/// Why a grant no longer covers new effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The lease was not renewed in time.
    #[error("the lease has lapsed; begin no new effect")]
    Lapsed,
    /// The store says that somebody else decides now.
    #[error("the lease is held by somebody else; begin no new effect")]
    Stale,
    /// The store no longer has the record: it has lost data.
    #[error("the store has lost the record; begin no new effect")]
    Missing,
    /// The engine is shutting down, and the outcome was marked unknown.
    #[error("shutting down; begin no new effect")]
    Drained,
}

/// The deadline of a grant without a lease is always so far: longer than any process lasts.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Grant {
    /// A grant that needs no lease, because what is done under it counts only together with
    /// its settlement: in one transaction. It is never lost.
    pub fn without_lease(operation: OperationId, fence: Fence, attempt: u32) -> Self {
        Self { operation, fence, attempt, term: Term::Endless }
    }

    /// The operation's name.
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// The fence, for conditional writes: refuse any that carry a lower one.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Which attempt at the operation this is, counted from one.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The idempotency key to hand to the next system; the same on every attempt.
    pub fn downstream_key(&self) -> DownstreamKey {
        DownstreamKey::of(&self.operation)
    }

    /// Until when effects may be begun. Moves on as the lease is renewed.
    pub fn deadline(&self) -> Instant {
        match &self.term {
            Term::Leased(held) => held.life.deadline(),
            Term::Endless => Instant::now() + FOR_EVER,
        }
    }

    /// Whether effects may still be begun. Ask before each one: a process that was stopped
    /// for a while does not notice by itself.
    pub fn check(&self) -> Result<(), Lost> {
        match &self.term {
            Term::Leased(held) => held.life.check(),
            Term::Endless => Ok(()),
        }
    }

    /// Returns once effects may no longer be begun.
    pub async fn lost(&mut self) -> Lost {
        match &self.term {
            Term::Leased(held) => held.life.lost().await,
            Term::Endless => std::future::pending().await,
        }
    }
}

/// The right to run an operation. The lease is renewed in the background as long as the
/// permit is held.
///
/// Dropping it says *nobody knows*: the record becomes unknown. Only
/// [`release`](Permit::release) says that nothing happened. Settling survives being
/// dropped: what was called is carried through, even if nobody awaits it.
#[must_use = "dropping a permit leaves the outcome unknown"]
#[derive(Debug)]
pub struct Permit {
    grant: Grant,
    unsettled: Unsettled,
}

/// Whether a settlement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// It is stored; every retry will see it.
    Durable,
    /// The store cannot be reached. The settlement is tried again in the background, the
    /// lease renewed meanwhile; if it never lands, the record is unknown. Under
    /// [`OnLapse::Takeover`](crate::OnLapse::Takeover) do not answer it as final: the next
    /// owner may come to another outcome.
    Pending,
    /// Refused: the fence has moved, or other evidence settled the matter. What the caller
    /// was about to answer is not the outcome that counts.
    Superseded,
    /// The store no longer has the record: it has lost data.
    Missing,
}

impl Permit {
    /// A permit for a claim whose lease is first to be renewed at `renew_at`.
    pub(super) fn issue(
        held: Arc<Held>,
        operation: OperationId,
        attempt: u32,
        renew_at: Instant,
    ) -> Self {
        let (fence, term) = (held.holder.fence, Term::Leased(Arc::clone(&held)));
        let place = held.keeper().keep(Arc::clone(&held), renew_at);
        let unsettled = Unsettled { held, place: Some(place) };
        Self { grant: Grant { operation, fence, attempt, term }, unsettled }
    }

    /// Takes it back before anybody has it. Says nothing about the claim.
    #[cold]
    pub(super) fn revoke(mut self) {
        let _no_longer_kept = self.unsettled.take();
    }

    /// What a handler may know.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// It succeeded: every retry gets this outcome.
    pub fn complete(self, outcome: Outcome) -> impl Future<Output = Settled> {
        self.end(Ended::Completed, outcome)
    }

    /// It failed for good: every retry gets this outcome.
    pub fn fail(self, outcome: Outcome) -> impl Future<Output = Settled> {
        self.end(Ended::Failed, outcome)
    }

    /// It ended in one of the two ways: every retry gets this outcome.
    pub fn end(self, ended: Ended, outcome: Outcome) -> impl Future<Output = Settled> {
        self.settle(match ended {
            Ended::Completed => Settlement::Complete(outcome),
            Ended::Failed => Settlement::Fail(outcome),
        })
    }

    /// Nobody knows what happened.
    pub fn unknown(self) -> impl Future<Output = Settled> {
        self.settle(Settlement::Unknown)
    }

    /// Nothing happened: the key is free. After a takeover, the next owner may try.
    pub fn release(self) -> impl Future<Output = Settled> {
        self.settle(Settlement::Release)
    }

    fn settle(self, settlement: Settlement) -> impl Future<Output = Settled> {
        let Self { grant: Grant { operation, .. }, unsettled } = self;
        let request = unsettled.held.request(settlement);
        let settling = Settling { unsettled, request };
        async move {
            // Tried here first, which spares the common case a change of tasks.
            match settling.unsettled.held.settle(&settling.request).await {
                Ok(settled) => {
                    settling.done();
                    settled
                }
                Err(error) => {
                    tracing::warn!(%operation, %error, "settling goes on");
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

/// A claim that is not settled as far as its permit knows. Dropped, it leaves word in the
/// background that nobody knows.
#[derive(Debug)]
struct Unsettled {
    held: Arc<Held>,
    /// Where it is kept; `None` once it was taken out of there.
    place: Option<Place>,
}

impl Unsettled {
    /// Takes the claim out of its keeper's care. `None` if that was done before, here or by a
    /// drain.
    fn take(&mut self) -> Option<Kept> {
        self.held.keeper().take(&self.held, self.place.take()?)
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.take().into_iter().for_each(background_settlement::abandon);
    }
}

/// A claim that is being settled. Dropped, it goes on in the background, so that a caller that
/// is cancelled meanwhile does not lose what it knew.
#[derive(Debug)]
struct Settling {
    unsettled: Unsettled,
    request: SettleRequest,
}

impl Settling {
    fn done(mut self) {
        let _no_longer_kept = self.unsettled.take();
    }

    /// Goes on in the background, and is awaited for a while.
    async fn go_on(mut self) -> Settled {
        let settle_wait = self.unsettled.held.engine.policy().settle_wait();
        let Some(kept) = self.unsettled.take() else { return Settled::Pending }; // a drain's
        let landed = background_settlement::settle(kept, self.request.clone());
        match timeout(settle_wait, landed).await {
            Ok(Ok(settled)) => settled,
            Ok(Err(_)) | Err(_) => Settled::Pending,
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(kept) = self.unsettled.take() {
            drop(background_settlement::settle(kept, self.request.clone())); // nobody waits
        }
    }
}
