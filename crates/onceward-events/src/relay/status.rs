//! Reports of a running relay.

use onceward_core::Timestamp;

/// The state of a running relay. Counters begin at its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayStatus {
    /// Lanes that it delivers.
    pub lanes: usize,
    /// Events in memory.
    pub queued: usize,
    /// Batches at the sink.
    pub batches: usize,
    /// Aggregates that it knows to be parked.
    pub parked: usize,
    /// Events delivered.
    pub delivered: u64,
    /// Failed attempts at an event.
    pub failed: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest event that it delivered last was published, on the database's clock.
    pub last_created_at: Option<Timestamp>,
    /// The sink's error, while it is down.
    pub sink_down: Option<String>,
    /// The database's error, while it cannot be asked.
    pub database_down: Option<String>,
}
