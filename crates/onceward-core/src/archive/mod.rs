//! Archiving: expired records are written elsewhere before a store removes them.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Archive`, which keeps them; what a purge does about it |
//! | `purger` | removes exactly what was archived |
//! | `mark` | the store remembers that its records are archived |

mod mark;
mod purger;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::record::Record;
use crate::store::StoreError;

pub use purger::Purger;

/// Keeps expired records, before a store removes them.
#[async_trait]
pub trait Archive: Send + Sync + 'static {
    /// Writes records durably: when it returns, they survive the death of the process and of the
    /// machine. Sealed outcomes come sealed.
    ///
    /// The same records come again after an error, and after a crash between archiving and removal.
    /// So the archive has each of them at least once. An `Err` says nothing about which of them were
    /// written, and none of them is removed.
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError>;
}

/// Why an archive took no records.
#[derive(Debug)]
pub struct ArchiveError(Box<dyn Error + Send + Sync>);

impl ArchiveError {
    /// An error with its cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ArchiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Treatment of expired records before they are removed.
#[derive(Clone, Default)]
pub enum Archiving {
    /// Nothing. But if another process has archived records of this store, they stay: a process
    /// without its settings must not remove what the others archive.
    #[default]
    Unset,
    /// They are written to an archive.
    To(Arc<dyn Archive>),
    /// Nothing, although records of this store may have been archived before. Ends archiving for
    /// processes without an archive of their own, too.
    Off,
}

impl fmt::Debug for Archiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unset => "Unset",
            Self::To(_) => "To(…)",
            Self::Off => "Off",
        })
    }
}

/// Why a purge has stopped. Records removed before stay removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive failed. Nothing was removed.
    #[error("the archive cannot be written: {0}")]
    Archive(#[from] ArchiveError),
    /// The records of this store are archived, and this process has no archive. Nothing was removed.
    #[error(
        "expired records of this store are archived before they are removed, and no archive is set \
         here"
    )]
    NoArchive,
    /// The store cannot archive: its server removes records by itself, or it does not outlive the
    /// process.
    #[error("this store cannot be archived, as it may remove expired records by itself")]
    NotArchivable,
}
