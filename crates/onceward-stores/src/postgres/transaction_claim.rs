//! Claims within a transaction, under the intent's key or under the business reference that the key
//! leads to.

use onceward_core::{
    Claim, ClaimRequest, Difference, Ended, Holder, Intent, KeyLink, Lapsed, RecordId,
    ReferenceTarget, Rejection, Replay, Retention, SettleRequest, Settlement,
};

use super::error::Fault;
use super::session::SqlClient;
use super::transactions::Transactions;

/// A claim and its request.
pub(super) struct TransactionClaim {
    pub(super) request: ClaimRequest,
    pub(super) claim: Claim,
    /// The retention of the outcome.
    pub(super) retention: Retention,
    /// True if the transaction must be committed even without a grant, as it made the key lead to
    /// its reference.
    pub(super) linked: bool,
    under: ClaimedUnder,
}

/// The record that was claimed.
enum ClaimedUnder {
    Key,
    Reference,
}

/// Where a key leads, as this transaction sees it.
enum KeyTarget {
    /// To the reference's record. `linked_now` is true if this transaction made it so.
    Record { linked_now: bool },
    /// Not there: the claim of the key is the answer.
    Other(Claim),
}

impl Transactions {
    /// Claims an intent under its reference if it has one, else under its key.
    pub(super) async fn claim(
        &self,
        tx: &impl SqlClient,
        intent: &Intent,
    ) -> Result<TransactionClaim, Fault> {
        let id = self.identity.record_id(&intent.scope, &intent.key);
        let request = self.request(id, intent);
        let retention = self.policy.retention();
        let under_key = |request, claim| TransactionClaim {
            request,
            claim,
            retention,
            linked: false,
            under: ClaimedUnder::Key,
        };
        let Some(reference) = &intent.reference else {
            let claim = self.executor.claim_in(tx, &request).await?;
            return Ok(under_key(request, claim));
        };
        let target = reference.target(&self.identity, intent);
        // No work runs under the key itself, so a lapsed owner did nothing there.
        let request = ClaimRequest { lapsed: Lapsed::Takeover, ..request };
        match self.link_key(tx, &request, &target).await? {
            KeyTarget::Other(claim) => Ok(under_key(request, claim)),
            KeyTarget::Record { linked_now } => self.claim_reference(tx, &target, linked_now).await,
        }
    }

    async fn claim_reference(
        &self,
        tx: &impl SqlClient,
        target: &ReferenceTarget,
        linked: bool,
    ) -> Result<TransactionClaim, Fault> {
        let request = self.request(target.id, &target.intent);
        let request = ClaimRequest { key: Some(target.intent.key.clone()), ..request };
        let claim = self.executor.claim_in(tx, &request).await?;
        let retention =
            Retention { keep: self.policy.reference_retention(), ..self.policy.retention() };
        Ok(TransactionClaim { request, claim, retention, linked, under: ClaimedUnder::Reference })
    }

    /// Makes a key lead to the reference's record, unless it leads elsewhere.
    async fn link_key(
        &self,
        tx: &impl SqlClient,
        request: &ClaimRequest,
        target: &ReferenceTarget,
    ) -> Result<KeyTarget, Fault> {
        match self.executor.claim_in(tx, request).await? {
            Claim::Granted { lease, .. } => {
                let settle = SettleRequest {
                    id: request.id,
                    holder: Holder { owner: request.owner, fence: lease.fence },
                    settlement: Settlement::Complete(target.link()),
                    retention: self.policy.retention(),
                };
                // Cannot be stale: this transaction holds the row until the commit.
                let _applied = self.executor.settle_in(tx, &settle).await?;
                Ok(KeyTarget::Record { linked_now: true })
            }
            Claim::Completed { operation, outcome } => Ok(match target.follow(&outcome) {
                KeyLink::ThisReference => KeyTarget::Record { linked_now: false },
                KeyLink::OtherReference => {
                    KeyTarget::Other(Claim::Mismatch { first: <_>::default() })
                }
                KeyLink::Unlinked => KeyTarget::Other(Claim::Completed { operation, outcome }),
            }),
            other => Ok(KeyTarget::Other(other)),
        }
    }

    fn request(&self, id: RecordId, intent: &Intent) -> ClaimRequest {
        ClaimRequest::for_intent(id, intent, &self.policy, &self.identity, &*self.ambient)
    }

    /// The answer to a claim that was not granted.
    pub(super) async fn judge(
        &self,
        tx: &impl SqlClient,
        intent: &Intent,
        claimed: &TransactionClaim,
    ) -> Result<Result<Replay, Rejection>, Fault> {
        let replay = |operation, ended, outcome| Ok(Replay { operation, ended, outcome });
        Ok(match claimed.claim.clone() {
            Claim::Completed { operation, outcome } => replay(operation, Ended::Completed, outcome),
            Claim::Failed { operation, outcome } => replay(operation, Ended::Failed, outcome),
            Claim::Granted { operation, .. } | Claim::Running { operation, .. } => {
                Err(Rejection::Running { operation, retry_after: self.policy.retry_after() })
            }
            Claim::Mismatch { first } => {
                let id = &claimed.request.id;
                let difference = self.identity.compare(id, &first, &intent.parts);
                Err(self.mismatch(tx, claimed, difference).await?)
            }
            Claim::Unknown { operation } => Err(Rejection::Unknown { operation }),
            Claim::Expired => Err(Rejection::Expired),
        })
    }

    async fn mismatch(
        &self,
        tx: &impl SqlClient,
        claimed: &TransactionClaim,
        difference: Difference,
    ) -> Result<Rejection, Fault> {
        Ok(match claimed.under {
            ClaimedUnder::Key => Rejection::Mismatch { difference },
            ClaimedUnder::Reference => {
                let seen = self.executor.read(tx, &[claimed.request.id]).await?.into_iter().next();
                let stored = seen.map(|row| row.stored).transpose()?;
                let operation = stored.map(|stored| stored.record.operation);
                Rejection::ReferenceTaken { operation, difference }
            }
        })
    }
}
