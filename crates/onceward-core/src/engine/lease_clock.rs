//! The owner's view of its lease, by its own monotonic clock.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::permit::LeaseLost;

/// Tells how long the owner may rely on its lease.
#[derive(Debug)]
pub(super) struct LeaseClock {
    state: Mutex<LeaseState>,
    ended: Notify,
}

#[derive(Debug, Clone, Copy)]
struct LeaseState {
    deadline: Instant,
    lost: Option<LeaseLost>,
}

impl LeaseClock {
    pub(super) fn until(deadline: Instant) -> Self {
        let state = LeaseState { deadline, lost: None };
        Self { state: Mutex::new(state), ended: Notify::new() }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }

    /// Checks that effects may be begun now.
    pub(super) fn check(&self) -> Result<(), LeaseLost> {
        let state = *self.state.lock();
        match state.lost {
            Some(lost) => Err(lost),
            None if Instant::now() >= state.deadline => Err(LeaseLost::Lapsed),
            None => Ok(()),
        }
    }

    /// Returns once effects may no longer be begun.
    pub(super) async fn lost(&self) -> LeaseLost {
        loop {
            // Registered before the check, so that no notification is missed.
            let ended = self.ended.notified();
            if let Err(lost) = self.check() {
                return lost;
            }
            tokio::select! {
                biased;
                () = ended => {}
                () = sleep_until(self.deadline()) => {} // a renewal may have moved it
            }
        }
    }

    /// True once the loss is established. A deadline that has just passed does not establish
    /// it: the next renewal may still find the lease alive.
    pub(super) fn is_lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    pub(super) fn extend(&self, deadline: Instant) {
        self.state.lock().deadline = deadline;
    }

    /// Ends the lease. A drain's word is final.
    pub(super) fn end(&self, lost: LeaseLost) {
        let mut state = self.state.lock();
        if state.lost != Some(LeaseLost::Drained) {
            state.lost = Some(lost);
        }
        drop(state);
        self.ended.notify_waiters();
    }
}
