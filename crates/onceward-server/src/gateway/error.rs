//! Why a gateway does not start, or refuses a new configuration.

use std::io;

use super::snapshot::SnapshotError;
use crate::backend::{BackendError, OpenError};
use crate::config::LoopError;
use crate::net::{ListenError, TlsError};

/// A gateway that does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The engine on the store.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The configuration cannot be served.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Requests would come back to the gateway.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// An address is in use, or not this machine's.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket cannot be registered with the runtime.
    #[error("a socket cannot be watched: {0}")]
    Socket(#[source] io::Error),
    /// A thread cannot be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
}

/// A configuration that a running gateway refuses. The one before stays in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Requests would come back to the gateway.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// A setting that takes a restart.
    #[error("{0} cannot change while the gateway runs: restart it")]
    NeedsRestart(&'static str),
}
