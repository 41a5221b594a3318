//! Sending a claim until its answer is known, and taking it back when nobody gets it.

use std::time::Duration;

use onceward_core::{Claim, ClaimRequest, Holder, Retention, SettleRequest, Settlement};
use onceward_stores::SharedStore;
use tokio::time::{Instant, sleep};

use super::{Claims, with_timeout};
use crate::api::ApiProblem;

/// How long a claim is tried whose answer was lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Who has drawn the owner token, and so who can send the claim again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// The worker.
    Worker,
    /// This process: if the worker gets no answer, nobody holds the grant.
    Server,
}

impl Claims {
    /// Sends it, and again while it is not known whether it was granted.
    pub(super) async fn send(
        &self,
        request: &ClaimRequest,
        source: TokenSource,
    ) -> Result<Claim, ApiProblem> {
        let give_up = Instant::now() + SEND_TIMEOUT;
        let mut unclear = false;
        loop {
            let error = match with_timeout(self.store.claim(request)).await {
                Ok(claim) => return Ok(claim),
                Err(error) => error,
            };
            unclear |= error.may_have_been_applied();
            if !unclear || Instant::now() >= give_up {
                if unclear && source == TokenSource::Server {
                    let (store, retention) = (self.store.clone(), self.limits.retention());
                    tokio::spawn(withdraw(store, request.clone(), retention));
                }
                return Err(error.into());
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

/// Releases a claim of which nobody was told. Ends at the latest when the lease does; from
/// then on the record stands at unknown.
async fn withdraw(store: SharedStore, request: ClaimRequest, retention: Retention) {
    let give_up = Instant::now() + request.lease;
    while Instant::now() < give_up {
        // Claiming again with the same token tells the fence.
        match with_timeout(store.claim(&request)).await {
            Ok(Claim::Granted { lease, .. }) => {
                let holder = Holder { owner: request.owner, fence: lease.fence };
                let settlement = Settlement::Release;
                let release = SettleRequest { id: request.id, holder, settlement, retention };
                if with_timeout(store.settle(&release)).await.is_ok() {
                    return;
                }
            }
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "withdrawing a claim"),
        }
        sleep(RETRY_DELAY).await;
    }
    tracing::warn!(record = ?request.id, "a claim could not be withdrawn; it will lapse");
}
