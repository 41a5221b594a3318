//! Duplicates that wait for the running owner.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use crate::intent::RecordId;
use crate::store::FullStore;

/// Enough that callers rarely meet at one lock.
const SHARDS: usize = 16;

/// Wakes the waiters of a record when it is settled in this process.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Registered waiters, usually zero, so `wake` costs one load. A waiter is counted before
    /// it claims, and `wake` reads the count after the settlement, so no wake-up is missed.
    registered: AtomicUsize,
    shards: [Mutex<HashMap<RecordId, Arc<Notify>>>; SHARDS],
}

impl Waiters {
    /// Registers a waiter for a record.
    pub(super) fn register(&self, id: &RecordId) -> Waiter<'_> {
        self.registered.fetch_add(1, SeqCst);
        let settled = Arc::clone(self.shard(id).lock().entry(*id).or_default());
        Waiter { waiters: self, id: *id, settled }
    }

    /// Wakes all waiters of a record.
    pub(super) fn wake(&self, id: &RecordId) {
        if self.registered.load(SeqCst) == 0 {
            return;
        }
        if let Some(settled) = self.shard(id).lock().get(id) {
            settled.notify_waiters();
        }
    }

    fn shard(&self, id: &RecordId) -> &Mutex<HashMap<RecordId, Arc<Notify>>> {
        &self.shards[usize::from(id.as_bytes()[0]) % SHARDS]
    }
}

/// One registered waiter. Dropping it (after a time-out, too) removes only itself.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    settled: Arc<Notify>,
}

impl Waiter<'_> {
    /// The next wake-up from now on. Take it *before* claiming.
    pub(super) fn next(&self) -> Notified<'_> {
        self.settled.notified()
    }

    /// Returns when the record may have changed, at `latest` in any case.
    pub(super) async fn wait(&self, next: Notified<'_>, store: &dyn FullStore, latest: Instant) {
        tokio::select! {
            biased;
            () = next => {}
            () = store.changed(&self.id) => {}
            () = sleep_until(latest) => {}
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(settled) = self.waiters.shard(&self.id).lock().entry(self.id)
            // The map's reference and this one: no other waiter is left.
            && Arc::strong_count(settled.get()) == 2
        {
            settled.remove();
        }
        self.waiters.registered.fetch_sub(1, SeqCst);
    }
}
