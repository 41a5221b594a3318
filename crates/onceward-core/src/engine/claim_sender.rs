//! Sends a claim until its answer is known, and withdraws it where that fails.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::claim_handle::ClaimHandle;
use super::lease_clock::LeaseClock;
use super::permit::Permit;
use super::{BeginError, Engine, Shared};
use crate::clock::Ambient;
use crate::intent::{Identity, Intent, OperationId, RecordId};
use crate::policy::Policy;
use crate::record::Holder;
use crate::store::{
    Claim, ClaimRequest, Effect, Lease, SettleRequest, Settlement, StoreError, StoreErrorKind,
};

/// Who drew the owner token of a claim. Only its drawer can send the claim again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// The caller, who can send the same claim again. It is never withdrawn.
    Caller,
    /// This process. A grant that the caller does not get has no holder, and is withdrawn.
    Engine,
}

/// A claim that is sent until its answer is known.
///
/// A claim that may have been granted is withdrawn on drop (the answer never came, or the
/// caller went away): it is sent again in the background to learn its fence, and released. Its
/// handler never ran.
pub(super) struct ClaimSender<'a> {
    engine: &'a Engine,
    request: ClaimRequest,
    token: TokenSource,
    first_sent: Instant,
    perhaps_granted: bool,
}

impl<'a> ClaimSender<'a> {
    /// A claim by a fresh owner token, to be sent now.
    pub(super) fn new(engine: &'a Engine, id: RecordId, intent: &Intent) -> Self {
        let Shared { identity, ambient, .. } = engine.shared();
        let request = ClaimRequest::for_intent(id, intent, engine.policy(), identity, &**ambient);
        Self::of(engine, request, TokenSource::Engine)
    }

    fn of(engine: &'a Engine, request: ClaimRequest, token: TokenSource) -> Self {
        Self { engine, request, token, first_sent: Instant::now(), perhaps_granted: false }
    }

    pub(super) fn id(&self) -> &RecordId {
        &self.request.id
    }

    /// Sends the claim, and repeats it with the same token while its effect is unclear.
    pub(super) async fn send(&mut self) -> Result<Claim, StoreError> {
        self.perhaps_granted = true;
        let claim = match self.call().await {
            Ok(claim) => claim,
            Err(error) => self.send_again(error).boxed().await?,
        };
        self.perhaps_granted = matches!(claim, Claim::Granted { .. });
        Ok(claim)
    }

    async fn send_again(&mut self, mut error: StoreError) -> Result<Claim, StoreError> {
        let give_up = self.first_sent + self.engine.policy().claim_patience();
        let mut backoff = Backoff::default();
        let mut unclear = false;
        loop {
            unclear |= error.may_have_been_applied();
            self.perhaps_granted = unclear;
            if !unclear || Instant::now() >= give_up {
                return Err(error);
            }
            backoff.pause(&*self.engine.shared().ambient).await;
            match self.call().await {
                Ok(claim) => return Ok(claim),
                Err(again) => error = again,
            }
        }
    }

    async fn call(&self) -> Result<Claim, StoreError> {
        timed(self.engine, self.engine.shared().store.claim(&self.request)).await
    }

    /// Issues the permit of a granted claim. Fails if the grant came too late to begin anything;
    /// the claim is then withdrawn on drop.
    pub(super) fn permit(
        &mut self,
        lease: Lease,
        operation: OperationId,
        attempt: u32,
    ) -> Result<Permit, BeginError> {
        let policy = self.engine.policy();
        let deadline = self.first_sent + policy.lease() - policy.drift();
        if Instant::now() >= deadline {
            let late = StoreErrorKind::Timeout;
            let error = StoreError::new("engine", late, Effect::MayHaveBeenApplied);
            return Err(BeginError::Unavailable(error));
        }
        let handle = ClaimHandle {
            engine: self.engine.clone(),
            renewed_by: self.engine.shared().renewers.current(),
            id: self.request.id,
            operation,
            scope: self.request.scope.clone(),
            fingerprint: self.request.fingerprint,
            holder: Holder { owner: self.request.owner, fence: lease.fence },
            began: self.first_sent,
            lease: LeaseClock::until(deadline),
        };
        // Counted from the first sending: the answer may have taken most of the lease.
        let renew_at = self.first_sent + policy.renew_every();
        let permit = Permit::issue(Arc::new(handle), operation, attempt, renew_at);
        // The permit is counted by now: either a drain sees it, or it sees the drain here.
        if self.engine.shared().drain.is_closed() {
            permit.revoke();
            return Err(BeginError::Draining);
        }
        self.perhaps_granted = false;
        Ok(permit)
    }
}

impl ClaimSender<'_> {
    #[cold]
    fn withdraw(&self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(withdraw(self.engine.clone(), self.request.clone()));
        }
    }
}

impl Drop for ClaimSender<'_> {
    fn drop(&mut self) {
        if self.perhaps_granted && self.token == TokenSource::Engine {
            self.withdraw();
        }
    }
}

impl Engine {
    /// Sends a claim as [`begin`](Engine::begin) does: again with the same token while its effect
    /// is unclear. For callers that pass a grant on, such as the claims API: there is no permit,
    /// and the lease is not renewed.
    ///
    /// May be dropped at any point. A claim that was under way is then withdrawn, if its token is
    /// the engine's.
    pub async fn send_claim(
        &self,
        request: ClaimRequest,
        token: TokenSource,
    ) -> Result<Claim, StoreError> {
        let mut sender = ClaimSender::of(self, request, token);
        let claim = sender.send().await?;
        sender.perhaps_granted = false;
        Ok(claim)
    }
}

impl ClaimRequest {
    /// A claim for an intent that lives in the record `id`, with the settings of a policy.
    pub fn for_intent(
        id: RecordId,
        intent: &Intent,
        policy: &Policy,
        identity: &Identity,
        ambient: &dyn Ambient,
    ) -> Self {
        let Intent { scope, key, fingerprint, parts, path, .. } = intent;
        Self {
            key: policy.keep_key().then(|| key.clone()),
            sketch: identity.sketch(&id, parts),
            path: path.clone(),
            lapsed: policy.lapsed(),
            unpurged: policy.unpurged(),
            ..Self::new(ambient, id, scope.clone(), *fingerprint, policy.lease())
        }
    }
}

/// Releases a claim that was not used. Gives up when the lease ends; the record then stands at
/// unknown.
async fn withdraw(engine: Engine, request: ClaimRequest) {
    let _drain_waits = engine.shared().drain.guard();
    let give_up = Instant::now() + request.lease;
    let mut backoff = Backoff::default();
    while Instant::now() < give_up {
        // The same token gets the same fence, and the release that follows leaves a record by
        // which a late duplicate of the first sending is recognised.
        match timed(&engine, engine.shared().store.claim(&request)).await {
            Ok(Claim::Granted { lease, .. }) => {
                let release = SettleRequest {
                    id: request.id,
                    holder: Holder { owner: request.owner, fence: lease.fence },
                    settlement: Settlement::Release,
                    retention: engine.policy().retention(),
                };
                if timed(&engine, engine.shared().store.settle(&release)).await.is_ok() {
                    engine.shared().waiters.wake(&request.id);
                    return;
                }
            }
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "the claim could not be withdrawn, will retry"),
        }
        backoff.pause(&*engine.shared().ambient).await;
    }
    tracing::warn!(record = ?request.id, "the claim could not be withdrawn, its lease will lapse");
}

/// A store call under the engine's call timeout.
pub(super) async fn timed<T>(
    engine: &Engine,
    mut call: impl Future<Output = Result<T, StoreError>> + Send + Unpin,
) -> Result<T, StoreError> {
    // A store that answers at once needs no timer, and no room for one in the future.
    let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut call).poll(cx)));
    if let Poll::Ready(answer) = at_once.await {
        return answer;
    }
    match timeout(engine.policy().call_timeout(), call).boxed().await {
        Ok(answer) => answer,
        Err(_) => {
            Err(StoreError::new("engine", StoreErrorKind::Timeout, Effect::MayHaveBeenApplied))
        }
    }
}
