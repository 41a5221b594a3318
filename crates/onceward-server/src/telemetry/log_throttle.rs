//! Log lines that many requests could cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The shortest time between two lines about the same thing: enough to see that it goes on, and
/// few enough to read.
const BETWEEN: Duration = Duration::from_secs(10);

/// Lets one line of many pass, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    since: u64,
}

impl LogThrottle {
    /// Counts one occurrence. If a line is due, how often it occurred since the last line, this one
    /// included.
    pub(crate) fn occurred(&self) -> Option<u64> {
        self.occurred_at(Instant::now())
    }

    fn occurred_at(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        told.since += 1;
        let due = told.last.is_none_or(|last| now.saturating_duration_since(last) >= BETWEEN);
        due.then(|| {
            told.last = Some(now);
            std::mem::take(&mut told.since)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_each_time_with_the_number_of_all() {
        let (rarely, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(rarely.occurred_at(start), Some(1));
        assert_eq!(rarely.occurred_at(start), None);
        assert_eq!(rarely.occurred_at(start + BETWEEN / 2), None);
        assert_eq!(rarely.occurred_at(start + BETWEEN), Some(3));
        assert_eq!(rarely.occurred_at(start + BETWEEN), None);
    }
}
