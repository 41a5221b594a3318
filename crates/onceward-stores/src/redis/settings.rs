//! Settings of a Redis store.

use std::fmt;
use std::time::Duration;

/// How a [`RedisStore`](super::RedisStore) works. All processes on one store need the same
/// `prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Prefix of all keys, so that several stores fit on one server.
    pub prefix: String,
    /// Longest time for a call, connecting included. Well under a third of the shortest lease, or
    /// renewals come too late.
    pub timeout: Duration,
    /// Number of connections. One carries about a hundred thousand calls a second; more help where
    /// [`Settings::wait`] makes each call wait.
    pub connections: usize,
    /// How long the key of a settled record outlives its tombstone if it is not purged.
    pub margin: Duration,
    /// Replicas that must have a claim or a settlement before it counts.
    pub wait: Option<Wait>,
    /// How long no new claims are granted after the server lost data: longer than clients retry.
    pub quarantine: Duration,
    /// Handling of a server that has no data of this store.
    pub empty: OnEmpty,
    /// Unsafe properties of a server that are accepted.
    pub allow: Allow,
    /// Certificates for `rediss:`, other than the system's.
    pub tls: Tls,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "onceward".to_owned(),
            timeout: Duration::from_secs(2),
            connections: 1,
            margin: Duration::from_secs(3_600),
            wait: None,
            quarantine: Duration::from_secs(3_600),
            empty: OnEmpty::Begin,
            allow: Allow::default(),
            tls: Tls::default(),
        }
    }
}

/// Replicas to wait for, by `WAIT`, whose reply is checked.
///
/// Best effort: a failover does not choose by it, and a write that too few replicas acknowledged
/// stands all the same. It makes the loss of a write rarer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Number of replicas.
    pub replicas: u32,
    /// Longest wait. After it the call fails as *may have been applied*.
    pub timeout: Duration,
}

/// Handling of a server that has no loss markers of this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEmpty {
    /// Set up a new store, unless the server shows that there was one before.
    Begin,
    /// Set up the store with a quarantine, as it may have lost its data.
    Quarantine,
    /// Refuse to open.
    Refuse,
}

/// Unsafe properties of a server that are accepted, with a warning at each opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allow {
    /// A `maxmemory-policy` other than `noeviction`: records may be evicted while they count.
    pub eviction: bool,
    /// No append-only file: a restart loses all records, or those of the last minutes.
    pub no_persistence: bool,
}

/// Certificates as PEM text. `Debug` shows only whether they are set.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificate authorities to trust instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}
