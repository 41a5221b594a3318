//! Duplicates that wait for the running owner.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use crate::intent::RecordId;
use crate::store::Store;

/// Wakes whoever waits in this process for a record that is settled in this process.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<HashMap<RecordId, Arc<Notify>>>,
}

impl Waiters {
    /// Watches a record from now on.
    pub(super) fn watch(&self, id: &RecordId) -> Waiter<'_> {
        let settled = Arc::clone(self.waiting.lock().entry(*id).or_default());
        Waiter { waiters: self, id: *id, settled }
    }

    /// Wakes those who watch a record.
    pub(super) fn wake(&self, id: &RecordId) {
        if let Some(settled) = self.waiting.lock().get(id) {
            settled.notify_waiters();
        }
    }
}

/// One who watches a record. Leaving (by time-out, too) touches nothing but this.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    settled: Arc<Notify>,
}

impl Waiter<'_> {
    /// The next wake-up from now on, to be taken *before* looking at the record.
    pub(super) fn next(&self) -> Notified<'_> {
        self.settled.notified()
    }

    /// Returns when the record may have changed, and at `latest` in any case.
    pub(super) async fn wait(&self, next: Notified<'_>, store: &dyn Store, latest: Instant) {
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
        if let Entry::Occupied(settled) = self.waiters.waiting.lock().entry(self.id)
            // The map's own and this one's.
            && Arc::strong_count(settled.get()) == 2
        {
            settled.remove();
        }
    }
}
