//! Seeded random choices.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// Shared dice: on one thread, the same seed gives the same throws in the same order.
#[derive(Debug, Clone)]
pub struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    /// Dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        self.0.lock().random_bool(probability.clamp(0.0, 1.0))
    }

    /// A number from a range.
    pub fn number(&self, range: Range<u64>) -> u64 {
        self.0.lock().random_range(range)
    }

    /// An index below `length`.
    pub fn index(&self, length: usize) -> usize {
        self.0.lock().random_range(0..length)
    }

    /// A duration of whole milliseconds.
    pub fn millis(&self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// One of these choices.
    pub fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// 128 bits.
    pub fn bits(&self) -> u128 {
        let mut dice = self.0.lock();
        u128::from(dice.next_u64()) << 64 | u128::from(dice.next_u64())
    }
}
