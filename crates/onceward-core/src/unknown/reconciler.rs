//! The reconciler: asks about unknown operations until the resolver knows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::checked_resolver::CheckedResolver;
use super::decision_log::{DecisionKind, DecisionLog};
use super::record_finding::RecordFinding;
use super::recovery_observer::RecoveryObserver;
use super::resolver::{BoxError, Finding, Resolver};
use crate::clock::{Ambient, SystemAmbient, Timestamp};
use crate::intent::{INTERNAL_TENANT, Identity};
use crate::record::{Holder, Record, Retention, StateName};
use crate::store::{
    Claim, ClaimRequest, Effect, FullStore, Query, SettleRequest, Settlement, StoreError,
    StoreErrorKind,
};

/// Finds unknown operations (lapsed leases included), asks a [`Resolver`] about each, and settles
/// those it knows, under the fence that the answer is about.
///
/// Any number of nodes may run a reconciler: a lease in the store gives each record to one of
/// them. Records that stay unknown are asked about less and less often. An error of the store or
/// the resolver does not stop it: the next round starts again.
pub struct Reconciler {
    store: Arc<dyn FullStore>,
    resolver: Arc<CheckedResolver>,
    identity: Identity,
    decisions: DecisionLog,
    ambient: Arc<dyn Ambient>,
    settings: ReconcilerSettings,
    report: Arc<dyn Fn(&ReconcilerRound) + Send + Sync>,
    observer: Option<Arc<dyn RecoveryObserver>>,
}

/// Settings of a [`Reconciler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconcilerSettings {
    /// Pause between rounds.
    pub every: Duration,
    /// Most questions in a round, to limit the load on the authority.
    pub budget: usize,
    /// Most concurrent questions.
    pub at_once: usize,
    /// Time limit of an answer, and of reading a page of records.
    pub patience: Duration,
    /// Pause of a record after its first inconclusive answer. Doubles with each further one.
    pub backoff: Duration,
    /// Longest pause of a record.
    pub backoff_max: Duration,
    /// Retention of the outcomes that it stores.
    pub retention: Retention,
}

impl Default for ReconcilerSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            budget: 500,
            at_once: 8,
            patience: Duration::from_secs(10),
            backoff: Duration::from_secs(15),
            backoff_max: Duration::from_secs(3_600),
            retention: Retention {
                keep: Duration::from_secs(24 * 3600),
                tombstone: Duration::ZERO,
            },
        }
    }
}

/// Report of a [`Reconciler`] round.
#[derive(Debug, Default)]
pub struct ReconcilerRound {
    /// Unknown operations that it found.
    pub unknown: usize,
    /// Operations that had happened and are completed now.
    pub happened: usize,
    /// Operations that had not happened; their keys are free now.
    pub did_not_happen: usize,
    /// Operations of which the resolver does not know, or for which it failed.
    pub still_unknown: usize,
    /// Operations that were settled meanwhile in another way.
    pub settled_elsewhere: usize,
    /// Operations that are not due yet, because this or another node has just asked about them.
    pub resting: usize,
    /// Operations left for the next round, because the budget was used up.
    pub over_budget: usize,
    /// Earliest last change among the operations that are still unknown, on the store's clock.
    pub oldest: Option<Timestamp>,
    /// The store error that ended the round, if any.
    pub failed: Option<StoreError>,
    /// Duration of the round.
    pub took: Duration,
}

impl Reconciler {
    /// A reconciler of a store's records. The identity is that of the engines on the store.
    pub fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>, identity: Identity) -> Self {
        Self {
            decisions: DecisionLog::new(Arc::clone(&store), identity.clone()),
            resolver: Arc::new(CheckedResolver::new(Arc::clone(&store), resolver)),
            store,
            identity,
            ambient: Arc::new(SystemAmbient::new()),
            settings: ReconcilerSettings::default(),
            observer: None,
            report: Arc::new(|round| match &round.failed {
                Some(error) => {
                    tracing::warn!(%error, ?round, "the reconciler's round failed, will retry");
                }
                None => tracing::debug!(?round, "reconciler round"),
            }),
        }
    }

    /// Replaces the default settings.
    #[must_use]
    pub fn settings(mut self, settings: ReconcilerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Replaces the decision log, which otherwise is the store's with default retention.
    #[must_use]
    pub fn decisions(mut self, decisions: DecisionLog) -> Self {
        self.decisions = decisions;
        self
    }

    /// Source of time and randomness, for simulations.
    #[must_use]
    pub fn ambient(mut self, ambient: Arc<dyn Ambient>) -> Self {
        self.ambient = ambient;
        self
    }

    /// Reports the result of each question, for metrics.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn RecoveryObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Reports each round to a function instead of the log.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&ReconcilerRound) + Send + Sync + 'static) -> Self {
        self.report = Arc::new(report);
        self
    }

    /// Stores the time of the resolver's first use, like [`Recovery::register`]. Each round begins
    /// with it; call it before operations are claimed, so that none of them is older.
    ///
    /// [`Recovery::register`]: crate::Recovery::register
    pub async fn register(&self) -> Result<(), StoreError> {
        self.resolver.register().await.map(drop)
    }

    /// Runs rounds forever. Stop it by dropping the future or aborting its task: open questions
    /// are asked again when their leases have lapsed.
    pub async fn run(self) {
        let this = Arc::new(self);
        loop {
            (this.report)(&this.run_once().await);
            tokio::time::sleep(this.settings.every).await;
        }
    }

    /// Runs one round over all operations that are unknown now.
    pub async fn run_once(self: &Arc<Self>) -> ReconcilerRound {
        let began = Instant::now();
        let mut round = ReconcilerRound::default();
        if let Err(error) = self.go_round(&mut round).await {
            round.failed = Some(error);
        }
        round.took = began.elapsed();
        round
    }

    async fn go_round(self: &Arc<Self>, round: &mut ReconcilerRound) -> Result<(), StoreError> {
        in_time(self.settings.patience, self.register()).await?;
        let (mut questions, budget) = (JoinSet::new(), Arc::new(Budget::new(self.settings.budget)));
        let mut query = Query { standing: Some(StateName::Unknown), ..Query::default() };
        loop {
            let page = in_time(self.settings.patience, self.store.list(&query)).await?;
            let records = page.records.into_iter();
            for record in records.filter(|it| it.scope.tenant() != INTERNAL_TENANT) {
                round.unknown += 1;
                while questions.len() >= self.settings.at_once.max(1) {
                    round.take(questions.join_next().await)?;
                }
                let (this, budget) = (Arc::clone(self), Arc::clone(&budget));
                questions.spawn(async move {
                    let limit = this.question_lease();
                    let answer = in_time(limit, this.question(&record, &budget)).await;
                    (record, answer)
                });
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        while !questions.is_empty() {
            round.take(questions.join_next().await)?;
        }
        Ok(())
    }

    /// Asks about one record, if it is this node's turn.
    async fn question(&self, record: &Record, budget: &Budget) -> Result<Answered, StoreError> {
        let claim = self.claim(record);
        if self.is_resting(&claim).await? {
            return Ok(Answered::Resting);
        }
        if !budget.take() {
            return Ok(Answered::OverBudget);
        }
        let Claim::Granted { lease, .. } = self.store.claim(&claim).await? else {
            budget.give_back();
            return Ok(Answered::Resting);
        };
        let answered = self.settle_by_resolver(record).await;
        let holder = Holder { owner: claim.owner, fence: lease.fence };
        // Kept for longer than the longest pause, because it counts the questions.
        let keep = self.settings.backoff_max * 2;
        let release = SettleRequest {
            id: claim.id,
            holder,
            settlement: Settlement::Release,
            retention: Retention { keep, tombstone: Duration::ZERO },
        };
        let _freed = self.store.settle(&release).await?;
        answered
    }

    /// Returns true if the last question is too recent. Compares the store's time with this
    /// node's: a skewed clock makes the pause shorter or longer, and decides nothing else.
    async fn is_resting(&self, claim: &ClaimRequest) -> Result<bool, StoreError> {
        let Some(last) = self.store.get(&claim.id).await? else { return Ok(false) };
        let doublings = last.attempts.saturating_sub(1).min(20);
        let rest = self.settings.backoff * (1 << doublings);
        let until = last.updated_at + rest.min(self.settings.backoff_max);
        Ok(self.ambient.now() < until)
    }

    /// The claim of the right to ask about a record under its present fence.
    fn claim(&self, record: &Record) -> ClaimRequest {
        let key = format!("{}.{}", record.id, record.fence);
        let id = self.identity.internal_id("reconcile", &key);
        ClaimRequest::internal(&*self.ambient, id, "reconcile", self.question_lease())
    }

    /// Time for the answer, and for storing it. A question that takes longer is abandoned, and
    /// another node may ask.
    fn question_lease(&self) -> Duration {
        self.settings.patience * 3
    }

    async fn settle_by_resolver(&self, record: &Record) -> Result<Answered, StoreError> {
        let finding = RecordFinding {
            record,
            finding: self.ask(record).await,
            by: self.resolver.name(),
            retention: self.settings.retention,
            observer: self.observer.as_deref(),
            failures: &self.resolver.failures,
        };
        let decided = finding.apply(&*self.store, Some(&self.decisions)).await?;
        Ok(decided.map_or(Answered::StillUnknown, Answered::Settled))
    }

    async fn ask(&self, record: &Record) -> Result<Finding, BoxError> {
        match timeout(self.settings.patience, self.resolver.resolve(record)).await {
            Ok(finding) => finding,
            Err(_) => Err(format!("no answer within {:?}", self.settings.patience).into()),
        }
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Result of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    Settled(DecisionKind),
    StillUnknown,
    Resting,
    OverBudget,
}

/// Number of questions left in a round.
struct Budget(AtomicUsize);

impl Budget {
    fn new(questions: usize) -> Self {
        Self(AtomicUsize::new(questions))
    }

    fn take(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Ends a step that the store never answers. Without a limit, one lost reply would stop the
/// reconciler for good.
async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, step).await.unwrap_or_else(|_| {
        Err(StoreError::new("reconciler", StoreErrorKind::Timeout, Effect::MayHaveBeenApplied))
    })
}

type Question = Result<(Record, Result<Answered, StoreError>), tokio::task::JoinError>;

impl ReconcilerRound {
    fn take(&mut self, question: Option<Question>) -> Result<(), StoreError> {
        let Some(question) = question else { return Ok(()) };
        let Ok((record, answered)) = question else {
            tracing::error!("the resolver panicked");
            self.still_unknown += 1;
            return Ok(());
        };
        match answered? {
            Answered::Settled(DecisionKind::Happened) => self.happened += 1,
            Answered::Settled(DecisionKind::DidNotHappen) => self.did_not_happen += 1,
            Answered::Settled(DecisionKind::Superseded) => self.settled_elsewhere += 1,
            // Decisions of operators, never of a resolver.
            Answered::Settled(
                DecisionKind::LossAccepted
                | DecisionKind::Invalidated
                | DecisionKind::CacheInvalidated,
            ) => {}
            Answered::StillUnknown => {
                self.still_unknown += 1;
                self.still(&record);
            }
            Answered::Resting => {
                self.resting += 1;
                self.still(&record);
            }
            Answered::OverBudget => {
                self.over_budget += 1;
                self.still(&record);
            }
        }
        Ok(())
    }

    fn still(&mut self, record: &Record) {
        let since = self.oldest.map_or(record.updated_at, |oldest| oldest.min(record.updated_at));
        self.oldest = Some(since);
    }
}
