//! By how much the clocks of two stores differ, told by claims of a record of our own.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Effect, Fingerprint, FullStore, Holder, Lapsed, OperationId, Outcome,
    OwnerToken, Retention, SettleRequest, Settlement, Sketch, StoreError, StoreErrorKind, Tag,
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::charter::{Place, draw};

const LEASE: Duration = Duration::from_secs(5);
/// Another process may be asking too.
const TRIES: usize = 100;
const REST: Duration = Duration::from_millis(20);

/// By how many milliseconds a clock is ahead of another one: at most, and at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) most: i64,
    pub(super) least: i64,
}

/// By how much the clock of `one` is ahead of that of `other`.
pub(super) async fn ahead(
    one: &dyn FullStore,
    other: &dyn FullStore,
    place: &Place,
) -> Result<Ahead, StoreError> {
    let began = Instant::now();
    let (one, other) = (told(one, place, began).await?, told(other, place, began).await?);
    Ok(Ahead { most: one.most - other.least, least: one.least - other.most })
}

/// What a clock shows more than our own stopwatch.
async fn told(store: &dyn FullStore, place: &Place, began: Instant) -> Result<Ahead, StoreError> {
    for _ in 0..TRIES {
        let before = began.elapsed();
        let request = request(place);
        if let Claim::Granted { lease, .. } = store.claim(&request).await? {
            let after = began.elapsed();
            let shown = millis(Duration::from_millis(lease.until.as_millis())) - millis(LEASE);
            settle(store, place, Holder { owner: request.owner, fence: lease.fence }).await?;
            return Ok(Ahead { most: shown - millis(before), least: shown - millis(after) });
        }
        sleep(REST).await;
    }
    Err(StoreError::new("dual", StoreErrorKind::Unavailable, Effect::NotApplied)
        .caused_by("somebody else asks for the time"))
}

fn request(place: &Place) -> ClaimRequest {
    ClaimRequest {
        id: place.id,
        owner: OwnerToken::from_bytes(draw().into_bytes()),
        operation: OperationId::from(Uuid::nil()),
        scope: place.scope.clone(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"clock"]),
        sketch: Sketch::default(),
        lease: LEASE,
        lapsed: Lapsed::Takeover,
    }
}

/// Leaves nothing that counts.
async fn settle(store: &dyn FullStore, place: &Place, holder: Holder) -> Result<(), StoreError> {
    let retention = Retention { keep: Duration::ZERO, tombstone: Duration::ZERO };
    let outcome = Outcome::omitted(Tag::from_static("onceward-clock/v1"), "");
    let settlement = Settlement::Complete(outcome);
    let request = SettleRequest { id: place.id, holder, settlement, retention };
    store.settle(&request).await.map(drop)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
