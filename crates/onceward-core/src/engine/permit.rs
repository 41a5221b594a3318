//! The right to run an operation, and the duty to say what came of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::held::Held;
use super::keeper::{Kept, Place};
use super::leftover;
use super::life::Life;
use crate::ids::{DownstreamKey, Fence, OperationId};
use crate::outcome::Outcome;
use crate::store::{SettleRequest, Settlement, StoreError};

/// What a handler may know about the grant it runs under. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grant {
    operation: OperationId,
    fence: Fence,
    attempt: u32,
    life: Arc<Life>,
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

/// How long a grant without a lease lasts: longer than any process.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Grant {
    /// A grant that needs no lease, because what is done under it counts only together with
    /// its settlement: in one transaction. It is never lost.
    pub fn without_lease(operation: OperationId, fence: Fence, attempt: u32) -> Self {
        let life = Arc::new(Life::until(Instant::now() + FOR_EVER));
        Self { operation, fence, attempt, life }
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
        self.life.deadline()
    }

    /// Whether effects may still be begun. Ask before each one: a process that was stopped
    /// for a while does not notice by itself.
    pub fn check(&self) -> Result<(), Lost> {
        self.life.check()
    }

    /// Returns once effects may no longer be begun.
    pub async fn lost(&mut self) -> Lost {
        self.life.lost().await
    }
}

/// The right to run an operation. The lease is renewed in the background as long as the
/// permit is held.
///
/// Dropping it says *nobody knows*: the record becomes unknown. Only
/// [`release`](Permit::release) says that nothing happened. Settling survives being
/// dropped: once one of the four was called and polled, it is carried through.
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
        let (fence, life) = (held.holder.fence, Arc::clone(&held.life));
        let place = held.keeper.keep(Arc::clone(&held), renew_at);
        let unsettled = Unsettled { held, place, request: None };
        unsettled.heed_drain();
        Self { grant: Grant { operation, fence, attempt, life }, unsettled }
    }

    /// What a handler may know.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// It succeeded: every retry gets this outcome.
    pub async fn complete(self, outcome: Outcome) -> Settled {
        self.settle(Settlement::Complete(outcome)).await
    }

    /// It failed for good: every retry gets this outcome.
    pub async fn fail(self, outcome: Outcome) -> Settled {
        self.settle(Settlement::Fail(outcome)).await
    }

    /// Nobody knows what happened.
    pub async fn unknown(self) -> Settled {
        self.settle(Settlement::Unknown).await
    }

    /// Nothing happened: the key is free. After a takeover, the next owner may try.
    pub async fn release(self) -> Settled {
        self.settle(Settlement::Release).await
    }

    async fn settle(self, settlement: Settlement) -> Settled {
        let Self { grant, mut unsettled } = self;
        // Tried here first, which spares the common case a change of tasks.
        match unsettled.attempt(settlement).await {
            Ok(settled) => {
                unsettled.done();
                settled
            }
            Err(error) => {
                tracing::warn!(operation = %grant.operation, %error, "settling goes on");
                let settle_wait = unsettled.held.engine.policy.settle_wait();
                match timeout(settle_wait, unsettled.hand_over()).await {
                    Ok(Some(settled)) => settled,
                    Ok(None) | Err(_) => Settled::Pending,
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

/// A claim that is not settled as far as its permit knows: dropped, it goes on in the
/// background, so that a caller that is cancelled while it settles does not lose what it
/// knew, and one that is cancelled before leaves word that nobody knows.
#[derive(Debug)]
struct Unsettled {
    held: Arc<Held>,
    place: Place,
    request: Option<SettleRequest>,
}

impl Unsettled {
    async fn attempt(&mut self, settlement: Settlement) -> Result<Settled, StoreError> {
        let request = self.request.insert(self.held.request(settlement));
        self.held.settle(request).await
    }

    fn done(self) {
        let _no_longer_kept = self.take();
    }

    /// Goes on in the background. `None` if a drain came first.
    async fn hand_over(mut self) -> Option<Settled> {
        let (kept, request) = (self.take()?, self.request.take()?);
        leftover::settle(kept, request).await.ok()
    }

    /// A drain whose time was up before this was kept has not seen it.
    fn heed_drain(&self) {
        if self.held.engine.shared.drain.is_cut_off() {
            self.take().into_iter().for_each(leftover::cut_off);
        }
    }

    /// Takes the claim out of its keeper's care. `None` if a drain did so before.
    fn take(&self) -> Option<Kept> {
        self.held.keeper.take(&self.held, self.place)
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let Some(kept) = self.take() else { return };
        match self.request.take() {
            Some(request) => drop(leftover::settle(kept, request)), // nobody waits
            None => leftover::abandon(kept),
        }
    }
}
