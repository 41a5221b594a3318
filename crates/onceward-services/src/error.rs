//! Errors of starting and controlling servers.

use std::io;

use crate::program::Program;

/// An error of starting or controlling a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The program is not installed.
    #[error("{} is not installed: {advice}", program.name())]
    Missing {
        /// The missing program.
        program: Program,
        /// The advice.
        advice: String,
    },
    /// Packages of a language could not be installed: its registry is out of reach, perhaps.
    #[error("{packages} could not be installed: {why}")]
    Packages {
        /// The packages.
        packages: String,
        /// The installer's output.
        why: String,
    },
    /// The server ended, never became ready, or refused.
    #[error("{server}: {what}\n{log}")]
    Failed {
        /// The server.
        server: String,
        /// Description for people.
        what: String,
        /// The log's place and its last lines.
        log: String,
    },
    /// A call of the operating system failed.
    #[error("{doing}: {source}")]
    Io {
        /// The attempted action.
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
}

impl ServiceError {
    /// Makes an error of the operating system, for `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// True if another process took the port between the check and the server's start.
    pub(crate) fn port_was_taken(&self) -> bool {
        match self {
            Self::Failed { log, .. } => log.to_lowercase().contains("address already in use"),
            Self::Missing { .. } | Self::Packages { .. } | Self::Io { .. } => false,
        }
    }
}
