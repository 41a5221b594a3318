//! Settings of a relay.

use std::time::Duration;

use onceward_stores::postgres;

use super::route::Route;

/// Settings of a [`Relay`](super::Relay). The defaults suit most outboxes.
#[derive(Debug, Clone)]
pub struct RelaySettings {
    /// Connections and the schema of the outbox.
    pub postgres: postgres::Settings,
    /// Name of this relay, for operators.
    pub name: String,
    /// The aggregates that it delivers.
    pub route: Route,
    /// How long a lane stays with a relay that has died. The lanes of one that stops are free at
    /// once.
    pub lease: Duration,
    /// Longest time between two looks at the outbox. New events wake the relay earlier.
    pub poll: Duration,
    /// Most events in one batch.
    pub batch_events_max: usize,
    /// Most batches on their way to the sink.
    pub batches_max: usize,
    /// Most events in memory.
    pub buffer_events_max: usize,
    /// Most bytes of events in memory. One batch of reads may exceed it.
    pub buffer_bytes_max: usize,
    /// Longest time for a batch at the sink. Then its events are delivered again.
    pub deliver_timeout: Duration,
    /// Attempts at an event before [`on_failure`](Self::on_failure) applies. An event that the sink
    /// will never accept has one.
    pub attempts_max: u32,
    /// Pause of an aggregate after the first failed attempt. It doubles with each further one.
    pub backoff: Duration,
    /// Longest pause of an aggregate, and of the relay while the sink is down.
    pub backoff_max: Duration,
    /// Rule for an event that cannot be delivered.
    pub on_failure: OnFailure,
    /// Longest time that a relay which stops waits for its batches.
    pub drain: Duration,
}

/// Rule for an event after its last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Its aggregate waits for an operator. Its order is kept; other aggregates go on.
    #[default]
    Park,
    /// The event becomes a dead letter, and its aggregate goes on without it: its order is given up.
    DeadLetter,
    /// It is tried again for ever, and its aggregate waits.
    Retry,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            postgres: postgres::Settings::default(),
            name: format!("process {}", std::process::id()),
            route: Route::default(),
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            batch_events_max: 1_000,
            batches_max: 4,
            buffer_events_max: 20_000,
            buffer_bytes_max: 64 << 20,
            deliver_timeout: Duration::from_secs(60),
            attempts_max: 8,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            on_failure: OnFailure::Park,
            drain: Duration::from_secs(30),
        }
    }
}

impl RelaySettings {
    /// The pause after the `attempts`th failed attempt, with jitter.
    pub(super) fn backoff_after(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(16);
        let full = self.backoff.saturating_mul(1 << doublings).min(self.backoff_max);
        full.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }
}
