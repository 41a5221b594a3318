//! How long an owner may count on its lease.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::permit::Lost;

/// The owner's own view of its lease, by its own monotonic clock.
#[derive(Debug)]
pub(super) struct Life {
    standing: Mutex<Standing>,
    ended: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    deadline: Instant,
    lost: Option<Lost>,
}

impl Life {
    pub(super) fn until(deadline: Instant) -> Self {
        let standing = Standing { deadline, lost: None };
        Self { standing: Mutex::new(standing), ended: Notify::new() }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.standing.lock().deadline
    }

    /// Whether effects may be begun now.
    pub(super) fn check(&self) -> Result<(), Lost> {
        let standing = *self.standing.lock();
        match standing.lost {
            Some(lost) => Err(lost),
            None if Instant::now() >= standing.deadline => Err(Lost::Lapsed),
            None => Ok(()),
        }
    }

    /// Returns once effects may no longer be begun.
    pub(super) async fn lost(&self) -> Lost {
        loop {
            // Taken before looking, so that no loss falls between.
            let ended = self.ended.notified();
            if let Err(lost) = self.check() {
                return lost;
            }
            tokio::select! {
                biased;
                () = ended => {}
                () = sleep_until(self.deadline()) => {} // which may have moved on meanwhile
            }
        }
    }

    /// Whether it was found to be lost. A deadline that has just passed is not found yet:
    /// the next renewal may still find the lease alive.
    pub(super) fn is_lost(&self) -> bool {
        self.standing.lock().lost.is_some()
    }

    pub(super) fn extend(&self, deadline: Instant) {
        self.standing.lock().deadline = deadline;
    }

    /// Ends it. Nothing comes after a drain.
    pub(super) fn lose(&self, lost: Lost) {
        let mut standing = self.standing.lock();
        if standing.lost != Some(Lost::Drained) {
            standing.lost = Some(lost);
        }
        drop(standing);
        self.ended.notify_waiters();
    }
}
