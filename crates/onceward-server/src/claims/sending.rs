//! Sending a claim until its result is known, and releasing a grant that no worker receives.

use std::time::Duration;

use onceward_core::{Claim, ClaimRequest, Holder, Retention, SettleRequest, Settlement};
use onceward_stores::SharedStore;
use tokio::time::{Instant, sleep};

use super::{Claims, with_timeout};
use crate::api::ApiProblem;

/// Time for which a claim is sent again while its result is unclear.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Origin of the owner token: only it can send the claim again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// Drawn by the worker.
    Worker,
    /// Drawn by this process. If the worker gets no response, the grant has no holder.
    Server,
}

impl Claims {
    /// Sends a claim, again while it is unclear whether it was granted.
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

/// Releases a grant that no worker received. Gives up when the lease ends; from then on the record
/// is unknown.
async fn withdraw(store: SharedStore, request: ClaimRequest, retention: Retention) {
    let give_up = Instant::now() + request.lease;
    while Instant::now() < give_up {
        // The same claim with the same token returns the fence.
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
            Err(error) => tracing::debug!(%error, "a claim could not be withdrawn yet"),
        }
        sleep(RETRY_DELAY).await;
    }
    tracing::warn!(record = ?request.id, "a claim could not be withdrawn; its lease will lapse");
}
