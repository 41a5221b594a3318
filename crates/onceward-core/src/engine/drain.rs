//! Shutting down without leaving claims behind.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::per_thread::{Lane, Lanes};

/// Counts what is alive and tells it when time is up.
///
/// All in one order (`SeqCst`): the last one to leave sees that a drain has begun, or the
/// drain sees that nobody is left. A permit that comes in after that sees the drain, and is taken
/// back: so from then on lanes only empty, and may be counted one by one. At worst that misses a
/// withdrawal that just begins, under which nothing has run.
#[derive(Debug, Default)]
pub(super) struct Drain {
    closed: AtomicBool,
    live: Lanes<AtomicUsize>,
    last_left: Notify,
    cut: AtomicBool,
    cut_off: Notify,
}

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything that ran was settled in time.
    Finished,
    /// The limit came first; that many were marked unknown.
    CutOff {
        /// How many were still running.
        marked: usize,
    },
}

impl Drain {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Counts one more until the guard is dropped.
    pub(super) fn live(&self) -> Live<'_> {
        Live(self, self.enter())
    }

    /// Counts one more, which has to [`leave`](Self::leave) where it came in.
    pub(super) fn enter(&self) -> Lane {
        let (lane, live) = self.live.here();
        live.fetch_add(1, SeqCst);
        lane
    }

    pub(super) fn leave(&self, lane: Lane) {
        if self.live.at(lane).fetch_sub(1, SeqCst) == 1 && self.is_closed() {
            self.last_left.notify_waiters();
        }
    }

    fn count(&self) -> usize {
        self.live.iter().map(|live| live.load(SeqCst)).sum()
    }

    /// Takes nothing new, waits for what lives, and at the limit has it `cut` off.
    pub(super) async fn run(&self, limit: Duration, cut: impl FnOnce()) -> Drained {
        self.closed.store(true, SeqCst);
        if timeout(limit, self.nobody_left()).await.is_ok() {
            return Drained::Finished;
        }
        let marked = self.count();
        self.cut.store(true, SeqCst);
        self.cut_off.notify_waiters();
        cut();
        self.nobody_left().await;
        Drained::CutOff { marked }
    }

    async fn nobody_left(&self) {
        loop {
            let last_left = self.last_left.notified();
            if self.count() == 0 {
                return;
            }
            last_left.await;
        }
    }

    /// Whether what still runs was to be marked unknown, and whatever comes now too.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut.load(SeqCst)
    }

    /// Returns when a drain's limit is reached.
    pub(super) async fn cut_off(&self) {
        loop {
            let cut_off = self.cut_off.notified();
            if self.is_cut_off() {
                return;
            }
            cut_off.await;
        }
    }
}

/// Something that a drain waits for.
#[derive(Debug)]
pub(super) struct Live<'d>(&'d Drain, Lane);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}
