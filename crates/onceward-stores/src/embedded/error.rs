//! Why an embedded store does not open.

use std::io;
use std::path::{Path, PathBuf};

/// Why a directory was not opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{} is open in another process: stop that one, or give this one a directory of its own",
        directory.display()
    )]
    Locked {
        /// The store's directory.
        directory: PathBuf,
    },
    /// It contains files of something else.
    #[error(
        "{} is not empty and holds no Onceward store: name an empty or a new directory (found {found})",
        directory.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// One of those files.
        found: String,
    },
    /// A newer release wrote it in a format that this one cannot read.
    #[error(
        "{} was written by Onceward {written_by} in format {version}, which needs a reader of format {minimum}: open it with release {written_by} or a later one",
        directory.display()
    )]
    Newer {
        /// The store's directory.
        directory: PathBuf,
        /// The format of the directory.
        version: u32,
        /// The oldest format whose readers understand it.
        minimum: u32,
        /// The release that wrote it.
        written_by: String,
    },
    /// A file is damaged or missing. It is never recreated or skipped: the lost record may be of a
    /// payment.
    #[error(
        "{} is damaged: {detail}. Nothing was changed: keep a copy, run `verify`, and restore the directory from a backup",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The problem.
        detail: String,
    },
    /// The operating system reported an error.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn corrupt(path: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), detail: detail.into() }
    }

    /// For `map_err`: the operation and its file.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
