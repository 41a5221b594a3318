//! The task behind a permit: renews the lease, and carries settlements through.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::backoff::Backoff;
use super::claiming::timed;
use super::drain::Live;
use super::permit::{Held, Life, Lost, Settled};
use crate::store::{Fenced, Lapsed, RenewRequest, Settlement};

/// What a permit tells its keeper at the end. A permit that is dropped tells nothing, and
/// the keeper marks the record unknown.
#[derive(Debug)]
pub(super) enum Handover {
    /// The settlement has landed.
    Done,
    /// The settlement must be tried until it lands.
    Settle(Settlement, oneshot::Sender<Settled>),
}

/// Starts keeping a granted claim.
pub(super) fn spawn(held: Arc<Held>, life: watch::Sender<Life>) -> oneshot::Sender<Handover> {
    let (permit, handover) = oneshot::channel();
    let live = held.engine.shared.drain.enter();
    let cut = held.engine.shared.drain.cut();
    // Counted from when the claim was sent: its answer may have taken most of the lease.
    let policy = &held.engine.policy;
    let left_when_due = policy.lease() - policy.drift() - policy.renew_every();
    let renew_at = life.borrow().deadline - left_when_due;
    let keeper = Keeper { held, life, renew_at, backoff: Backoff::default(), _live: live };
    tokio::spawn(keeper.run(handover, cut));
    permit
}

struct Keeper {
    held: Arc<Held>,
    life: watch::Sender<Life>,
    renew_at: Instant,
    backoff: Backoff,
    _live: Live,
}

impl Keeper {
    async fn run(
        mut self,
        mut handover: oneshot::Receiver<Handover>,
        mut cut: watch::Receiver<bool>,
    ) {
        loop {
            let renewing = self.life.borrow().lost.is_none();
            tokio::select! {
                biased;
                handed = &mut handover => return self.finish(handed, cut).await,
                () = cut_off(&mut cut) => {
                    self.lose(Lost::Drained);
                    return self.mark_unknown(Instant::now()).await;
                }
                () = sleep_until(self.renew_at), if renewing => self.renew().await,
            }
        }
    }

    async fn finish(
        &mut self,
        handed: Result<Handover, oneshot::error::RecvError>,
        mut cut: watch::Receiver<bool>,
    ) {
        match handed {
            Ok(Handover::Done) => {}
            Ok(Handover::Settle(settlement, landed)) => tokio::select! {
                biased;
                settled = self.carry_through(&settlement) => {
                    let _nobody_waits = landed.send(settled);
                }
                () = cut_off(&mut cut) => {}
            },
            Err(_permit_dropped) => {
                let lapses_at = self.life.borrow().deadline;
                self.mark_unknown(lapses_at).await;
            }
        }
    }

    /// One renewal; on failure the next one soon, until the deadline is past.
    async fn renew(&mut self) {
        let policy = &self.held.engine.policy;
        let store = &self.held.engine.shared.store;
        let sent = Instant::now();
        let Held { id, holder, .. } = *self.held;
        let request = RenewRequest { id, holder, lease: policy.lease() };
        match timed(&self.held.engine, store.renew(&request)).await {
            Ok(Fenced::Applied(_)) => {
                let deadline = sent + policy.lease() - policy.drift();
                self.renew_at = sent + policy.renew_every();
                self.life.send_replace(Life { deadline, lost: None });
            }
            Ok(Fenced::Stale) => self.lose(Lost::Stale),
            Ok(Fenced::Missing) => {
                tracing::error!(record = ?self.held.id, "the store has lost a running record");
                self.lose(Lost::Missing);
            }
            Err(error) if Instant::now() >= self.life.borrow().deadline => {
                tracing::warn!(%error, "the lease could not be renewed and has lapsed");
                self.lose(Lost::Lapsed);
            }
            Err(error) => {
                tracing::debug!(%error, "renewing again soon");
                self.renew_at = Instant::now() + policy.renew_every() / 4;
            }
        }
    }

    /// Tries a settlement again and again, renewing the lease meanwhile.
    async fn carry_through(&mut self, settlement: &Settlement) -> Settled {
        let give_up = Instant::now() + self.held.engine.policy.settle_patience();
        loop {
            if Instant::now() >= self.renew_at && self.life.borrow().lost.is_none() {
                self.renew().await;
            }
            match self.held.settle(settlement).await {
                Ok(settled) => return settled,
                Err(error) if Instant::now() >= give_up => {
                    tracing::error!(%error, record = ?self.held.id, "left unknown: could not settle");
                    return Settled::Pending;
                }
                Err(error) => tracing::debug!(%error, "settling again soon"),
            }
            self.backoff.pause(&*self.held.engine.shared.ambient).await;
        }
    }

    /// Says at once what would be the case anyway when the lease lapses. Where a lapse
    /// means takeover, that is nothing: unknown would stop the next owner.
    async fn mark_unknown(&mut self, give_up: Instant) {
        if self.held.engine.policy.lapsed() == Lapsed::Takeover {
            return;
        }
        loop {
            match self.held.settle(&Settlement::Unknown).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "marking unknown"),
            }
            if Instant::now() >= give_up {
                return;
            }
            self.backoff.pause(&*self.held.engine.shared.ambient).await;
        }
    }

    fn lose(&self, lost: Lost) {
        self.life.send_modify(|life| life.lost = Some(lost));
    }
}

/// Returns when the drain's limit is reached.
async fn cut_off(cut: &mut watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        // The engine is gone, and nobody will cut anything off.
        std::future::pending::<()>().await;
    }
}
