//! Shutting down without leaving claims behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Counts live permits and tells their keepers when time is up.
#[derive(Debug)]
pub(super) struct Drain {
    closed: AtomicBool,
    live: Arc<watch::Sender<usize>>,
    cut: watch::Sender<bool>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            closed: AtomicBool::new(false),
            live: Arc::new(watch::channel(0).0),
            cut: watch::channel(false).0,
        }
    }
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
        self.closed.load(Ordering::Acquire)
    }

    /// Counts one more live permit until the guard is dropped.
    pub(super) fn enter(&self) -> Live {
        self.live.send_modify(|live| *live += 1);
        Live(Arc::clone(&self.live))
    }

    /// Becomes true when whoever is still running is to be marked unknown.
    pub(super) fn cut(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    pub(super) async fn run(&self, limit: Duration) -> Drained {
        self.closed.store(true, Ordering::Release);
        let mut live = self.live.subscribe();
        if timeout(limit, live.wait_for(|live| *live == 0)).await.is_ok() {
            return Drained::Finished;
        }
        let marked = *live.borrow();
        self.cut.send_replace(true);
        let _ends_with_the_keepers = live.wait_for(|live| *live == 0).await;
        Drained::CutOff { marked }
    }
}

/// One live permit.
#[derive(Debug)]
pub(super) struct Live(Arc<watch::Sender<usize>>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.send_modify(|live| *live -= 1);
    }
}
