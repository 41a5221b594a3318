//! Why a store does not open, in words that say what to do.

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
    /// There are files in it that are not ours.
    #[error(
        "{} is not empty and holds no Onceward store: name an empty or a new directory (found {found})",
        directory.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// A file that was found there.
        found: String,
    },
    /// A newer release wrote it in a way that this one cannot read.
    #[error(
        "{} was written by Onceward {written_by} in format {version}, which needs a reader of format {minimum}: open it with release {written_by} or a later one",
        directory.display()
    )]
    Newer {
        /// The store's directory.
        directory: PathBuf,
        /// The format it was written in.
        version: u32,
        /// The oldest format whose readers understand it.
        minimum: u32,
        /// The release that wrote it.
        written_by: String,
    },
    /// Something in it is damaged or missing. It is never recreated and never skipped:
    /// what is missing may be somebody's payment.
    #[error(
        "{} is damaged: {detail}. Nothing was changed: keep a copy, look with `verify`, and restore the directory from a backup",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The operating system said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn corrupt(path: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), detail: detail.into() }
    }

    /// For `map_err`: what was tried with which file.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
