//! Claiming an intent inside of a transaction, where it lives: under its key, or under the
//! business reference that its key leads to.

use onceward_core::{
    Claim, ClaimRequest, Difference, Ended, Holder, Intent, KeyLink, Lapsed, RecordId,
    ReferenceTarget, Rejection, Replay, Retention, SettleRequest, Settlement,
};

use super::error::Fault;
use super::session::Ask;
use super::transactions::Transactions;

/// A claim, and what it was about.
pub(super) struct Claimed {
    pub(super) request: ClaimRequest,
    pub(super) claim: Claim,
    /// How long to keep what it comes to.
    pub(super) retention: Retention,
    /// Whether the transaction has something to commit although the claim was not granted: the
    /// key leads to its reference now.
    pub(super) linked: bool,
    under: Under,
}

/// Which record was claimed.
enum Under {
    Key,
    Reference,
}

/// Where a key leads, as seen from inside of a transaction.
enum Led {
    /// To the target, since now or since earlier.
    There { now: bool },
    /// Nowhere: the claim of the key is the answer.
    Not(Claim),
}

impl Transactions {
    /// Claims an intent where it lives.
    pub(super) async fn claim(&self, tx: &impl Ask, intent: &Intent) -> Result<Claimed, Fault> {
        let id = self.identity.record_id(&intent.scope, &intent.key);
        let request = self.request(id, intent);
        let retention = self.policy.retention();
        let under_key = |request, claim| Claimed {
            request,
            claim,
            retention,
            linked: false,
            under: Under::Key,
        };
        let Some(reference) = &intent.reference else {
            let claim = self.steps.claim_in(tx, &request).await?;
            return Ok(under_key(request, claim));
        };
        let target = reference.target(&self.identity, intent);
        // Nothing runs under the key itself: whoever died there did nothing.
        let request = ClaimRequest { lapsed: Lapsed::Takeover, ..request };
        match self.lead(tx, &request, &target).await? {
            Led::Not(claim) => Ok(under_key(request, claim)),
            Led::There { now } => self.claim_place(tx, &target, now).await,
        }
    }

    async fn claim_place(
        &self,
        tx: &impl Ask,
        target: &ReferenceTarget,
        linked: bool,
    ) -> Result<Claimed, Fault> {
        let request = self.request(target.id, &target.intent);
        let request = ClaimRequest { key: Some(target.intent.key.clone()), ..request };
        let claim = self.steps.claim_in(tx, &request).await?;
        let retention =
            Retention { keep: self.policy.reference_retention(), ..self.policy.retention() };
        Ok(Claimed { request, claim, retention, linked, under: Under::Reference })
    }

    /// Makes a key lead to a target, unless it leads somewhere else.
    async fn lead(
        &self,
        tx: &impl Ask,
        request: &ClaimRequest,
        target: &ReferenceTarget,
    ) -> Result<Led, Fault> {
        match self.steps.claim_in(tx, request).await? {
            Claim::Granted { lease, .. } => {
                let settle = SettleRequest {
                    id: request.id,
                    holder: Holder { owner: request.owner, fence: lease.fence },
                    settlement: Settlement::Complete(target.link()),
                    retention: self.policy.retention(),
                };
                // Nobody else can have it: the row is ours until the commit.
                let _applied = self.steps.settle_in(tx, &settle).await?;
                Ok(Led::There { now: true })
            }
            Claim::Completed { operation, outcome } => Ok(match target.follow(&outcome) {
                KeyLink::ThisReference => Led::There { now: false },
                KeyLink::OtherReference => Led::Not(Claim::Mismatch { first: <_>::default() }),
                KeyLink::Unlinked => Led::Not(Claim::Completed { operation, outcome }),
            }),
            other => Ok(Led::Not(other)),
        }
    }

    fn request(&self, id: RecordId, intent: &Intent) -> ClaimRequest {
        ClaimRequest::for_intent(id, intent, &self.policy, &self.identity, &*self.ambient)
    }

    /// What a claim that was not granted comes to.
    pub(super) async fn judge(
        &self,
        tx: &impl Ask,
        intent: &Intent,
        claimed: &Claimed,
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
        tx: &impl Ask,
        claimed: &Claimed,
        difference: Difference,
    ) -> Result<Rejection, Fault> {
        Ok(match claimed.under {
            Under::Key => Rejection::Mismatch { difference },
            Under::Reference => {
                let seen = self.steps.read(tx, &[claimed.request.id]).await?.into_iter().next();
                let stored = seen.map(|row| row.stored).transpose()?;
                let operation = stored.map(|stored| stored.record.operation);
                Rejection::ReferenceTaken { operation, difference }
            }
        })
    }
}
