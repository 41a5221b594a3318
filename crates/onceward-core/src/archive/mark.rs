//! A record of the store itself, which tells every process that expired records are archived.

use std::time::Duration;

use crate::clock::{Ambient, SystemAmbient};
use crate::intent::{Fingerprint, Identity, OperationId, RecordId, Scope, Sketch};
use crate::record::{Fence, Outcome, OwnerToken, Record, Retained, State, Tag};
use crate::store::{StoreAdmin, StoreError};

/// Longer than any record is kept.
const KEEP: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

const TAG: Tag = Tag::from_static("archived/v1");

/// The id of the mark. Without a secret, so that all processes use the same record, whatever their
/// identity.
fn id() -> RecordId {
    Identity::unkeyed().internal_id("archive", "")
}

/// Returns whether records of this store are archived.
pub(super) async fn is_set(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    let mark = store.get(&id()).await?;
    Ok(mark.is_some_and(|mark| matches!(mark.state, State::Completed { .. })))
}

/// Sets or removes the mark, unless it is so already.
///
/// A record is replaced only by a later one, so of two processes that disagree the later one wins.
pub(super) async fn set(store: &dyn StoreAdmin, archived: bool) -> Result<(), StoreError> {
    let before = store.get(&id()).await?;
    let is_archived = |mark: &Record| matches!(mark.state, State::Completed { .. });
    if before.as_ref().is_some_and(is_archived) == archived {
        return Ok(());
    }
    let above = before.map_or(0, |mark| mark.fence.0);
    let _kept_if_another_was_faster = store.import(&mark(archived, above)).await?;
    Ok(())
}

fn mark(archived: bool, above: u64) -> Record {
    let ambient = SystemAmbient::new();
    let now = crate::clock::Clock::now(&ambient);
    let until = now + KEEP;
    let retained = Retained { until, tombstone_until: until };
    Record {
        id: id(),
        operation: OperationId::draw(&ambient, &id()),
        scope: Scope::internal("archive"),
        key: None,
        fingerprint: Fingerprint::of_parts(&[]),
        sketch: Sketch::default(),
        path: None,
        state: match archived {
            true => State::Completed { outcome: Outcome::omitted(TAG, ""), retained },
            false => State::Released { retained },
        },
        owner: OwnerToken::draw(&ambient as &dyn Ambient),
        fence: Fence((above + 1).max(now.as_millis())),
        attempts: 1,
        taken_over: false,
        created_at: now,
        updated_at: now,
    }
}
