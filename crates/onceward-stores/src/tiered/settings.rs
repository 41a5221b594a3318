//! What can be chosen about the cache.

use std::time::Duration;

use crate::redis::Tls;

/// How a [`Tiered`](super::Tiered) store uses its Redis. All processes on one store need the same
/// `prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How long a look at Redis may take. Short: what it does not tell, PostgreSQL does.
    pub timeout: Duration,
    /// How long Redis is left alone after it failed.
    pub pause: Duration,
    /// How long an outcome is kept in Redis, at most: as long as clients usually go on retrying.
    pub keep: Duration,
    /// How long *busy* is answered by Redis before PostgreSQL is asked again.
    pub busy: Duration,
    /// How long a process goes by what PostgreSQL told about the generation of the cache. An
    /// operator's decision is seen by all after that time, whatever Redis says; a process asks
    /// for it once in that time while there is something to replay. Zero asks every time.
    pub trust: Duration,
    /// Outcomes with more bytes than this are not put into Redis.
    pub outcome_bytes_max: usize,
    /// How many connections calls are spread over.
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
