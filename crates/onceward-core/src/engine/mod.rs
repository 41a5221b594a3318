//! The engine: turns an intent into one of execute, replay or reject.

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

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::clock::{Ambient, SystemAmbient};
use crate::intent::{Difference, Fingerprint, Identity, Intent, OperationId, RecordId};
use crate::policy::{OnLapse, Policy, PolicyBuilder};
use crate::record::{Content, Ended, Operation, Replay, StateName};
use crate::store::{Claim, FullStore, StoreError};
use crate::unknown::{BoxError, Recovery};
pub use drain::Drained;
pub use permit::{Grant, Lost, Permit, Settled};
pub use rebuilder::Rebuilder;

use claim_sender::PendingClaim;
use drain::Drain;
use lease_renewer::Keepers;
use waiters::Waiters;

/// Decides for each intent: execute it, replay it, or reject it.
///
/// Cheap to clone; clones share the store and the waiters. One engine serves many
/// operations: give each its policy by [`Engine::with_policy`].
#[derive(Clone)]
pub struct Engine(Arc<Guarding>);

/// In one allocation: every permit has its engine, and so counts one owner more, not two. What is
/// read has cache lines of its own, beside the count.
#[repr(align(128))]
struct Guarding {
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
    keepers: Keepers,
}

/// What to do about an intent.
#[derive(Debug)]
#[must_use]
pub enum Begin {
    /// Run it, and say by the permit what came of it.
    Execute(Permit),
    /// It was done before: this is what came of it.
    Replay(Replay),
    /// Neither.
    Reject(Rejection),
}

/// Why an intent is neither executed nor replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The key was used for another request. Never retry with it.
    #[error("the key was used for another request; a new request needs a new key")]
    Mismatch {
        /// In which of the intent's parts the two differ, as far as that is known.
        difference: Difference,
    },
    /// The first attempt is still running. Retry with the same key, later.
    #[error("operation {operation} is still running; retry with the same key in {retry_after:?}")]
    Running {
        /// The operation's name.
        operation: OperationId,
        /// When to come again.
        retry_after: Duration,
    },
    /// Nobody can prove what happened. Look at the operation, do not retry blindly.
    #[error("nobody can prove what happened to operation {operation}; look before you retry")]
    Unknown {
        /// The operation's name.
        operation: OperationId,
    },
    /// The business reference belongs to another request, or to another key where the first one
    /// keeps it for itself.
    #[error("the business reference belongs to another request")]
    ReferenceTaken {
        /// The operation that it belongs to, if that is still there.
        operation: Option<OperationId>,
        /// In which of the intent's parts the two differ, as far as that is known.
        difference: Difference,
    },
    /// The key is past its retention. Look the resource up first.
    #[error("the key has expired; look the resource up before you send it under a new key")]
    Expired,
}

/// Why the engine could not decide. Nothing was executed, and the same key is safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The store did not answer.
    #[error("the store is unavailable; nothing was executed")]
    Unavailable(#[source] StoreError),
    /// The engine is shutting down.
    #[error("shutting down; nothing was executed")]
    Draining,
    /// The operation was done, but its reply could not be rebuilt.
    #[error("the reply of operation {operation} could not be rebuilt")]
    Rebuild {
        /// The operation's name.
        operation: OperationId,
        /// What the rebuilder said.
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

    /// The same engine, guarding by another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self(Arc::new(Guarding { shared: Arc::clone(&self.0.shared), policy }))
    }

    /// The same engine with a few settings changed that keep the policy valid.
    pub(crate) fn reconfigured(&self, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Self {
        let policy = change(self.policy().to_builder()).build();
        self.with_policy(policy.unwrap_or_else(|invalid| unreachable!("{invalid}")))
    }

    /// The policy it guards by.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// How it makes record ids.
    pub fn identity(&self) -> &Identity {
        &self.shared().identity
    }

    /// Whether unknown outcomes are found out: the engine has a [`Recovery`].
    pub fn has_recovery(&self) -> bool {
        self.shared().recovery.is_some()
    }

    /// Decides about an intent, waiting for a running owner as long as the policy says.
    ///
    /// May be dropped at any point: a claim that was under way is withdrawn.
    pub async fn begin(&self, intent: &Intent) -> Result<Begin, BeginError> {
        match &intent.reference {
            // In boxes, here and below: what is rare makes neither every request's future larger
            // nor the code that it goes through.
            Some(reference) => self.begin_by_reference(intent, reference).boxed().await,
            None => {
                let id = self.shared().identity.record_id(&intent.scope, &intent.key);
                self.begin_record(&id, intent).await
            }
        }
    }

    /// What [`begin`](Self::begin) would replay to an intent that lives in this record, where
    /// the store can say that at once. `None` says nothing: begin, to know.
    pub fn recall(&self, id: &RecordId, fingerprint: &Fingerprint) -> Option<Replay> {
        if self.shared().drain.is_closed() {
            return None;
        }
        let replay = self.shared().store.recall(id, fingerprint)?;
        // A reference is made into a reply first, which takes its time.
        (!self.is_to_be_rebuilt(&replay)).then_some(replay)
    }

    /// Whether [`recall`](Self::recall) ever says anything: the store decides.
    pub fn recalls(&self) -> bool {
        self.shared().store.recalls()
    }

    /// Decides about an intent by the record that it lives in.
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

    /// Claims again and again while somebody else runs.
    async fn claim_until(
        &self,
        id: &RecordId,
        intent: &Intent,
        give_up: Instant,
    ) -> Result<Begin, BeginError> {
        // Watching starts before the first claim, so that no wake-up falls between.
        let waiter = self.shared().waiters.watch(id);
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
        let mut pending = PendingClaim::new(self, *id, intent);
        let claim = pending.send().await?;
        match self.decided(&mut pending, claim, intent)? {
            Begin::Replay(replay) if self.is_to_be_rebuilt(&replay) => {
                self.rebuilt(replay).boxed().await
            }
            begin => Ok(begin),
        }
    }

    /// What the answer to a claim means.
    fn decided(
        &self,
        pending: &mut PendingClaim<'_>,
        claim: Claim,
        intent: &Intent,
    ) -> Result<Begin, BeginError> {
        Ok(match claim {
            Claim::Granted { lease, operation, attempt } => {
                Begin::Execute(pending.permit(lease, operation, attempt)?)
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
                let difference = identity.compare(pending.id(), &first, &intent.parts);
                Begin::Reject(Rejection::Mismatch { difference })
            }
            Claim::Expired => Begin::Reject(Rejection::Expired),
        })
    }

    /// Records the resolver's first use before the first claim. A store that fails is met again
    /// by the claim; until this succeeds, operations count as older than the resolver.
    async fn register(&self, recovery: &Recovery) {
        match timeout(self.policy().call_timeout(), recovery.register()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the resolver's first use is not stored"),
            Err(_) => tracing::debug!("the resolver's first use was not stored in time"),
        }
    }

    /// Asks the resolver about an unknown record; false where there is nobody to ask.
    async fn ask_resolver(&self, id: &RecordId) -> bool {
        let Some(recovery) = &self.shared().recovery else { return false };
        if self.policy().on_lapse() != OnLapse::Resolve {
            return false;
        }
        let asking = recovery.recover_one(id, self.policy().retention());
        match timeout(self.policy().claim_patience(), asking).await {
            Ok(Ok(recovered)) => tracing::debug!(?recovered, "asked the resolver"),
            Ok(Err(error)) => tracing::warn!(%error, "the verdict could not be stored"),
            Err(_) => tracing::warn!("the resolver did not answer in time"),
        }
        true
    }

    /// Whether what is stored is a reference, and somebody makes a reply of it.
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

    /// An operation by its name, for whoever may see it: the caller checks whose it is.
    pub async fn operation(&self, id: &OperationId) -> Result<Option<Operation>, StoreError> {
        let store = &self.shared().store;
        let Some(record) = store.find(id).await? else { return Ok(None) };
        let standing = match record.state.name() {
            StateName::Running if store.is_unknown(&record).await? => StateName::Unknown,
            StateName::Running => StateName::Running,
            // Nothing is decided by this clock; by the store's, the record is there.
            name => record.standing(self.shared().ambient.now()).unwrap_or(name),
        };
        Ok(Some(Operation::of(record, standing)))
    }

    /// Stops taking new intents and waits for running ones; those still running after
    /// `limit` are marked unknown at once instead of when their leases lapse.
    pub async fn drain(&self, limit: Duration) -> Drained {
        let cut_off = || {
            self.shared().keepers.take_all().into_iter().for_each(background_settlement::cut_off)
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
    /// How operations are guarded.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How record ids are made. Every engine on the store needs the same.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Whom to ask about unknown outcomes, where the policy is [`OnLapse::Resolve`].
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// Who makes replies from references.
    pub fn rebuilder(mut self, rebuilder: Arc<dyn Rebuilder>) -> Self {
        self.rebuilder = Some(rebuilder);
        self
    }

    /// Where time and randomness come from, for simulations.
    pub fn ambient(mut self, ambient: Arc<dyn Ambient>) -> Self {
        self.ambient = ambient;
        self
    }

    /// The engine.
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
            keepers: Keepers::default(),
        };
        Engine(Arc::new(Guarding { shared: Arc::new(shared), policy }))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("policy", &self.policy).finish_non_exhaustive()
    }
}
