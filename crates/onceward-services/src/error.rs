//! Why a server is not there.

use std::io;

use crate::program::Program;

/// Why a server is not there, or did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Nothing is installed that could be started.
    #[error("{} is not installed: {advice}", program.name())]
    Missing {
        /// What is missing.
        program: Program,
        /// What to do about it.
        advice: String,
    },
    /// Packages of a language could not be installed: its registry is out of reach, perhaps.
    #[error("{packages} could not be installed: {why}")]
    Packages {
        /// Which ones.
        packages: String,
        /// What the installer said.
        why: String,
    },
    /// The server ended, never became ready, or refused.
    #[error("{server}: {what}\n{log}")]
    Failed {
        /// Which one.
        server: String,
        /// What went wrong.
        what: String,
        /// The log's place and its last lines.
        log: String,
    },
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
}

impl ServiceError {
    /// For `map_err`: what was being done when the operating system refused.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Whether somebody else took the port between our look and the server's start.
    pub(crate) fn port_was_taken(&self) -> bool {
        match self {
            Self::Failed { log, .. } => log.to_lowercase().contains("address already in use"),
            Self::Missing { .. } | Self::Packages { .. } | Self::Io { .. } => false,
        }
    }
}
