//! The right to run an operation, and the duty to say what came of it.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::Engine;
use super::claiming::timed;
use super::keeper::{self, Handover};
use crate::ids::{DownstreamKey, Fence, Holder, OperationId};
use crate::intent::RecordId;
use crate::outcome::Outcome;
use crate::store::{Fenced, SettleRequest, Settlement, StoreError};

/// What a handler may know about the grant it runs under. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grant {
    operation: OperationId,
    fence: Fence,
    attempt: u32,
    life: watch::Receiver<Life>,
}

/// How long the owner may count on its lease, by its own monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) deadline: Instant,
    pub(super) lost: Option<Lost>,
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

impl Grant {
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
        self.life.borrow().deadline
    }

    /// Whether effects may still be begun. Ask before each one: a process that was stopped
    /// for a while does not notice by itself.
    pub fn check(&self) -> Result<(), Lost> {
        let life = *self.life.borrow();
        match life.lost {
            Some(lost) => Err(lost),
            None if Instant::now() >= life.deadline => Err(Lost::Lapsed),
            None => Ok(()),
        }
    }

    /// Returns once effects may no longer be begun.
    pub async fn lost(&mut self) -> Lost {
        loop {
            if let Err(lost) = self.check() {
                return lost;
            }
            let deadline = self.deadline();
            tokio::select! {
                biased;
                changed = self.life.changed() => {
                    if changed.is_err() {
                        // Nobody renews any more: what is left is the deadline.
                        sleep_until(deadline).await;
                    }
                }
                () = sleep_until(deadline) => {}
            }
        }
    }
}

/// A claim that was granted.
pub(super) struct Held {
    pub(super) engine: Engine,
    pub(super) id: RecordId,
    pub(super) holder: Holder,
}

impl Held {
    pub(super) async fn settle(&self, settlement: &Settlement) -> Result<Settled, StoreError> {
        let request = SettleRequest {
            id: self.id,
            holder: self.holder,
            settlement: settlement.clone(),
            retention: self.engine.policy.retention(),
        };
        let fenced = timed(&self.engine, self.engine.shared.store.settle(&request)).await?;
        self.engine.shared.waiters.wake(&self.id);
        Ok(match fenced {
            Fenced::Applied(()) => Settled::Durable,
            Fenced::Stale => Settled::Superseded,
            Fenced::Missing => Settled::Missing,
        })
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
    held: Arc<Held>,
    keeper: oneshot::Sender<Handover>,
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
    pub(super) fn issue(
        held: Arc<Held>,
        operation: OperationId,
        attempt: u32,
        deadline: Instant,
    ) -> Self {
        let (alive, life) = watch::channel(Life { deadline, lost: None });
        let grant = Grant { operation, fence: held.holder.fence, attempt, life };
        let keeper = keeper::spawn(Arc::clone(&held), alive);
        Self { grant, held, keeper }
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
        let settle_wait = self.held.engine.policy.settle_wait();
        let unsettled = Unsettled { keeper: Some(self.keeper), settlement: Some(settlement) };
        // Tried here first, which spares the common case a change of tasks.
        match unsettled.attempt(&self.held).await {
            Ok(settled) => {
                unsettled.done();
                settled
            }
            Err(error) => {
                tracing::warn!(operation = %self.grant.operation, %error, "settling goes on");
                let landed = unsettled.hand_over();
                match timeout(settle_wait, landed).await {
                    Ok(Ok(settled)) => settled,
                    Ok(Err(_)) | Err(_) => Settled::Pending,
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

/// A settlement that has not landed: dropped, it goes to the keeper, so that a caller that
/// is cancelled while it settles does not lose what it knew.
struct Unsettled {
    keeper: Option<oneshot::Sender<Handover>>,
    settlement: Option<Settlement>,
}

impl Unsettled {
    async fn attempt(&self, held: &Held) -> Result<Settled, StoreError> {
        match &self.settlement {
            Some(settlement) => held.settle(settlement).await,
            None => Ok(Settled::Durable),
        }
    }

    fn done(mut self) {
        self.settlement = None;
        if let Some(keeper) = self.keeper.take() {
            let _gone = keeper.send(Handover::Done);
        }
    }

    fn hand_over(mut self) -> oneshot::Receiver<Settled> {
        self.send()
    }

    fn send(&mut self) -> oneshot::Receiver<Settled> {
        let (landed, reply) = oneshot::channel();
        if let (Some(keeper), Some(settlement)) = (self.keeper.take(), self.settlement.take()) {
            let _gone = keeper.send(Handover::Settle(settlement, landed));
        }
        reply
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let _nobody_waits = self.send();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("id", &self.id).field("holder", &self.holder).finish()
    }
}
