//! Recovery: an engine asks a resolver about one unknown record.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::checked_resolver::CheckedResolver;
use super::decision_log::{DecisionKind, DecisionLog};
use super::record_finding::RecordFinding;
use super::recovery_observer::RecoveryObserver;
use super::replay_check::ReplayChecks;
use super::resolver::Resolver;
use crate::intent::RecordId;
use crate::record::{Retention, State};
use crate::store::{FullStore, StoreError};

/// Settles an operation that an engine has just found unknown, by asking a [`Resolver`]. A
/// [`Reconciler`](crate::Reconciler) asks about all the others. By
/// [`ReplayCheck::Resolver`](crate::ReplayCheck::Resolver) it also asks before replays.
#[derive(Clone)]
pub struct Recovery {
    pub(super) store: Arc<dyn FullStore>,
    pub(super) resolver: Arc<CheckedResolver>,
    decisions: Option<DecisionLog>,
    pub(super) observer: Option<Arc<dyn RecoveryObserver>>,
    pub(super) replay_checks: Arc<ReplayChecks>,
}

impl Recovery {
    /// Recovery of a store's records by a resolver.
    pub fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>) -> Self {
        let resolver = Arc::new(CheckedResolver::new(Arc::clone(&store), resolver));
        Self { store, resolver, decisions: None, observer: None, replay_checks: Arc::default() }
    }

    /// Stores the time of the resolver's first use: its
    /// [`Verdict::DidNotHappen`](crate::Verdict::DidNotHappen) counts for operations that are
    /// claimed from then on ([`Since::FirstUse`](crate::Since::FirstUse)). An engine does this
    /// before its first claim. Idempotent.
    pub async fn register(&self) -> Result<(), StoreError> {
        self.resolver.register().await.map(drop)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.resolver.is_registered()
    }

    /// Logs every decision before it is applied.
    #[must_use]
    pub fn decisions(mut self, decisions: DecisionLog) -> Self {
        self.decisions = Some(decisions);
        self
    }

    /// Bounds the questions before replays: how many are asked at once (8), and how long an answer
    /// may take, the wait for its turn included (10 s). Call it before the engines are built.
    #[must_use]
    pub fn replay_checks(mut self, at_once: usize, patience: Duration) -> Self {
        self.replay_checks = Arc::new(ReplayChecks::new(at_once, patience));
        self
    }

    /// Reports the result of each question, for metrics.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn RecoveryObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Asks about a record that was just found unknown, and settles it by the verdict, under the
    /// fence it was read with. Returns `None` if the outcome is still unknown. If the stored state
    /// has changed since, the resolver is not asked.
    pub(crate) async fn recover(
        &self,
        id: &RecordId,
        retention: Retention,
    ) -> Result<Option<DecisionKind>, StoreError> {
        let record = match self.store.get(id).await? {
            Some(record) if matches!(record.state, State::Unknown { .. }) => record,
            _ => return Ok(Some(DecisionKind::Superseded)),
        };
        let finding = RecordFinding {
            record: &record,
            finding: self.resolver.resolve(&record).await,
            by: self.resolver.name(),
            retention,
            observer: self.observer.as_deref(),
            failures: &self.resolver.failures,
        };
        finding.apply(&*self.store, self.decisions.as_ref()).await
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recovery(…)")
    }
}
