//! Sending a claim until its answer is known, and taking it back when it never is.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::claim_handle::Held;
use super::lease_clock::Life;
use super::permit::Permit;
use super::{BeginError, Engine};
use crate::intent::{Intent, OperationId, RecordId};
use crate::record::{Holder, OwnerToken};
use crate::store::{
    Claim, ClaimRequest, Effect, Lease, SettleRequest, Settlement, StoreError, StoreErrorKind,
};

/// A claim that may have been granted without anybody knowing.
///
/// Dropped in that state (the answer never came, or the caller went away), it is sent
/// again in the background to learn its fence, and released: its handler never ran.
pub(super) struct PendingClaim<'a> {
    engine: &'a Engine,
    request: ClaimRequest,
    first_sent: Instant,
    perhaps_granted: bool,
}

impl<'a> PendingClaim<'a> {
    /// A claim under a fresh owner token, to be sent now.
    pub(super) fn new(engine: &'a Engine, id: RecordId, intent: &Intent) -> Self {
        let ambient = &*engine.shared().ambient;
        Self {
            engine,
            request: ClaimRequest {
                id,
                owner: OwnerToken::draw(ambient),
                operation: OperationId::draw(ambient, &id),
                scope: intent.scope.clone(),
                key: engine.policy().keep_key().then(|| intent.key.clone()),
                fingerprint: intent.fingerprint,
                sketch: engine.shared().identity.sketch(&id, &intent.parts),
                lease: engine.policy().lease(),
                lapsed: engine.policy().lapsed(),
            },
            first_sent: Instant::now(),
            perhaps_granted: false,
        }
    }

    pub(super) fn id(&self) -> &RecordId {
        &self.request.id
    }

    /// Sends it, and again with the same token while it is not known whether it was granted.
    pub(super) async fn send(&mut self) -> Result<Claim, BeginError> {
        self.perhaps_granted = true;
        let claim = match self.call().await {
            Ok(claim) => Ok(claim),
            Err(error) => self.send_again(error).boxed().await,
        };
        let claim = claim.map_err(BeginError::Unavailable)?;
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

    /// The permit of a claim that was granted, unless that came too late to begin anything; then
    /// `self` is withdrawn.
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
        let held = Held {
            engine: self.engine.clone(),
            kept_by: self.engine.shared().keepers.here(),
            id: self.request.id,
            holder: Holder { owner: self.request.owner, fence: lease.fence },
            life: Life::until(deadline),
        };
        // Counted from when the claim was sent: its answer may have taken most of the lease.
        let renew_at = self.first_sent + policy.renew_every();
        let permit = Permit::issue(Arc::new(held), operation, attempt, renew_at);
        // It counts as running by now: either a drain has seen it, or the drain is seen here.
        if self.engine.shared().drain.is_closed() {
            permit.revoke();
            return Err(BeginError::Draining);
        }
        self.perhaps_granted = false;
        Ok(permit)
    }
}

impl PendingClaim<'_> {
    #[cold]
    fn withdraw(&self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(withdraw(self.engine.clone(), self.request.clone()));
        }
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        if self.perhaps_granted {
            self.withdraw();
        }
    }
}

/// Releases a claim whose answer was never used. Ends at the latest when the lease does;
/// from then on the record counts as unknown.
async fn withdraw(engine: Engine, request: ClaimRequest) {
    let _drained_only_after = engine.shared().drain.live();
    let give_up = Instant::now() + engine.policy().lease();
    let mut backoff = Backoff::default();
    while Instant::now() < give_up {
        // Claiming again with the same token tells the fence, and leaves a trace by which a
        // late duplicate of the first sending is recognised.
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
            Err(error) => tracing::debug!(%error, "withdrawing a claim"),
        }
        backoff.pause(&*engine.shared().ambient).await;
    }
    tracing::warn!(record = ?request.id, "a claim could not be withdrawn; it will lapse");
}

/// A store call under the engine's own time limit.
pub(super) async fn timed<T>(
    engine: &Engine,
    mut call: impl Future<Output = Result<T, StoreError>> + Send + Unpin,
) -> Result<T, StoreError> {
    // A store that answers at once costs no timer, and no room for one.
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
