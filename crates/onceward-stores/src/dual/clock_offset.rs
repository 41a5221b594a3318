//! The offset between the clocks of two stores, measured by claims of a reserved record.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Effect, Fingerprint, FullStore, Holder, Lapsed, OperationId, Outcome,
    OwnerToken, Retention, SettleRequest, Settlement, Sketch, StoreError, StoreErrorKind, Tag,
    Unpurged,
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::authority_record::{ReservedRecord, random_id};

const LEASE: Duration = Duration::from_secs(5);
/// Another process may be measuring too.
const TRIES: usize = 100;
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Bounds of how many milliseconds one clock is ahead of another; negative if it is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockOffset {
    pub(super) max: i64,
    pub(super) min: i64,
}

/// Measures how far the clock of `one` is ahead of the clock of `other`.
pub(super) async fn clock_offset(
    one: &dyn FullStore,
    other: &dyn FullStore,
    reserved: &ReservedRecord,
) -> Result<ClockOffset, StoreError> {
    let began = Instant::now();
    let one = offset_to_stopwatch(one, reserved, began).await?;
    let other = offset_to_stopwatch(other, reserved, began).await?;
    Ok(ClockOffset { max: one.max - other.min, min: one.min - other.max })
}

/// Measures how far a store's clock is ahead of the time since `began`.
async fn offset_to_stopwatch(
    store: &dyn FullStore,
    reserved: &ReservedRecord,
    began: Instant,
) -> Result<ClockOffset, StoreError> {
    for _ in 0..TRIES {
        let before = began.elapsed();
        let request = request(reserved);
        if let Claim::Granted { lease, .. } = store.claim(&request).await? {
            let after = began.elapsed();
            let shown = millis(Duration::from_millis(lease.until.as_millis())) - millis(LEASE);
            settle(store, reserved, Holder { owner: request.owner, fence: lease.fence }).await?;
            return Ok(ClockOffset { max: shown - millis(before), min: shown - millis(after) });
        }
        sleep(RETRY_AFTER).await;
    }
    Err(StoreError::new("dual", StoreErrorKind::Unavailable, Effect::NotApplied)
        .caused_by("another process is measuring the clocks; try again"))
}

fn request(reserved: &ReservedRecord) -> ClaimRequest {
    ClaimRequest {
        id: reserved.id,
        owner: OwnerToken::from_bytes(random_id().into_bytes()),
        operation: OperationId::from(Uuid::nil()),
        scope: reserved.scope.clone(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"clock"]),
        sketch: Sketch::default(),
        path: None,
        lease: LEASE,
        lapsed: Lapsed::Takeover,
        unpurged: Unpurged::Replace,
    }
}

/// Settles with no retention, so that the record is absent at once.
async fn settle(
    store: &dyn FullStore,
    reserved: &ReservedRecord,
    holder: Holder,
) -> Result<(), StoreError> {
    let retention = Retention { keep: Duration::ZERO, tombstone: Duration::ZERO };
    let outcome = Outcome::omitted(Tag::from_static("onceward-clock/v1"), "");
    let settlement = Settlement::Complete(outcome);
    let request = SettleRequest { id: reserved.id, holder, settlement, retention };
    store.settle(&request).await.map(drop)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
