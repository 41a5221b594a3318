//! Errors of starting and reloading a gateway.

use std::io;

use super::snapshot::SnapshotError;
use crate::backend::{BackendError, OpenError};
use crate::config::LoopError;
use crate::net::{ListenError, TlsError};

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The engine cannot be built.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The configuration cannot be served.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A certificate cannot be loaded.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The upstream is the gateway itself.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// An address is in use, or does not belong to this machine.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket cannot be registered with the runtime.
    #[error("a socket cannot be registered: {0}")]
    Socket(#[source] io::Error),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(#[source] io::Error),
}

/// Why a running gateway refuses a configuration. The previous one stays in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A certificate cannot be loaded.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The upstream is the gateway itself.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// Keys would belong to other regions than before.
    #[error(
        "region (name, of_key, unnamed) cannot change while the gateway runs, because a key that was \
         used before could run in another region: docs/regions.md says how to change it"
    )]
    MovesKeys,
    /// The setting cannot change without a restart.
    #[error("{0} cannot change while the gateway runs: restart it")]
    NeedsRestart(&'static str),
}
