//! Clocks that tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{Ambient, Clock, Timestamp};
use tokio::time::Instant;

use crate::dice::Dice;

/// Start of test clocks: a day in 2026, so that timestamps have as many digits as in production.
pub const START_MS: u64 = 1_790_000_000_000;

/// A clock that stands still until a test moves it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock at [`START_MS`].
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(START_MS)))
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.0.fetch_add(duration.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's (paused) time, and can be made to jump.
#[derive(Debug, Clone)]
pub struct SimClock {
    start: Instant,
    offset_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that shows [`START_MS`] now.
    pub fn new() -> Self {
        Self { start: Instant::now(), offset_ms: Arc::default() }
    }

    /// Jumps forward or back.
    pub fn jump(&self, millis: i64) {
        self.offset_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// The same clock, wrong by a fixed amount.
    pub fn skewed(&self, millis: i64) -> Self {
        let offset = self.offset_ms.load(Ordering::SeqCst) + millis;
        Self { start: self.start, offset_ms: Arc::new(AtomicI64::new(offset)) }
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let shown = START_MS + self.start.elapsed().as_millis() as u64;
        Timestamp::from_millis(shown.saturating_add_signed(self.offset_ms.load(Ordering::SeqCst)))
    }
}

/// Time and randomness of a simulated node.
#[derive(Debug, Clone)]
pub struct SimAmbient {
    /// The node's wall clock.
    pub clock: SimClock,
    /// The seed's randomness.
    pub dice: Dice,
}

impl Clock for SimAmbient {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Ambient for SimAmbient {
    fn random(&self) -> u128 {
        self.dice.bits()
    }
}
