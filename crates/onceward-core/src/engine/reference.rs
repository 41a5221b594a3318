//! Intents that have a business reference: their key leads to the reference's record.

use super::{Begin, BeginError, Engine, Rejection, Settled};
use crate::intent::{BusinessReference, Difference, Intent, Place};
use crate::policy::OnLapse;
use crate::record::{Follow, Replay};
use crate::store::{Effect, StoreError, StoreErrorKind};

impl Engine {
    /// Decides about an intent under its reference, once its key leads there.
    pub(super) async fn begin_by_reference(
        &self,
        intent: &Intent,
        reference: &BusinessReference,
    ) -> Result<Begin, BeginError> {
        let place = reference.place(&self.shared().identity, intent);
        if let Some(other) = self.link(intent, &place).await? {
            return Ok(other);
        }
        let keep = self.policy().reference_retention();
        let remembering = self.reconfigured(|policy| policy.retention(keep).keep_key(true));
        match remembering.begin_record(&place.id, &place.intent).await? {
            Begin::Reject(Rejection::Mismatch { difference }) => {
                let first = self.shared().store.get(&place.id).await;
                let first = first.map_err(BeginError::Unavailable)?;
                let operation = first.map(|record| record.operation);
                Ok(Begin::Reject(Rejection::ReferenceTaken { operation, difference }))
            }
            begin => Ok(begin),
        }
    }

    /// Makes the key lead to the place; else says what the key is.
    async fn link(&self, intent: &Intent, place: &Place) -> Result<Option<Begin>, BeginError> {
        let id = self.shared().identity.record_id(&intent.scope, &intent.key);
        // Nothing runs under the key itself, so whoever died before it led anywhere did nothing.
        let linking = self.reconfigured(|policy| policy.on_lapse(OnLapse::Takeover));
        Ok(match linking.begin_record(&id, intent).await? {
            Begin::Execute(permit) => match permit.complete(place.link()).await {
                Settled::Durable | Settled::Pending => None,
                Settled::Superseded | Settled::Missing => {
                    return Err(BeginError::Unavailable(unlinked()));
                }
            },
            Begin::Replay(Replay { operation, ended, outcome }) => match place.follow(&outcome) {
                Follow::Here => None,
                Follow::Elsewhere => {
                    let difference = Difference::default();
                    Some(Begin::Reject(Rejection::Mismatch { difference }))
                }
                Follow::Outcome => Some(Begin::Replay(Replay { operation, ended, outcome })),
            },
            Begin::Reject(rejection) => Some(Begin::Reject(rejection)),
        })
    }
}

fn unlinked() -> StoreError {
    StoreError::new("engine", StoreErrorKind::Unavailable, Effect::NotApplied)
}
