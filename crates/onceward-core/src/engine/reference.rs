//! Intents with a business reference: the key is linked to the reference's record, and the
//! intent is decided there.

use super::{Begin, BeginError, Engine, Rejection, Settled};
use crate::intent::{BusinessReference, Difference, Intent, ReferenceTarget};
use crate::policy::OnLapse;
use crate::record::{KeyLink, Replay};
use crate::store::{Effect, StoreError, StoreErrorKind};

impl Engine {
    /// Links the intent's key to its reference, then decides at the reference's record.
    pub(super) async fn begin_by_reference(
        &self,
        intent: &Intent,
        reference: &BusinessReference,
    ) -> Result<Begin, BeginError> {
        let target = reference.target(&self.shared().identity, intent);
        if let Some(decided) = self.link(intent, &target).await? {
            return Ok(decided);
        }
        let keep = self.policy().reference_retention();
        let remembering = self.reconfigured(|policy| policy.retention(keep).keep_key(true));
        match remembering.begin_record(&target.id, &target.intent).await? {
            Begin::Reject(Rejection::Mismatch { difference }) => {
                let first = self.shared().store.get(&target.id).await;
                let first = first.map_err(BeginError::Unavailable)?;
                let operation = first.map(|record| record.operation);
                Ok(Begin::Reject(Rejection::ReferenceTaken { operation, difference }))
            }
            begin => self.checked_and_rebuilt(&target.id, begin).await,
        }
    }

    /// Links the key to the target. Returns the decision instead if the key is used otherwise.
    async fn link(
        &self,
        intent: &Intent,
        target: &ReferenceTarget,
    ) -> Result<Option<Begin>, BeginError> {
        let id = self.shared().identity.record_id(&intent.scope, &intent.key);
        // No handler runs under the key itself, so a crash before the link did nothing.
        let linking = self.reconfigured(|policy| policy.on_lapse(OnLapse::Takeover));
        Ok(match linking.begin_record(&id, intent).await? {
            Begin::Execute(permit) => match permit.complete(target.link()).await {
                Settled::Durable | Settled::Pending => None,
                Settled::Superseded | Settled::Missing => {
                    return Err(BeginError::Unavailable(unlinked()));
                }
            },
            Begin::Replay(Replay { operation, ended, outcome }) => match target.follow(&outcome) {
                KeyLink::ThisReference => None,
                KeyLink::OtherReference => {
                    let difference = Difference::default();
                    Some(Begin::Reject(Rejection::Mismatch { difference }))
                }
                KeyLink::Unlinked => {
                    let replay = Begin::Replay(Replay { operation, ended, outcome });
                    Some(self.checked_and_rebuilt(&id, replay).await?)
                }
            },
            Begin::Reject(rejection) => Some(Begin::Reject(rejection)),
        })
    }
}

fn unlinked() -> StoreError {
    StoreError::new("engine", StoreErrorKind::Unavailable, Effect::NotApplied)
}
