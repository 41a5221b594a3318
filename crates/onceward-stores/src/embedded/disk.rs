//! The few things the log asks of the disk, behind a seam, so that tests can fail them.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// What the store needs of a disk beyond plain reading. [`MachineDisk`] is the one to use;
/// tests bring others that fail, fill up or lose what was not synced.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`. Not durable before [`Disk::sync`].
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written to the file durable. An error means that nobody knows what
    /// is on the disk: the store stops.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Bytes that an ordinary user may still write beside `directory`.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// The machine's own disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineDisk;

impl Disk for MachineDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Data only: segments are written full before they are used, so no length and no
    /// allocation changes afterwards.
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

/// Options for a new file that only its owner may read: records hold what services answered.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Fails if a path no longer names the open file: the file was deleted or replaced, so what is
/// written to it is gone with the process, and another process may have taken the name.
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
