//! The archive that a configuration names.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{Archive, ArchiveError, Archiving, Record};
use onceward_stores::file_archive::{FileArchive, OpenError};
use tokio::sync::OnceCell;

use crate::config::{self, ArchiveSetting};

/// Makes the line of a record, with or without its response.
pub(crate) type ArchiveLine = fn(&Record, bool) -> Result<String, serde_json::Error>;

/// An archive that is opened at its first use, or before.
struct ConfiguredArchive {
    directory: PathBuf,
    outcomes: bool,
    line: ArchiveLine,
    opened: OnceCell<FileArchive>,
}

/// Why the archive cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("store.archive: {0}")]
pub struct ArchiveOpenError(#[from] OpenError);

impl ConfiguredArchive {
    /// The archive of a store; `None` if none is set.
    fn of(settings: &config::Store, line: ArchiveLine) -> Option<Arc<Self>> {
        let Some(ArchiveSetting::Directory { path, outcomes }) = &settings.archive else {
            return None;
        };
        let (directory, outcomes) = (path.clone(), *outcomes);
        Some(Arc::new(Self { directory, outcomes, line, opened: OnceCell::new() }))
    }

    async fn open(&self) -> Result<&FileArchive, ArchiveOpenError> {
        let (line, outcomes) = (self.line, self.outcomes);
        let format = move |record: &Record| Ok(line(record, outcomes)?);
        let open = || async { Ok(FileArchive::open(&self.directory, format)?) };
        self.opened.get_or_try_init(open).await
    }
}

#[async_trait]
impl Archive for ConfiguredArchive {
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError> {
        self.open().await.map_err(ArchiveError::new)?.write(records).await
    }
}

/// Returns the treatment of expired records of a store. The archive is opened at its first use.
pub(crate) fn archiving(settings: &config::Store, line: ArchiveLine) -> Archiving {
    to(settings, ConfiguredArchive::of(settings, line))
}

/// The same with an archive that is open, so that one that cannot be written is an error of the start.
pub(super) async fn open_archiving(
    settings: &config::Store,
    line: ArchiveLine,
) -> Result<Archiving, ArchiveOpenError> {
    let archive = ConfiguredArchive::of(settings, line);
    if let Some(archive) = &archive {
        archive.open().await?;
    }
    Ok(to(settings, archive))
}

fn to(settings: &config::Store, archive: Option<Arc<ConfiguredArchive>>) -> Archiving {
    match (&settings.archive, archive) {
        (_, Some(archive)) => Archiving::To(archive),
        (Some(_off), None) => Archiving::Off,
        (None, None) => Archiving::Unset,
    }
}

/// Checks that the archive can be opened, without changing anything.
pub(super) fn check(settings: &config::Store) -> Result<(), ArchiveOpenError> {
    match &settings.archive {
        Some(ArchiveSetting::Directory { path, .. }) => Ok(FileArchive::check(path)?),
        Some(ArchiveSetting::Off) | None => Ok(()),
    }
}
