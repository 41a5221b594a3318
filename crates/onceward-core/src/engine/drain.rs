//! Shutdown that leaves no claim behind.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::per_thread::{PerThread, ThreadSlot};

/// Counts live claims and tells them when the drain's time is up.
///
/// All accesses are in one order (`SeqCst`): the last claim to leave sees that a drain has begun,
/// or the drain sees that no claim is left. A permit that is issued after that sees the drain and is
/// revoked. So counts only fall from then on, and may be read one by one. At worst that misses a
/// withdrawal that is just beginning, under which nothing has run.
#[derive(Debug, Default)]
pub(super) struct Drain {
    closed: AtomicBool,
    live: PerThread<AtomicUsize>,
    last_left: Notify,
    cut: AtomicBool,
    cut_off: Notify,
}

/// Result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All running operations were settled in time.
    Finished,
    /// The limit came first, and the operations still running were marked unknown.
    CutOff {
        /// Number of marked operations.
        marked: usize,
    },
}

impl Drain {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Counts one more until the guard is dropped.
    pub(super) fn guard(&self) -> DrainGuard<'_> {
        DrainGuard(self, self.enter())
    }

    /// Counts one more, which has to [`leave`](Self::leave) the slot that it entered.
    pub(super) fn enter(&self) -> ThreadSlot {
        let (slot, live) = self.live.current();
        live.fetch_add(1, SeqCst);
        slot
    }

    pub(super) fn leave(&self, slot: ThreadSlot) {
        if self.live.at(slot).fetch_sub(1, SeqCst) == 1 && self.is_closed() {
            self.last_left.notify_waiters();
        }
    }

    fn count(&self) -> usize {
        self.live.iter().map(|live| live.load(SeqCst)).sum()
    }

    /// Refuses new claims and waits for live ones. At the limit, calls `cut` to end those left.
    pub(super) async fn run(&self, limit: Duration, cut: impl FnOnce()) -> Drained {
        self.closed.store(true, SeqCst);
        if timeout(limit, self.empty()).await.is_ok() {
            return Drained::Finished;
        }
        let marked = self.count();
        self.cut.store(true, SeqCst);
        self.cut_off.notify_waiters();
        cut();
        self.empty().await;
        Drained::CutOff { marked }
    }

    /// Returns when no claim is live.
    async fn empty(&self) {
        loop {
            let last_left = self.last_left.notified();
            if self.count() == 0 {
                return;
            }
            last_left.await;
        }
    }

    /// Returns when a drain's limit is reached.
    pub(super) async fn cut_off(&self) {
        loop {
            let cut_off = self.cut_off.notified();
            if self.cut.load(SeqCst) {
                return;
            }
            cut_off.await;
        }
    }
}

/// Work that a drain waits for.
#[derive(Debug)]
pub(super) struct DrainGuard<'d>(&'d Drain, ThreadSlot);

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}
