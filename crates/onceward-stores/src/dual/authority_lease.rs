//! How long this process may rely on what it has read of the authority.
//!
//! An authority record that was read counts for its lease, from the moment the read was *sent*,
//! on this process's monotonic clock. A switchover first writes *closing* and waits for that
//! lease: then no process relies on the old record any more, however late it is.

use std::time::Duration;

use onceward_core::{Effect, StoreError};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::authority_record::{AuthorityRecord, Phase, Side, Term};
use super::error::DualProblem;
use super::replicas::{Observed, Replicas};

/// How often a waiting call checks whether a switchover is over.
const POLL_EVERY: Duration = Duration::from_millis(25);
/// After this time and four leases, the process that started a switchover is taken for dead.
const CLOSING_MAX: Duration = Duration::from_secs(10);
/// How often one refresh follows an authority record from one store to the other.
const HOPS: usize = 4;

/// The authority under which a call began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) side: Side,
    pub(super) term: Term,
}

/// The authority record as this process knows it, and its lease.
pub(super) struct AuthorityLease {
    state: Mutex<State>,
}

struct State {
    record: AuthorityRecord,
    /// Until then calls may begin under the record, and count.
    until: Instant,
    /// When this process first saw this revision, for a record that is closing.
    closing_since: Instant,
    /// True while a call refreshes the lease before it ends.
    refreshing: bool,
}

impl AuthorityLease {
    /// A lease that is over: the record says only which store to ask first.
    pub(super) fn expired(record: AuthorityRecord) -> Self {
        let now = Instant::now();
        let state = State { record, until: now, closing_since: now, refreshing: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn record(&self) -> AuthorityRecord {
        self.state.lock().record.clone()
    }

    /// Takes over what was read, unless a later revision is known.
    pub(super) fn learn(&self, observed: Observed) {
        let mut state = self.state.lock();
        let Observed { record, asked } = observed;
        if record.revision < state.record.revision {
            return;
        }
        let newer = record.revision > state.record.revision;
        let until = match record.phase {
            Phase::Serving => asked + record.lease,
            Phase::Closing => asked,
        };
        state.until = if newer { until } else { state.until.max(until) };
        if newer {
            state.closing_since = Instant::now();
            state.record = record;
        }
    }

    /// Returns the authority under which a call may begin. Waits during a switchover.
    pub(super) async fn begin(
        &self,
        replicas: &Replicas,
        limit: Duration,
    ) -> Result<Authority, StoreError> {
        let give_up = Instant::now() + limit;
        loop {
            if let Some(authority) = self.current() {
                self.refresh_ahead(replicas).await;
                return Ok(authority);
            }
            self.refresh(replicas).await?;
            if self.current().is_some() {
                continue;
            }
            if self.is_abandoned() {
                self.reopen(replicas).await?;
            } else if Instant::now() >= give_up {
                return Err(DualProblem::SwitchoverUnderway.error(Effect::NotApplied));
            } else {
                sleep(POLL_EVERY).await;
            }
        }
    }

    /// Returns the authority as far as it is known: for reads only.
    pub(super) async fn for_reading(&self, replicas: &Replicas) -> Result<Side, StoreError> {
        if self.current().is_none() {
            self.refresh(replicas).await?;
        }
        Ok(self.state.lock().record.authority)
    }

    /// Succeeds if what the authority has just decided was decided in its term, before a
    /// switchover was announced.
    pub(super) async fn confirm_serving(
        &self,
        replicas: &Replicas,
        authority: Authority,
    ) -> Result<(), StoreError> {
        self.confirm(replicas, authority, |record| record.phase == Phase::Serving).await
    }

    /// Succeeds if all of a call, replication included, ended in that term.
    pub(super) async fn confirm_term(
        &self,
        replicas: &Replicas,
        authority: Authority,
    ) -> Result<(), StoreError> {
        self.confirm(replicas, authority, |_| true).await
    }

    async fn confirm(
        &self,
        replicas: &Replicas,
        authority: Authority,
        also: impl Fn(&AuthorityRecord) -> bool + Send,
    ) -> Result<(), StoreError> {
        if self.current() == Some(authority) {
            return Ok(());
        }
        let observed = replicas.read(authority.side).await?;
        let changed = || DualProblem::AuthorityChanged.error(Effect::MayHaveBeenApplied);
        let observed =
            observed.filter(|it| it.record.term == authority.term).ok_or_else(changed)?;
        let counts = also(&observed.record);
        self.learn(observed);
        if counts { Ok(()) } else { Err(changed()) }
    }

    /// The authority, while the lease lasts and no switchover is announced.
    fn current(&self) -> Option<Authority> {
        let state = self.state.lock();
        let AuthorityRecord { authority, term, phase, .. } = state.record;
        let counts = phase == Phase::Serving && Instant::now() < state.until;
        counts.then_some(Authority { side: authority, term })
    }

    /// Refreshes the lease before it is over, one call for all.
    async fn refresh_ahead(&self, replicas: &Replicas) {
        {
            let mut state = self.state.lock();
            let soon = Instant::now() + state.record.lease / 2;
            if state.refreshing || soon < state.until {
                return;
            }
            state.refreshing = true;
        }
        let _done = Refreshing(&self.state);
        // Ignored: the next call with an expired lease retries and reports it.
        let _ignored = self.refresh(replicas).await;
    }

    /// Reads the authority record from the authority. If that names the other store, the record
    /// is written there too, as a switchover may have died before it did so. If the authority
    /// does not answer, the other store is believed if it names itself: only its own record can
    /// end its term.
    pub(super) async fn refresh(&self, replicas: &Replicas) -> Result<(), StoreError> {
        let mut side = self.state.lock().record.authority;
        for _ in 0..HOPS {
            let observed = match replicas.read(side).await {
                Ok(Some(observed)) => observed,
                Ok(None) => {
                    let lost = DualProblem::Lost.into();
                    return self.refresh_from_other(replicas, side.other(), lost).await;
                }
                Err(error) => return self.refresh_from_other(replicas, side.other(), error).await,
            };
            if observed.record.authority == side {
                self.learn(observed);
                return Ok(());
            }
            side = observed.record.authority;
            let _kept_or_written = replicas.write(side, &observed.record).await?;
        }
        Err(DualProblem::Contended.error(Effect::NotApplied))
    }

    async fn refresh_from_other(
        &self,
        replicas: &Replicas,
        side: Side,
        error: StoreError,
    ) -> Result<(), StoreError> {
        match replicas.read(side).await {
            Ok(Some(observed)) if observed.record.authority == side => {
                self.learn(observed);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// True if the record has been closing for so long that the switchover must have died.
    fn is_abandoned(&self) -> bool {
        let state = self.state.lock();
        let closing = state.record.phase == Phase::Closing;
        closing && state.closing_since.elapsed() > CLOSING_MAX + state.record.lease * 4
    }

    /// Cancels a switchover that did not come about. Its process finds another revision.
    pub(super) async fn reopen(&self, replicas: &Replicas) -> Result<(), StoreError> {
        let AuthorityRecord { authority, term, revision, .. } = self.record();
        let reopened = replicas.amend(authority, term, |record| {
            let abandoned = record.revision == revision && record.phase == Phase::Closing;
            abandoned.then(|| AuthorityRecord { phase: Phase::Serving, ..record.clone() })
        });
        if let Ok(observed) = reopened.await? {
            tracing::warn!("a switchover was cancelled: the authority stays");
            self.learn(observed);
        }
        Ok(())
    }
}

/// Marks a refresh as running until it is dropped.
struct Refreshing<'a>(&'a Mutex<State>);

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        self.0.lock().refreshing = false;
    }
}

impl From<DualProblem> for StoreError {
    fn from(problem: DualProblem) -> Self {
        problem.error(Effect::NotApplied)
    }
}
