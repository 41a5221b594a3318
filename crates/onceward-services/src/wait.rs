//! Waiting for a fact about another process, which sends us no event.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks: short beside a server's start, long beside the cost of looking.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Looks until there is an answer, or the time is up.
pub(crate) fn until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        // Read before the look: the last look is never an early one.
        let last = began.elapsed() >= limit;
        match look() {
            Some(answer) => return Some(answer),
            None if last => return None,
            None => thread::sleep(BETWEEN_LOOKS),
        }
    }
}
