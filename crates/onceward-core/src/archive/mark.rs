//! A record of the store itself, which tells every process that expired records are archived.
//!
//! Its fingerprint tells so. It has no outcome, so no sealing key is needed to read it, and those of
//! its time may be gone.

use std::time::Duration;

use crate::clock::{Ambient, SystemAmbient};
use crate::intent::{Fingerprint, Identity, OperationId, RecordId, Scope, Sketch};
use crate::record::{Fence, OwnerToken, Record, Retained, State};
use crate::store::{StoreAdmin, StoreError};

/// Longer than any record is kept.
const KEEP: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// The id of the mark. Without a secret, so that all processes use the same record, whatever their
/// identity.
fn id() -> RecordId {
    Identity::unkeyed().internal_id("archive", "")
}

fn fingerprint(archived: bool) -> Fingerprint {
    let part: &[u8] = if archived { b"archived" } else { b"not archived" };
    Fingerprint::of_parts(&[part])
}

fn is_archived(mark: &Record) -> bool {
    mark.fingerprint == fingerprint(true)
}

/// Returns whether records of this store are archived.
pub(super) async fn is_set(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    Ok(store.get(&id()).await?.as_ref().is_some_and(is_archived))
}

/// Sets or removes the mark, unless it is so already.
///
/// A record is replaced only by a later one, so of two processes that disagree the later one wins.
pub(super) async fn set(store: &dyn StoreAdmin, archived: bool) -> Result<(), StoreError> {
    let before = store.get(&id()).await?;
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
        fingerprint: fingerprint(archived),
        sketch: Sketch::default(),
        path: None,
        state: State::Released { retained },
        owner: OwnerToken::draw(&ambient as &dyn Ambient),
        fence: Fence((above + 1).max(now.as_millis())),
        attempts: 1,
        taken_over: false,
        created_at: now,
        updated_at: now,
    }
}
