//! Rate limit for log lines that many requests could cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between two lines about the same thing: often enough to see that it continues,
/// rare enough to read.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one line pass per interval and counts the others.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    logged_at: Option<Instant>,
    occurrences: u64,
}

impl LogThrottle {
    /// Counts one occurrence. If a line is due, returns the number of occurrences since the last
    /// line, this one included.
    pub(crate) fn occurred(&self) -> Option<u64> {
        self.occurred_at(Instant::now())
    }

    fn occurred_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock();
        window.occurrences += 1;
        let due =
            window.logged_at.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        due.then(|| {
            window.logged_at = Some(now);
            std::mem::take(&mut window.occurrences)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_each_time_with_the_number_of_all() {
        let (throttle, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(throttle.occurred_at(start), Some(1));
        assert_eq!(throttle.occurred_at(start), None);
        assert_eq!(throttle.occurred_at(start + INTERVAL / 2), None);
        assert_eq!(throttle.occurred_at(start + INTERVAL), Some(3));
        assert_eq!(throttle.occurred_at(start + INTERVAL), None);
    }
}
