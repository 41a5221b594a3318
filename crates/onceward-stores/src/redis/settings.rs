//! What can be set, each with its reason.

use std::fmt;
use std::time::Duration;

/// How a [`RedisStore`](super::RedisStore) goes about it. All processes on one store need the
/// same `prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What the names of all keys begin with, so that several stores fit into one server.
    pub prefix: String,
    /// How long a call may take, connecting included. Well under a third of the shortest lease,
    /// or renewals come too late.
    pub timeout: Duration,
    /// How many connections calls are spread over. One carries about a hundred thousand calls a
    /// second; more help where [`Settings::wait`] makes each of them stand still.
    pub connections: usize,
    /// How much longer than promised a settled record's key lives if nobody purges it.
    pub margin: Duration,
    /// How many replicas have to have a claim or a settlement before it counts.
    pub wait: Option<Wait>,
    /// For how long no new claims are granted after the server lost its data: longer than
    /// clients go on sending again what they sent before.
    pub quarantine: Duration,
    /// What to do with a server that has never seen this store, or has lost all of it.
    pub empty: OnEmpty,
    /// What the server may be like although it is not safe.
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

/// Replicas to wait for: `WAIT`, whose answer is checked.
///
/// Best effort, and not strong: what a failover promotes is chosen without regard to it, and a
/// write that was not acknowledged in time stands all the same. It makes losing a write rarer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How many.
    pub replicas: u32,
    /// For how long, before the call is an error that may have been applied.
    pub timeout: Duration,
}

/// What to do with a server without any mark of this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEmpty {
    /// It is new: begin, unless the server says that the store was there before.
    Begin,
    /// It may have lost its data: begin with a quarantine.
    Quarantine,
    /// It must not be: refuse to open.
    Refuse,
}

/// What the server may be like although it is not safe; each is warned about at every opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allow {
    /// A `maxmemory-policy` other than `noeviction`: records may vanish while they count.
    pub eviction: bool,
    /// No append-only file: a restart forgets everything, or the last minutes.
    pub no_persistence: bool,
}

/// Certificates as PEM text. `Debug` shows whether they are there.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Who may have signed the server's certificate, instead of whom the system trusts.
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
