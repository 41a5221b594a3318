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

/// So that few meet at one lock.
const SHARDS: usize = 16;

/// Wakes whoever waits in this process for a record that is settled in this process.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// How many watch: as a rule nobody, which is all that a settlement has to look at. Whoever
    /// watches is counted before the record is looked at, and whoever settles looks after it.
    watching: AtomicUsize,
    shards: [Mutex<HashMap<RecordId, Arc<Notify>>>; SHARDS],
}

impl Waiters {
    /// Watches a record from now on.
    pub(super) fn watch(&self, id: &RecordId) -> Waiter<'_> {
        self.watching.fetch_add(1, SeqCst);
        let settled = Arc::clone(self.shard(id).lock().entry(*id).or_default());
        Waiter { waiters: self, id: *id, settled }
    }

    /// Wakes those who watch a record.
    pub(super) fn wake(&self, id: &RecordId) {
        if self.watching.load(SeqCst) == 0 {
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
            // The map's own and this one's.
            && Arc::strong_count(settled.get()) == 2
        {
            settled.remove();
        }
        self.waiters.watching.fetch_sub(1, SeqCst);
    }
}
