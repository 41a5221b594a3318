//! Rate limit for log lines that many requests could cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time in which a number of lines about the same thing may be written: short enough to see that
/// it continues, long enough to read them.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets some lines pass per interval and counts the others.
#[derive(Debug)]
pub struct LogThrottle {
    /// Lines in an interval.
    burst: u32,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    occurrences: u64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new(1)
    }
}

impl LogThrottle {
    /// A throttle that lets this many lines pass in ten seconds.
    pub const fn new(burst: u32) -> Self {
        let window = Window { began: None, lines: 0, occurrences: 0 };
        Self { burst, window: Mutex::new(window) }
    }

    /// Counts one occurrence. If a line is due, returns the number of occurrences since the last
    /// line, this one included.
    pub fn occurred(&self) -> Option<u64> {
        self.occurred_at(Instant::now())
    }

    fn occurred_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock();
        window.occurrences += 1;
        let over = |began| now.saturating_duration_since(began) >= INTERVAL;
        if window.began.is_none_or(over) {
            window.began = Some(now);
            window.lines = 0;
        }
        let due = window.lines < self.burst;
        due.then(|| {
            window.lines += 1;
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

    #[test]
    fn a_burst_is_told_one_by_one() {
        let (throttle, start) = (LogThrottle::new(3), Instant::now());
        let told: Vec<_> = (0..5).map(|_| throttle.occurred_at(start)).collect();
        assert_eq!(told, [Some(1), Some(1), Some(1), None, None]);
        assert_eq!(throttle.occurred_at(start + INTERVAL), Some(3));
    }
}
