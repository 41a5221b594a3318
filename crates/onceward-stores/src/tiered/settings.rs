//! Settings of the cache.

use std::time::Duration;

use crate::redis::Tls;

/// How a [`TieredStore`](super::TieredStore) uses its Redis. All processes on one store need the
/// same `prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Prefix of all keys.
    pub prefix: String,
    /// Longest time for a call to Redis. Short, as PostgreSQL answers instead.
    pub timeout: Duration,
    /// How long Redis is not called after it failed.
    pub pause: Duration,
    /// Longest time that an outcome is cached: as long as clients usually retry.
    pub keep: Duration,
    /// How long Redis may answer *busy* before PostgreSQL is asked again.
    pub busy: Duration,
    /// How long a process relies on the generation that PostgreSQL reported. All processes see an
    /// operator's decision after that time, whatever Redis does. A process asks once in that time
    /// while there is something to replay; with zero it asks every time.
    pub trust: Duration,
    /// Larger outcomes are not cached.
    pub outcome_bytes_max: usize,
    /// Number of connections to Redis.
    pub connections: usize,
    /// Certificates for `rediss:`, other than the system's.
    pub tls: Tls,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "onceward-cache".to_owned(),
            timeout: Duration::from_millis(50),
            pause: Duration::from_secs(1),
            keep: Duration::from_secs(3_600),
            busy: Duration::from_secs(1),
            trust: Duration::from_secs(1),
            outcome_bytes_max: 256 << 10,
            connections: 1,
            tls: Tls::default(),
        }
    }
}
