//! Asking about operations whose outcome is unknown, again and again, until somebody knows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::checked_resolver::CheckedResolver;
use super::decision_log::{Decided, Decisions};
use super::resolution::Judgement;
use super::resolver::{Finding, Resolver};
use crate::clock::{Ambient, SystemAmbient, Timestamp};
use crate::intent::{Fingerprint, INTERNAL_TENANT, Identity, OperationId, Scope, Sketch};
use crate::record::{Holder, OwnerToken, Record, Retention, StateName};
use crate::store::{
    Claim, ClaimRequest, FullStore, Lapsed, Query, SettleRequest, Settlement, StoreError, Verdict,
};

/// Finds operations whose outcome is unknown (leases that lapsed included), asks a [`Resolver`]
/// about each, and settles what it knows, under the fence that the answer is about.
///
/// Any number of nodes may run one: a record is asked about by one of them at a time, which it
/// holds a lease for. Records that nobody knows about are asked about ever less often. Errors
/// of the store or the resolver end nothing: the next round begins anew.
pub struct Reconciler {
    store: Arc<dyn FullStore>,
    resolver: Arc<CheckedResolver>,
    identity: Identity,
    decisions: Decisions,
    ambient: Arc<dyn Ambient>,
    settings: ReconcilerSettings,
    report: Arc<dyn Fn(&Round) + Send + Sync>,
}

/// How a [`Reconciler`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconcilerSettings {
    /// How long to rest between rounds.
    pub every: Duration,
    /// Most questions a round: what an authority can bear.
    pub budget: usize,
    /// Most questions at once.
    pub at_once: usize,
    /// How long an answer may take.
    pub patience: Duration,
    /// How long a record rests after the first time that nobody knew; twice as long after
    /// each further one.
    pub backoff: Duration,
    /// The longest rest.
    pub backoff_max: Duration,
    /// How long what it settles is kept.
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

/// What one round came to.
#[derive(Debug, Default)]
pub struct Round {
    /// Operations that were unknown when it began.
    pub unknown: usize,
    /// They had happened and are completed now.
    pub happened: usize,
    /// They had not happened and are free now.
    pub did_not_happen: usize,
    /// The resolver does not know either, or failed.
    pub still_unknown: usize,
    /// Somebody else settled them in the meantime.
    pub settled_elsewhere: usize,
    /// Asked about lately, here or by another node: their time has not come.
    pub resting: usize,
    /// Left for the next round, because the budget was used up.
    pub over_budget: usize,
    /// Since when the oldest of those that are still unknown has not changed, on the store's
    /// clock.
    pub oldest: Option<Timestamp>,
    /// Why it ended early, if it did.
    pub failed: Option<StoreError>,
    /// How long it took.
    pub took: Duration,
}

impl Reconciler {
    /// A reconciler of a store's records. The identity is that of the engines on the store.
    pub fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>, identity: Identity) -> Self {
        Self {
            decisions: Decisions::new(Arc::clone(&store), identity.clone()),
            resolver: Arc::new(CheckedResolver::new(Arc::clone(&store), resolver)),
            store,
            identity,
            ambient: Arc::new(SystemAmbient::new()),
            settings: ReconcilerSettings::default(),
            report: Arc::new(|round| match &round.failed {
                Some(error) => tracing::warn!(%error, ?round, "reconciling failed, will go on"),
                None => tracing::debug!(?round, "reconciled"),
            }),
        }
    }

    /// Other settings than the defaults.
    #[must_use]
    pub fn settings(mut self, settings: ReconcilerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Where decisions are written down, instead of the store with default retention.
    #[must_use]
    pub fn decisions(mut self, decisions: Decisions) -> Self {
        self.decisions = decisions;
        self
    }

    /// Where time and randomness come from, for simulations.
    #[must_use]
    pub fn ambient(mut self, ambient: Arc<dyn Ambient>) -> Self {
        self.ambient = ambient;
        self
    }

    /// Whom to tell after each round, instead of the log.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&Round) + Send + Sync + 'static) -> Self {
        self.report = Arc::new(report);
        self
    }

    /// Records the resolver's first use in the store, as [`Recovery::register`] does. A round
    /// begins with it; call it before operations are claimed, so that none of them is older.
    ///
    /// [`Recovery::register`]: crate::Recovery::register
    pub async fn register(&self) -> Result<(), StoreError> {
        self.resolver.register().await.map(drop)
    }

    /// Reconciles for ever. Stop it by dropping the future or aborting its task: what it was
    /// asking about is asked about again when its lease has lapsed.
    pub async fn run(self) {
        let this = Arc::new(self);
        loop {
            (this.report)(&this.run_once().await);
            tokio::time::sleep(this.settings.every).await;
        }
    }

    /// One round over all that is unknown now.
    pub async fn run_once(self: &Arc<Self>) -> Round {
        let began = Instant::now();
        let mut round = Round::default();
        if let Err(error) = self.go_round(&mut round).await {
            round.failed = Some(error);
        }
        round.took = began.elapsed();
        round
    }

    async fn go_round(self: &Arc<Self>, round: &mut Round) -> Result<(), StoreError> {
        self.register().await?;
        let (mut questions, budget) = (JoinSet::new(), Arc::new(Budget::new(self.settings.budget)));
        let mut query = Query { standing: Some(StateName::Unknown), ..Query::default() };
        loop {
            let page = self.store.list(&query).await?;
            let records = page.records.into_iter();
            for record in records.filter(|it| it.scope.tenant() != INTERNAL_TENANT) {
                round.unknown += 1;
                while questions.len() >= self.settings.at_once.max(1) {
                    round.take(questions.join_next().await)?;
                }
                let (this, budget) = (Arc::clone(self), Arc::clone(&budget));
                questions.spawn(async move {
                    let answer = this.question(&record, &budget).await;
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
        let lock = self.lock(record);
        if self.is_resting(&lock).await? {
            return Ok(Answered::Resting);
        }
        if !budget.take() {
            return Ok(Answered::OverBudget);
        }
        let Claim::Granted { lease, .. } = self.store.claim(&lock).await? else {
            budget.give_back();
            return Ok(Answered::Resting);
        };
        let answered = self.settle_by_resolver(record).await;
        let holder = Holder { owner: lock.owner, fence: lease.fence };
        // Kept as long as anybody may have to know how often it was asked about.
        let keep = self.settings.backoff_max * 2;
        let release = SettleRequest {
            id: lock.id,
            holder,
            settlement: Settlement::Release,
            retention: Retention { keep, tombstone: Duration::ZERO },
        };
        let _freed = self.store.settle(&release).await?;
        answered
    }

    /// Whether it was asked about so lately that it is not worth it yet. By the clocks of two
    /// machines, which is exact enough for a rest.
    async fn is_resting(&self, lock: &ClaimRequest) -> Result<bool, StoreError> {
        let Some(last) = self.store.get(&lock.id).await? else { return Ok(false) };
        let doublings = last.attempts.saturating_sub(1).min(20);
        let rest = self.settings.backoff * (1 << doublings);
        let until = last.updated_at + rest.min(self.settings.backoff_max);
        Ok(self.ambient.now() < until)
    }

    /// The right to ask about a record under its present fence.
    fn lock(&self, record: &Record) -> ClaimRequest {
        let key = format!("{}.{}", record.id, record.fence);
        let id = self.identity.internal_id("reconcile", &key);
        ClaimRequest {
            id,
            owner: OwnerToken::draw(&*self.ambient),
            operation: OperationId::draw(&*self.ambient, &id),
            scope: Scope::internal("reconcile"),
            key: None,
            fingerprint: Fingerprint::of_parts(&[]),
            sketch: Sketch::default(),
            // The answer, and then some for writing it down.
            lease: self.settings.patience * 3,
            lapsed: Lapsed::Takeover,
        }
    }

    async fn settle_by_resolver(&self, record: &Record) -> Result<Answered, StoreError> {
        let (finding, retention) = (self.ask(record).await, self.settings.retention);
        let judgement = Judgement { record, finding, by: self.resolver.name(), retention };
        let decided = judgement.carry_out(&*self.store, Some(&self.decisions)).await?;
        Ok(decided.map_or(Answered::StillUnknown, Answered::Settled))
    }

    async fn ask(&self, record: &Record) -> Finding {
        match timeout(self.settings.patience, self.resolver.resolve(record)).await {
            Ok(Ok(finding)) => finding,
            Ok(Err(error)) => {
                tracing::warn!(operation = %record.operation, %error, "the resolver failed");
                Verdict::StillUnknown.into()
            }
            Err(_) => {
                tracing::warn!(operation = %record.operation, "the resolver did not answer");
                Verdict::StillUnknown.into()
            }
        }
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What came of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    Settled(Decided),
    StillUnknown,
    Resting,
    OverBudget,
}

/// How many questions are left in a round.
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

type Question = Result<(Record, Result<Answered, StoreError>), tokio::task::JoinError>;

impl Round {
    fn take(&mut self, question: Option<Question>) -> Result<(), StoreError> {
        let Some(question) = question else { return Ok(()) };
        let Ok((record, answered)) = question else {
            tracing::error!("the resolver panicked");
            self.still_unknown += 1;
            return Ok(());
        };
        match answered? {
            Answered::Settled(Decided::Happened) => self.happened += 1,
            Answered::Settled(Decided::DidNotHappen) => self.did_not_happen += 1,
            Answered::Settled(Decided::Superseded) => self.settled_elsewhere += 1,
            // About stores, and never about an operation.
            Answered::Settled(Decided::LossAccepted) => {}
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
