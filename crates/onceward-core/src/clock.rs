//! Time and randomness, which the core takes from outside.

use std::fmt;
use std::ops::Add;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time on a *store's* clock: milliseconds since the Unix epoch.
///
/// Leases and retention are judged by the clock of the store that wrote the timestamp, so
/// clock skew between nodes cannot end a lease early.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The timestamp that many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time until `later`; zero if that is in the past.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The clock by which a store judges leases and retention.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Wall time and randomness outside of stores. Wall time is used for operation ids, for the
/// reconciler's backoff and to show expired operations. It never decides about a lease.
/// Simulations bring their own, so that a seed repeats.
pub trait Ambient: Clock {
    /// 128 unpredictable bits.
    fn random(&self) -> u128;
}

/// The machine's clock and random numbers.
///
/// Wall time is read once and then advanced by the monotonic clock, so a wall clock that
/// jumps neither ends a lease early nor prolongs it.
#[derive(Debug, Clone)]
pub struct SystemAmbient {
    wall_at_start: Timestamp,
    start: Instant,
}

impl SystemAmbient {
    /// Reads the wall clock once and counts from there.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_at_start: Timestamp(0) + wall, start: Instant::now() }
    }
}

impl Default for SystemAmbient {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemAmbient {
    fn now(&self) -> Timestamp {
        self.wall_at_start + self.start.elapsed()
    }
}

impl Ambient for SystemAmbient {
    fn random(&self) -> u128 {
        rand::random()
    }
}
