//! Disk operations of the log, behind a trait so that tests can make them fail.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The operations that the store needs of a disk, beyond reads. Use [`SystemDisk`]; tests have others that fail,
/// fill up or lose writes that were not synced.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`. Not durable before [`Disk::sync`].
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written to the file durable. After an error the content of the disk is
    /// unknown, and the store stops.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Returns the bytes that an unprivileged user may still write on the disk of `directory`.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// The machine's own disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Syncs data only: segments are filled before use, so neither their length nor their
    /// allocation changes.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Makes creations, renames and removals in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Options for a new file that only its owner may read: records contain replies of services.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Fails if a path no longer names the open file. The file was deleted or replaced then: what is
/// written to it is lost with the process, and another process may use the name.
pub(super) fn must_be_named(file: &File, path: &Path) -> io::Result<()> {
    let ours = file.metadata()?;
    let replaced = match fs::metadata(path) {
        Ok(named) => (named.dev(), named.ino()) != (ours.dev(), ours.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if !replaced {
        return Ok(());
    }
    let text = format!("{} was deleted or replaced while it was open", path.display());
    Err(io::Error::other(text))
}
