//! Duplicates that wait for the running owner.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::intent::RecordId;
use crate::store::Store;

/// Wakes whoever waits in this process for a record that is settled in this process.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<HashMap<RecordId, watch::Sender<()>>>,
}

impl Waiters {
    /// Watches a record from now on.
    pub(super) fn watch(&self, id: &RecordId) -> Waiter<'_> {
        let mut waiting = self.waiting.lock();
        let woken = waiting.entry(*id).or_insert_with(|| watch::channel(()).0).subscribe();
        Waiter { waiters: self, id: *id, woken }
    }

    /// Wakes those who watch a record.
    pub(super) fn wake(&self, id: &RecordId) {
        if let Some(sender) = self.waiting.lock().get(id) {
            sender.send_replace(());
        }
    }
}

/// One who watches a record. Leaving (by time-out, too) touches nothing but this.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    woken: watch::Receiver<()>,
}

impl Waiter<'_> {
    /// Returns when the record may have changed, and at `latest` in any case.
    pub(super) async fn wait(&mut self, store: &dyn Store, latest: Instant) {
        tokio::select! {
            biased;
            _ = self.woken.changed() => {}
            () = store.changed(&self.id) => {}
            () = sleep_until(latest) => {}
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(sender) = self.waiters.waiting.lock().entry(self.id)
            && sender.get().receiver_count() == 1
        {
            sender.remove();
        }
    }
}
