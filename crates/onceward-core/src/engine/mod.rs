//! The engine: decides for an intent to execute, replay or reject.
//!
//! A `begin` walks: `reference` (where the intent lives) → `claim_sender` (until the answer is
//! known) → `waiters` (while another owner runs) → `permit`, or a replay, which
//! `unknown::replay_check` may have to confirm. Meanwhile `lease_renewer` renews, and what a permit
//! leaves undone goes to `background_settlement`.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Engine`: `begin`, `recall`, `operation`, `drain`; its builder |
//! | `reference` | intents with a business reference |
//! | `claim_sender` | a claim until its answer is known, or withdrawn; for the claims API, too |
//! | `claim_handle` | a granted claim and its store calls |
//! | `lease_clock` | how long the owner may rely on its lease |
//! | `lease_renewer` | renewal of all leases by one task for each runtime |
//! | `permit` | the right to run: complete, fail, unknown, release |
//! | `background_settlement` | settlements after their permit is gone |
//! | `waiters` | duplicates that wait for the running owner |
//! | `drain` | shutdown |
//! | `backoff` | pauses between attempts |
//! | `rebuilder` | replies made from a stored reference |

mod background_settlement;
mod backoff;
mod claim_handle;
mod claim_sender;
mod drain;
mod lease_clock;
mod lease_renewer;
mod permit;
mod rebuilder;
mod reference;
mod waiters;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::clock::{Ambient, SystemAmbient};
use crate::intent::{Difference, Fingerprint, Identity, Intent, OperationId, RecordId};
use crate::log::LogThrottle;
use crate::policy::{OnLapse, Policy, PolicyBuilder, ReplayCheck};
use crate::record::{Content, Ended, OperationStatus, Replay, StateName};
use crate::store::{Claim, FullStore, StoreError};
use crate::unknown::{BoxError, Recovery, ReplayVerdict};
pub use claim_sender::TokenSource;
pub use drain::Drained;
pub use permit::{Grant, LeaseLost, Permit, Settled};
pub use rebuilder::Rebuilder;

use claim_sender::ClaimSender;
use drain::Drain;
use lease_renewer::LeaseRenewers;
use waiters::Waiters;

/// Decides for each intent: execute it, replay it, or reject it.
///
/// Cheap to clone; clones share the store and the waiters. One engine serves many operations:
/// [`Engine::with_policy`] gives each its policy.
#[derive(Clone)]
pub struct Engine(Arc<EngineInner>);

/// One allocation, because every permit clones its engine: one counter to increment, not two.
/// Aligned so that the fields do not share a cache line with that counter.
#[repr(align(128))]
struct EngineInner {
    shared: Arc<Shared>,
    policy: Policy,
}

struct Shared {
    store: Arc<dyn FullStore>,
    ambient: Arc<dyn Ambient>,
    identity: Identity,
    recovery: Option<Recovery>,
    rebuilder: Option<Arc<dyn Rebuilder>>,
    waiters: Waiters,
    drain: Drain,
    renewers: LeaseRenewers,
    logs: EngineLogs,
}

/// Rate limits of log lines that many operations can cause at once.
struct EngineLogs {
    unknown: LogThrottle,
    stale: LogThrottle,
}

impl Default for EngineLogs {
    fn default() -> Self {
        // Each is an operation that a person may ask about.
        Self { unknown: LogThrottle::new(50), stale: LogThrottle::new(10) }
    }
}

/// Decision about an intent.
#[derive(Debug)]
#[must_use]
pub enum Begin {
    /// Run it, and settle the permit.
    Execute(Permit),
    /// Answer with its first outcome.
    Replay(Replay),
    /// Refuse it.
    Reject(Rejection),
}

/// Why an intent is neither executed nor replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The key was used for another request. Never retry with it.
    #[error("the key was used for another request; a new request needs a new key")]
    Mismatch {
        /// The intent's parts that differ, as far as known.
        difference: Difference,
    },
    /// The first attempt is still running. Retry later with the same key.
    #[error("operation {operation} is still running; retry with the same key in {retry_after:?}")]
    Running {
        /// The operation's id.
        operation: OperationId,
        /// Time to wait before the retry.
        retry_after: Duration,
    },
    /// It cannot be proved what happened. Look the operation up, do not retry blindly.
    #[error("the outcome of operation {operation} is unknown; look it up before you retry")]
    Unknown {
        /// The operation's id.
        operation: OperationId,
    },
    /// The business reference belongs to another request, or to another key where
    /// [`KnownReference::Conflict`](crate::KnownReference::Conflict) says so.
    #[error("the business reference belongs to another request")]
    ReferenceTaken {
        /// The operation that it belongs to, if its record still exists.
        operation: Option<OperationId>,
        /// The intent's parts that differ, as far as known.
        difference: Difference,
    },
    /// It was completed, and the source of truth says that it did not happen
    /// ([`ReplayCheck::Resolver`](crate::ReplayCheck::Resolver)). It is neither replayed nor run
    /// again: a person decides.
    #[error(
        "operation {operation} was completed, and the source of truth does not know it any more"
    )]
    Contradicted {
        /// The operation's id.
        operation: OperationId,
    },
    /// The key is past its retention. Look the resource up first.
    #[error("the key has expired; look the resource up before you send it under a new key")]
    Expired,
}

/// Why the engine could not decide. Nothing was executed; a retry with the same key is safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The store did not answer.
    #[error("the store is unavailable; nothing was executed")]
    Unavailable(#[source] StoreError),
    /// The engine is shutting down.
    #[error("the engine is shutting down; nothing was executed")]
    Draining,
    /// The operation was completed, and the source of truth could not confirm it
    /// ([`ReplayCheck::Resolver`](crate::ReplayCheck::Resolver)).
    #[error("operation {operation} was completed, and the source of truth could not confirm it")]
    Unconfirmed {
        /// The operation's id.
        operation: OperationId,
    },
    /// The operation was done, but its reply could not be rebuilt.
    #[error("the reply of operation {operation} could not be rebuilt")]
    Rebuild {
        /// The operation's id.
        operation: OperationId,
        /// The rebuilder's error.
        #[source]
        source: BoxError,
    },
}

impl Engine {
    /// An engine on a store, with the default policy.
    pub fn new(store: Arc<dyn FullStore>) -> Self {
        Self::builder(store).build()
    }

    /// An engine on a store, with settings.
    pub fn builder(store: Arc<dyn FullStore>) -> EngineBuilder {
        EngineBuilder {
            store,
            ambient: Arc::new(SystemAmbient::new()),
            identity: Identity::unkeyed(),
            recovery: None,
            rebuilder: None,
            policy: Policy::default(),
        }
    }

    /// The same engine with another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self(Arc::new(EngineInner { shared: Arc::clone(&self.0.shared), policy }))
    }

    /// The same engine with settings changed in a way that keeps the policy valid.
    pub(crate) fn reconfigured(&self, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Self {
        let policy = change(self.policy().to_builder()).build();
        self.with_policy(policy.unwrap_or_else(|invalid| unreachable!("{invalid}")))
    }

    /// Its policy.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Makes its record ids.
    pub fn identity(&self) -> &Identity {
        &self.shared().identity
    }

    /// True if it has a [`Recovery`], which finds out unknown outcomes.
    pub fn has_recovery(&self) -> bool {
        self.shared().recovery.is_some()
    }

    /// Decides about an intent, waiting for a running owner as long as the policy says, and for the
    /// [`Resolver`](crate::Resolver) where replays are checked.
    ///
    /// May be dropped at any point: a claim that was under way is withdrawn.
    pub async fn begin(&self, intent: &Intent) -> Result<Begin, BeginError> {
        match &intent.reference {
            // Rare branches are boxed, here and below, to keep every request's future small.
            Some(reference) => self.begin_by_reference(intent, reference).boxed().await,
            None => {
                let id = self.shared().identity.record_id(&intent.scope, &intent.key);
                let begin = self.begin_record(&id, intent).await?;
                self.checked_and_rebuilt(&id, begin).await
            }
        }
    }

    /// Checks a replay that came from elsewhere, by the policy
    /// ([`ReplayCheck`](crate::ReplayCheck)): from a transaction, or for a status page. What
    /// [`begin`](Self::begin) returns is checked already.
    pub async fn check_replay(&self, replay: Replay) -> Result<Begin, BeginError> {
        match self.is_to_be_checked(&replay) {
            true => self.checked(None, replay).boxed().await,
            false => Ok(Begin::Replay(replay)),
        }
    }

    async fn checked(&self, id: Option<RecordId>, replay: Replay) -> Result<Begin, BeginError> {
        let operation = replay.operation;
        let verdict = match &self.shared().recovery {
            Some(recovery) => recovery.check_replay(id, operation).await,
            None => ReplayVerdict::Unconfirmed,
        };
        match verdict {
            ReplayVerdict::Confirmed => Ok(Begin::Replay(replay)),
            ReplayVerdict::Contradicted => Ok(Begin::Reject(Rejection::Contradicted { operation })),
            ReplayVerdict::Unconfirmed => Err(BeginError::Unconfirmed { operation }),
        }
    }

    /// True if a replay is checked against the source of truth. A kept failure had no effect that
    /// could have been lost.
    fn is_to_be_checked(&self, replay: &Replay) -> bool {
        self.policy().replay_check() == ReplayCheck::Resolver && replay.ended == Ended::Completed
    }

    /// Completes a decision about this record: a replay is checked by the policy, and made from a
    /// stored reference.
    async fn checked_and_rebuilt(&self, id: &RecordId, begin: Begin) -> Result<Begin, BeginError> {
        let begin = match begin {
            Begin::Replay(replay) if self.is_to_be_checked(&replay) => {
                self.checked(Some(*id), replay).boxed().await?
            }
            begin => begin,
        };
        match begin {
            Begin::Replay(replay) if self.is_to_be_rebuilt(&replay) => {
                self.rebuilt(replay).boxed().await
            }
            begin => Ok(begin),
        }
    }

    /// Returns what [`begin`](Self::begin) would replay to an intent that lives in this record,
    /// where the store can tell at once. `None` tells nothing: call `begin`.
    pub fn recall(&self, id: &RecordId, fingerprint: &Fingerprint) -> Option<Replay> {
        if self.shared().drain.is_closed() || self.policy().replay_check() != ReplayCheck::Never {
            return None;
        }
        let replay = self.shared().store.recall(id, fingerprint)?;
        // `begin` checks replays by the policy, and rebuilds references: both take time.
        (!self.is_to_be_rebuilt(&replay)).then_some(replay)
    }

    /// True if the store supports [`recall`](Self::recall).
    pub fn recalls(&self) -> bool {
        self.shared().store.recalls()
    }

    /// Decides about an intent that lives in this record.
    async fn begin_record(&self, id: &RecordId, intent: &Intent) -> Result<Begin, BeginError> {
        if let Some(recovery) = &self.shared().recovery
            && !recovery.is_registered()
        {
            self.register(recovery).boxed().await;
        }
        let wait = self.policy().wait();
        let give_up = (!wait.is_zero()).then(|| Instant::now() + wait);
        let begin = self.claim_or_wait(id, intent, give_up).await?;
        if matches!(begin, Begin::Reject(Rejection::Unknown { .. }))
            && self.ask_resolver(id).boxed().await
        {
            return self.claim_or_wait(id, intent, give_up).boxed().await;
        }
        Ok(begin)
    }

    async fn claim_or_wait(
        &self,
        id: &RecordId,
        intent: &Intent,
        give_up: Option<Instant>,
    ) -> Result<Begin, BeginError> {
        match give_up {
            None => self.claim(id, intent).await,
            Some(give_up) => self.claim_until(id, intent, give_up).boxed().await,
        }
    }

    /// Claims until the running owner has settled, or time is up.
    async fn claim_until(
        &self,
        id: &RecordId,
        intent: &Intent,
        give_up: Instant,
    ) -> Result<Begin, BeginError> {
        // Registered before the first claim, so that no wake-up is missed.
        let waiter = self.shared().waiters.register(id);
        loop {
            let next = waiter.next();
            let begin = self.claim(id, intent).await?;
            let running = matches!(begin, Begin::Reject(Rejection::Running { .. }));
            if !running || Instant::now() >= give_up {
                return Ok(begin);
            }
            let poll = (Instant::now() + self.policy().poll_every()).min(give_up);
            waiter.wait(next, &*self.shared().store, poll).await;
        }
    }

    /// Claims once.
    async fn claim(&self, id: &RecordId, intent: &Intent) -> Result<Begin, BeginError> {
        if self.shared().drain.is_closed() {
            return Err(BeginError::Draining);
        }
        let mut sender = ClaimSender::new(self, *id, intent);
        let claim = sender.send().await.map_err(BeginError::Unavailable)?;
        self.interpret(&mut sender, claim, intent)
    }

    /// Turns the answer to a claim into a decision.
    fn interpret(
        &self,
        sender: &mut ClaimSender<'_>,
        claim: Claim,
        intent: &Intent,
    ) -> Result<Begin, BeginError> {
        Ok(match claim {
            Claim::Granted { lease, operation, attempt } => {
                Begin::Execute(sender.permit(lease, operation, attempt)?)
            }
            Claim::Completed { operation, outcome } => {
                Begin::Replay(Replay { operation, ended: Ended::Completed, outcome })
            }
            Claim::Failed { operation, outcome } => {
                Begin::Replay(Replay { operation, ended: Ended::Failed, outcome })
            }
            Claim::Running { operation, .. } => {
                let retry_after = self.policy().retry_after();
                Begin::Reject(Rejection::Running { operation, retry_after })
            }
            Claim::Unknown { operation } => Begin::Reject(Rejection::Unknown { operation }),
            Claim::Mismatch { first } => {
                let identity = &self.shared().identity;
                let difference = identity.compare(sender.id(), &first, &intent.parts);
                Begin::Reject(Rejection::Mismatch { difference })
            }
            Claim::Expired => Begin::Reject(Rejection::Expired),
        })
    }

    /// Records the resolver's first use before the first claim. Errors are ignored: the claim
    /// meets them too. Until this succeeds, operations count as older than the resolver.
    async fn register(&self, recovery: &Recovery) {
        match timeout(self.policy().call_timeout(), recovery.register()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the resolver's first use is not stored yet"),
            Err(_) => tracing::debug!("the resolver's first use was not stored in time"),
        }
    }

    /// Asks the resolver about an unknown record. False if it was not asked.
    async fn ask_resolver(&self, id: &RecordId) -> bool {
        let Some(recovery) = &self.shared().recovery else { return false };
        if self.policy().on_lapse() != OnLapse::Resolve {
            return false;
        }
        let asking = recovery.recover(id, self.policy().retention());
        match timeout(self.policy().claim_patience(), asking).await {
            Ok(Ok(decided)) => tracing::debug!(?decided, "asked the resolver"),
            Ok(Err(error)) => tracing::warn!(%error, "the resolver's verdict could not be stored"),
            Err(_) => tracing::warn!("the resolver did not answer in time"),
        }
        true
    }

    /// True if a reference is stored, and a rebuilder is set.
    fn is_to_be_rebuilt(&self, replay: &Replay) -> bool {
        replay.outcome.content == Content::Reference && self.shared().rebuilder.is_some()
    }

    async fn rebuilt(&self, mut replay: Replay) -> Result<Begin, BeginError> {
        if let Some(rebuilder) = &self.shared().rebuilder {
            let rebuilt = rebuilder.rebuild(&replay.outcome).await;
            let operation = replay.operation;
            replay.outcome = rebuilt.map_err(|source| BeginError::Rebuild { operation, source })?;
        }
        Ok(Begin::Replay(replay))
    }

    /// Returns the status of an operation. The caller checks who may see it.
    pub async fn operation(&self, id: &OperationId) -> Result<Option<OperationStatus>, StoreError> {
        let store = &self.shared().store;
        let Some(record) = store.find(id).await? else { return Ok(None) };
        let standing = match record.state.name() {
            StateName::Running if store.is_unknown(&record).await? => StateName::Unknown,
            StateName::Running => StateName::Running,
            // This clock decides only how a settled record is shown: expired, or not any more.
            name => record.standing(self.shared().ambient.now()).unwrap_or(name),
        };
        Ok(Some(OperationStatus::of(record, standing)))
    }

    /// The age of the oldest running operation of each name, among those of this engine. For
    /// metrics: it reads no record, and locks what permits lock for a moment.
    pub fn oldest_running(&self) -> HashMap<String, Duration> {
        let mut ages = HashMap::new();
        for handle in self.shared().renewers.tracked() {
            let age = ages.entry(handle.scope.operation().to_owned()).or_default();
            *age = handle.began.elapsed().max(*age);
        }
        ages
    }

    /// Refuses new intents and waits for running ones. Those still running after `limit` are
    /// marked unknown at once, and not only when their leases lapse.
    pub async fn drain(&self, limit: Duration) -> Drained {
        let cut_off = || {
            self.shared().renewers.take_all().into_iter().for_each(background_settlement::cut_off);
        };
        self.shared().drain.run(limit, cut_off).await
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("policy", self.policy()).finish_non_exhaustive()
    }
}

/// Settings of an [`Engine`].
#[must_use]
pub struct EngineBuilder {
    store: Arc<dyn FullStore>,
    ambient: Arc<dyn Ambient>,
    identity: Identity,
    recovery: Option<Recovery>,
    rebuilder: Option<Arc<dyn Rebuilder>>,
    policy: Policy,
}

impl EngineBuilder {
    /// The policy of its operations.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes record ids. All engines on a store need the same.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Finds out unknown outcomes where the policy is [`OnLapse::Resolve`], and checks replays where
    /// it is [`ReplayCheck::Resolver`](crate::ReplayCheck::Resolver).
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// Makes replies from stored references.
    pub fn rebuilder(mut self, rebuilder: Arc<dyn Rebuilder>) -> Self {
        self.rebuilder = Some(rebuilder);
        self
    }

    /// Source of time and randomness, for simulations.
    pub fn ambient(mut self, ambient: Arc<dyn Ambient>) -> Self {
        self.ambient = ambient;
        self
    }

    /// Builds the engine.
    pub fn build(self) -> Engine {
        let Self { store, ambient, identity, recovery, rebuilder, policy } = self;
        let shared = Shared {
            store,
            ambient,
            identity,
            recovery,
            rebuilder,
            waiters: Waiters::default(),
            drain: Drain::default(),
            renewers: LeaseRenewers::default(),
            logs: EngineLogs::default(),
        };
        Engine(Arc::new(EngineInner { shared: Arc::new(shared), policy }))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("policy", &self.policy).finish_non_exhaustive()
    }
}
