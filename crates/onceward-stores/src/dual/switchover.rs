//! The switchover: the follower becomes the authority.
//!
//! 1. Nothing may lag, and the clocks have to agree.
//! 2. *Closing* is written into the authority record of the authority: calls that begin wait.
//! 3. After one lease no process relies on an earlier revision: whatever was still answered for the
//!    old authority was decided there and is in the follower. The wait is longer by the time that
//!    the old clock is ahead of the new one, so that new fences lie above all old ones.
//! 4. The new authority is written into the authority record of the old one, on top of that very
//!    *closing*. This one compare-and-set is the switchover; if another change came first, there
//!    is none.
//! 5. The record is written into the new authority.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::StoreError;
use tokio::time::{Instant, sleep};

use super::Inner;
use super::authority_lease::Authority;
use super::authority_record::{AuthorityRecord, Phase, Side, Term};
use super::clock_offset::{ClockOffset, clock_offset};
use super::error::SwitchoverError;

/// Largest difference of the clocks: beyond it, leases would change their meaning.
const APART_MAX: Duration = Duration::from_secs(5);
/// Two monotonic clocks differ by less than one part in this many.
const DRIFT: u32 = 20;
/// Added to the measured difference, as clocks are steered.
const MARGIN: Duration = Duration::from_millis(20);

/// A switchover that took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switchover {
    /// The store that decides now.
    pub authority: Side,
    /// How long calls had to wait.
    pub waited: Duration,
}

pub(super) async fn switch_over(inner: &Arc<Inner>) -> Result<Switchover, SwitchoverError> {
    inner.lease.refresh(&inner.replicas).await?;
    let record = inner.lease.record();
    if record.phase == Phase::Closing {
        return Err(SwitchoverError::Underway);
    }
    check_follower(inner, &record).await?;
    check_lag(inner, &record)?;
    let authority = Authority { side: record.authority, term: record.term };
    let ahead = clock_ahead(inner, authority.side).await?;
    let began = Instant::now();
    let closing = close(inner, authority).await?;
    sleep(closing.lease + closing.lease / DRIFT + ahead + MARGIN).await;
    let changed = change(inner, authority, &closing).await;
    if changed.is_err() {
        // If this fails, a later call of any process reopens.
        let _reopened = inner.lease.reopen(&inner.replicas).await;
    }
    changed?;
    Ok(Switchover { authority: authority.side.other(), waited: began.elapsed() })
}

fn check_lag(inner: &Inner, record: &AuthorityRecord) -> Result<(), SwitchoverError> {
    if !record.copied {
        return Err(SwitchoverError::NotCopied);
    }
    let here = inner.lag.count();
    let elsewhere = record.lag_markers.iter().filter(|marker| !inner.lag.owns(marker)).count();
    if here == 0 && record.lag_markers.is_empty() {
        return Ok(());
    }
    Err(SwitchoverError::Lagging { here, elsewhere })
}

/// A follower that has lost the authority record has lost its other records too.
async fn check_follower(inner: &Inner, record: &AuthorityRecord) -> Result<(), SwitchoverError> {
    if inner.replicas.read(record.authority.other()).await?.is_some() {
        return Ok(());
    }
    inner.set_not_copied().await?;
    Err(SwitchoverError::NotCopied)
}

/// Measures how far the old clock is ahead.
async fn clock_ahead(inner: &Inner, old: Side) -> Result<Duration, SwitchoverError> {
    let (one, other) = (inner.replicas.store(old), inner.replicas.store(old.other()));
    let ClockOffset { max, min } = clock_offset(&**one, &**other, &inner.clock).await?;
    let apart = Duration::from_millis(max.abs().min(min.abs()).unsigned_abs());
    if apart > APART_MAX {
        return Err(SwitchoverError::ClocksApart { apart, max: APART_MAX });
    }
    Ok(Duration::from_millis(u64::try_from(max).unwrap_or(0)))
}

async fn close(inner: &Inner, authority: Authority) -> Result<AuthorityRecord, SwitchoverError> {
    let Authority { side, term } = authority;
    let closing = inner.replicas.amend(side, term, |record| {
        let serving = record.phase == Phase::Serving;
        serving.then(|| AuthorityRecord { phase: Phase::Closing, ..record.clone() })
    });
    let observed = closing.await?.map_err(|_| SwitchoverError::Underway)?;
    let record = observed.record.clone();
    inner.lease.learn(observed);
    Ok(record)
}

async fn change(
    inner: &Inner,
    from: Authority,
    closing: &AuthorityRecord,
) -> Result<(), SwitchoverError> {
    let to = from.side.other();
    let changed = inner.replicas.amend(from.side, from.term, |record| {
        let ours = record.revision == closing.revision && check_lag(inner, record).is_ok();
        ours.then(|| AuthorityRecord {
            authority: to,
            term: Term(record.revision + 1),
            phase: Phase::Serving,
            ..record.clone()
        })
    });
    let observed = match changed.await? {
        Ok(observed) => observed,
        Err(other) => {
            check_lag(inner, &other)?;
            return Err(SwitchoverError::Underway);
        }
    };
    tracing::info!(authority = ?to, "the authority has changed");
    // The record in the new authority is the one that counts: the next call reads it there.
    write_to(inner, to, &observed.record).await?;
    inner.lease.refresh(&inner.replicas).await?;
    Ok(())
}

async fn write_to(inner: &Inner, to: Side, record: &AuthorityRecord) -> Result<(), StoreError> {
    let _kept_or_written = inner.replicas.write(to, record).await?;
    Ok(())
}
