//! What a permit leaves undone, done in the background.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::claim_handle::Held;
use super::lease_renewer::Kept;
use super::permit::{Lost, Settled};
use crate::store::{Lapsed, SettleRequest, Settlement};

/// A claim whose permit is gone, or does not count any more, and that is not settled.
pub(super) struct Leftover {
    held: Arc<Held>,
    renew_at: Instant,
    backoff: Backoff,
    /// A drain waits for it.
    _kept: Kept,
}

/// A settlement that did not land at once goes on in the background, as long as patience
/// lasts and no drain cuts it off.
#[cold]
pub(super) fn settle(kept: Kept, request: SettleRequest) -> oneshot::Receiver<Settled> {
    let (landed, reply) = oneshot::channel();
    let runtime = kept.held.keeper().runtime().clone();
    runtime.spawn(Leftover::from(kept).settle(request, landed));
    reply
}

/// A permit was dropped without a word: nobody knows what happened.
#[cold]
pub(super) fn abandon(kept: Kept) {
    mark_unknown(kept, Patience::UntilLapse);
}

/// A drain's time is up: whatever the handler does from now on, nobody waits for it.
#[cold]
pub(super) fn cut_off(kept: Kept) {
    kept.held.life.lose(Lost::Drained);
    mark_unknown(kept, Patience::None);
}

/// For how long to go on where an attempt fails.
#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    /// From then on the record counts as unknown anyway.
    UntilLapse,
}

/// Says at once what would be the case anyway when the lease lapses. Where a lapse means
/// takeover, that is nothing: unknown would stop the next owner.
fn mark_unknown(kept: Kept, patience: Patience) {
    if kept.held.engine.policy().lapsed() == Lapsed::Takeover {
        return;
    }
    let runtime = kept.held.keeper().runtime().clone();
    runtime.spawn(Leftover::from(kept).mark_unknown(patience));
}

impl From<Kept> for Leftover {
    fn from(kept: Kept) -> Self {
        let held = Arc::clone(&kept.held);
        // A renewal that is under way may come to nothing.
        let renew_at = kept.renew_at.unwrap_or_else(|| held.soon());
        Self { held, renew_at, backoff: Backoff::default(), _kept: kept }
    }
}

impl Leftover {
    async fn settle(mut self, request: SettleRequest, landed: oneshot::Sender<Settled>) {
        let held = Arc::clone(&self.held);
        tokio::select! {
            biased;
            settled = self.carry_through(&request) => {
                let _nobody_waits = landed.send(settled);
            }
            () = held.engine.shared().drain.cut_off() => {}
        }
    }

    /// Tries a settlement again and again, renewing the lease meanwhile.
    async fn carry_through(&mut self, request: &SettleRequest) -> Settled {
        let give_up = Instant::now() + self.held.engine.policy().settle_patience();
        loop {
            if Instant::now() >= self.renew_at && !self.held.life.is_lost() {
                self.renew().await;
            }
            match self.held.settle(request).await {
                Ok(settled) => return settled,
                Err(error) if Instant::now() >= give_up => {
                    tracing::error!(%error, record = ?self.held.id, "left unknown: could not settle");
                    return Settled::Pending;
                }
                Err(error) => tracing::debug!(%error, "settling again soon"),
            }
            self.pause().await;
        }
    }

    async fn renew(&mut self) {
        match self.held.renew().await {
            Ok(renew_at) => self.renew_at = renew_at,
            Err(lost) => self.held.life.lose(lost),
        }
    }

    async fn mark_unknown(mut self, patience: Patience) {
        let request = self.held.request(Settlement::Unknown);
        loop {
            match self.held.settle(&request).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "marking unknown"),
            }
            match patience {
                Patience::UntilLapse if Instant::now() < self.held.life.deadline() => {
                    self.pause().await;
                }
                Patience::UntilLapse | Patience::None => return,
            }
        }
    }

    async fn pause(&mut self) {
        self.backoff.pause(&*self.held.engine.shared().ambient).await;
    }
}
