//! Changing the authority.
//!
//! 1. Nothing may be behind, and the clocks have to agree.
//! 2. *Closing* is written into the charter of the authority: calls that begin wait.
//! 3. One lease later no process relies on an earlier charter: whatever any of them still answers
//!    for the old authority was decided there and is in the follower. As much longer as the old
//!    clock is ahead of the new one, so that new fences lie above all of the old ones.
//! 4. The new authority is written into the charter of the old one, on top of that very *closing*:
//!    this one compare-and-set is the change. If anybody got ahead of it there is none.
//! 5. The new authority is told.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::StoreError;
use tokio::time::{Instant, sleep};

use super::Inner;
use super::charter::{Charter, Phase, Reign, Side};
use super::clocks::{self, Ahead};
use super::error::FlipError;
use super::reigns::Authority;

/// More than this, and leases mean something else in the other store.
const APART_MAX: Duration = Duration::from_secs(5);
/// Two monotonic clocks do not differ by as much of a lease as one in so many.
const DRIFT: u32 = 20;
/// Beyond what was measured: clocks are steered.
const MARGIN: Duration = Duration::from_millis(20);

/// A change of the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flipped {
    /// Which store decides now.
    pub authority: Side,
    /// For how long calls had to wait.
    pub waited: Duration,
}

pub(super) async fn flip(inner: &Arc<Inner>) -> Result<Flipped, FlipError> {
    inner.reigns.look(&inner.seats).await?;
    let charter = inner.reigns.charter();
    if charter.phase == Phase::Closing {
        return Err(FlipError::Underway);
    }
    check_follower(inner, &charter).await?;
    check_behind(inner, &charter)?;
    let authority = Authority { side: charter.authority, reign: charter.reign };
    let ahead = clocks_apart(inner, authority.side).await?;
    let began = Instant::now();
    let closing = close(inner, authority).await?;
    sleep(closing.lease + closing.lease / DRIFT + ahead + MARGIN).await;
    let moved = change(inner, authority, &closing).await;
    if moved.is_err() {
        // Whoever comes by after a while does so too.
        let _reopened = inner.reigns.reopen(&inner.seats).await;
    }
    moved?;
    Ok(Flipped { authority: authority.side.other(), waited: began.elapsed() })
}

fn check_behind(inner: &Inner, charter: &Charter) -> Result<(), FlipError> {
    if !charter.copied {
        return Err(FlipError::NotCopied);
    }
    let here = inner.behind.count();
    let elsewhere = charter.troubled.iter().filter(|note| !inner.behind.has(note)).count();
    if here == 0 && charter.troubled.is_empty() {
        return Ok(());
    }
    Err(FlipError::Behind { here, elsewhere })
}

/// A follower that has lost the charter has lost its records.
async fn check_follower(inner: &Inner, charter: &Charter) -> Result<(), FlipError> {
    if inner.seats.read(charter.authority.other()).await?.is_some() {
        return Ok(());
    }
    inner.not_copied().await?;
    Err(FlipError::NotCopied)
}

/// How far the old clock is ahead.
async fn clocks_apart(inner: &Inner, old: Side) -> Result<Duration, FlipError> {
    let (one, other) = (inner.seats.store(old), inner.seats.store(old.other()));
    let Ahead { most, least } = clocks::ahead(&**one, &**other, &inner.clock).await?;
    let apart = Duration::from_millis(most.abs().min(least.abs()).unsigned_abs());
    if apart > APART_MAX {
        return Err(FlipError::ClocksApart { apart, max: APART_MAX });
    }
    Ok(Duration::from_millis(u64::try_from(most).unwrap_or(0)))
}

async fn close(inner: &Inner, authority: Authority) -> Result<Charter, FlipError> {
    let Authority { side, reign } = authority;
    let closing = inner.seats.amend(side, reign, |charter| {
        let serving = charter.phase == Phase::Serving;
        serving.then(|| Charter { phase: Phase::Closing, ..charter.clone() })
    });
    let heard = closing.await?.map_err(|_| FlipError::Underway)?;
    let charter = heard.charter.clone();
    inner.reigns.learn(heard);
    Ok(charter)
}

async fn change(inner: &Inner, from: Authority, closing: &Charter) -> Result<(), FlipError> {
    let to = from.side.other();
    let moved = inner.seats.amend(from.side, from.reign, |charter| {
        let ours = charter.term == closing.term && check_behind(inner, charter).is_ok();
        ours.then(|| Charter {
            authority: to,
            reign: Reign(charter.term + 1),
            phase: Phase::Serving,
            ..charter.clone()
        })
    });
    let heard = match moved.await? {
        Ok(heard) => heard,
        Err(other) => {
            check_behind(inner, &other)?;
            return Err(FlipError::Underway);
        }
    };
    tracing::info!(authority = ?to, "the authority has changed");
    // What the new one has is what counts: it is asked for there before the next call.
    tell(inner, to, &heard.charter).await?;
    inner.reigns.look(&inner.seats).await?;
    Ok(())
}

async fn tell(inner: &Inner, to: Side, charter: &Charter) -> Result<(), StoreError> {
    let _kept_or_written = inner.seats.write(to, charter).await?;
    Ok(())
}
