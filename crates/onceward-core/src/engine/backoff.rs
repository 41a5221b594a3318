//! Pauses between attempts.

use std::time::Duration;

use crate::clock::Ambient;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubling pauses with jitter, so that callers that failed together do not retry together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    doublings: u32,
}

impl Backoff {
    pub(super) async fn pause(&mut self, ambient: &dyn Ambient) {
        let full = FIRST.saturating_mul(1 << self.doublings.min(10)).min(LONGEST);
        self.doublings += 1;
        let share = (ambient.random() % 1000) as u32;
        tokio::time::sleep(full / 2 + full / 2 * share / 1000).await;
    }
}
