//! What a process knows of who decides, and for how long it may rely on that.
//!
//! A charter that was read counts for its lease, from the moment it was *asked* for, on this
//! process's monotonic clock. Whoever changes the authority first writes *closing* and waits for
//! that long: by then no process relies on the old charter any more, however late it is.

use std::time::Duration;

use onceward_core::{Effect, StoreError};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::charter::{Charter, Phase, Reign, Side};
use super::error::DualProblem;
use super::seats::{Heard, Seats};

/// How often a call looks whether a change of the authority is over.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// After so long, and some leases, whoever closed is taken for dead.
const CLOSING_MAX: Duration = Duration::from_secs(10);
/// How often a charter sends to the other store, and that one back.
const HOPS: usize = 4;

/// Who decides, under which a call began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) side: Side,
    pub(super) reign: Reign,
}

/// What is known of the charter.
pub(super) struct Reigns {
    known: Mutex<Known>,
}

struct Known {
    charter: Charter,
    /// Until then calls may begin under it, and count.
    until: Instant,
    /// Since when this very term is closing.
    closing_since: Instant,
    /// Whether somebody looks already, with the lease still good.
    looking: bool,
}

impl Reigns {
    /// Nothing counts yet: a charter to begin to ask with.
    pub(super) fn unsure(charter: Charter) -> Self {
        let now = Instant::now();
        let known = Known { charter, until: now, closing_since: now, looking: false };
        Self { known: Mutex::new(known) }
    }

    pub(super) fn charter(&self) -> Charter {
        self.known.lock().charter.clone()
    }

    /// Takes in what was heard, unless something later is known.
    pub(super) fn learn(&self, heard: Heard) {
        let mut known = self.known.lock();
        let Heard { charter, asked } = heard;
        if charter.term < known.charter.term {
            return;
        }
        let newer = charter.term > known.charter.term;
        let until = match charter.phase {
            Phase::Serving => asked + charter.lease,
            Phase::Closing => asked,
        };
        known.until = if newer { until } else { known.until.max(until) };
        if newer {
            known.closing_since = Instant::now();
            known.charter = charter;
        }
    }

    /// Under whom a call may begin; waits while the authority changes.
    pub(super) async fn begin(
        &self,
        seats: &Seats,
        patience: Duration,
    ) -> Result<Authority, StoreError> {
        let give_up = Instant::now() + patience;
        loop {
            if let Some(authority) = self.sure() {
                self.look_ahead(seats).await;
                return Ok(authority);
            }
            self.look(seats).await?;
            if self.sure().is_some() {
                continue;
            }
            if self.is_forsaken() {
                self.reopen(seats).await?;
            } else if Instant::now() >= give_up {
                return Err(DualProblem::Closing.error(Effect::NotApplied));
            } else {
                sleep(LOOK_AGAIN).await;
            }
        }
    }

    /// Who decides, as far as is known: for reading only.
    pub(super) async fn reading(&self, seats: &Seats) -> Result<Side, StoreError> {
        if self.sure().is_none() {
            self.look(seats).await?;
        }
        Ok(self.known.lock().charter.authority)
    }

    /// Whether what an authority has just decided was decided under its reign, before any
    /// change of it was announced.
    pub(super) async fn still_serving(
        &self,
        seats: &Seats,
        it: Authority,
    ) -> Result<(), StoreError> {
        self.still(seats, it, |charter| charter.phase == Phase::Serving).await
    }

    /// Whether all of a call, the follower's part included, was over under that reign.
    pub(super) async fn still_reigning(
        &self,
        seats: &Seats,
        it: Authority,
    ) -> Result<(), StoreError> {
        self.still(seats, it, |_| true).await
    }

    async fn still(
        &self,
        seats: &Seats,
        it: Authority,
        also: impl Fn(&Charter) -> bool + Send,
    ) -> Result<(), StoreError> {
        if self.sure() == Some(it) {
            return Ok(());
        }
        let heard = seats.read(it.side).await?;
        let moved = || DualProblem::Moved.error(Effect::MayHaveBeenApplied);
        let heard = heard.filter(|heard| heard.charter.reign == it.reign).ok_or_else(moved)?;
        let counts = also(&heard.charter);
        self.learn(heard);
        if counts { Ok(()) } else { Err(moved()) }
    }

    /// Who decides, if that was asked recently enough.
    fn sure(&self) -> Option<Authority> {
        let known = self.known.lock();
        let Charter { authority, reign, phase, .. } = known.charter;
        let sure = phase == Phase::Serving && Instant::now() < known.until;
        sure.then_some(Authority { side: authority, reign })
    }

    /// Asks before the lease is over, one call for all.
    async fn look_ahead(&self, seats: &Seats) {
        {
            let mut known = self.known.lock();
            let soon = Instant::now() + known.charter.lease / 2;
            if known.looking || soon < known.until {
                return;
            }
            known.looking = true;
        }
        let _done = Looking(&self.known);
        // A failure is met by whoever finds the lease over.
        let _unheard = self.look(seats).await;
    }

    /// Asks the authority who decides. Where it sends to the other store, that one is told too,
    /// in case whoever changed the authority did not come to it. Where it cannot be asked, the
    /// other one may say that it decides itself: only its own charter can end that.
    pub(super) async fn look(&self, seats: &Seats) -> Result<(), StoreError> {
        let mut side = self.known.lock().charter.authority;
        for _ in 0..HOPS {
            let heard = match seats.read(side).await {
                Ok(Some(heard)) => heard,
                Ok(None) => {
                    return self.look_at(seats, side.other(), DualProblem::Lost.into()).await;
                }
                Err(error) => return self.look_at(seats, side.other(), error).await,
            };
            if heard.charter.authority == side {
                self.learn(heard);
                return Ok(());
            }
            side = heard.charter.authority;
            let _kept_or_written = seats.write(side, &heard.charter).await?;
        }
        Err(DualProblem::Contended.error(Effect::NotApplied))
    }

    async fn look_at(
        &self,
        seats: &Seats,
        side: Side,
        error: StoreError,
    ) -> Result<(), StoreError> {
        match seats.read(side).await {
            Ok(Some(heard)) if heard.charter.authority == side => {
                self.learn(heard);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Whether the authority has been about to change for so long that nobody can be at it.
    fn is_forsaken(&self) -> bool {
        let known = self.known.lock();
        let closing = known.charter.phase == Phase::Closing;
        closing && known.closing_since.elapsed() > CLOSING_MAX + known.charter.lease * 4
    }

    /// Ends a change that did not come about. Whoever was at it finds another term.
    pub(super) async fn reopen(&self, seats: &Seats) -> Result<(), StoreError> {
        let Charter { authority, reign, term, .. } = self.charter();
        let reopened = seats.amend(authority, reign, |charter| {
            let forsaken = charter.term == term && charter.phase == Phase::Closing;
            forsaken.then(|| Charter { phase: Phase::Serving, ..charter.clone() })
        });
        if let Ok(heard) = reopened.await? {
            tracing::warn!("a change of the authority was given up");
            self.learn(heard);
        }
        Ok(())
    }
}

/// Somebody looks, until this is dropped.
struct Looking<'a>(&'a Mutex<Known>);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.lock().looking = false;
    }
}

impl From<DualProblem> for StoreError {
    fn from(problem: DualProblem) -> Self {
        problem.error(Effect::NotApplied)
    }
}
