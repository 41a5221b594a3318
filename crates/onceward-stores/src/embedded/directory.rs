//! The store's directory: its lock, its format and its access rights.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::disk::{must_be_named, private_file, sync_directory};
use super::error::OpenError;
use super::log;

/// Format of the directory as a whole: its files and their layouts.
const VERSION: u32 = 1;
/// Oldest format whose readers understand what this release writes.
const MINIMUM_READER: u32 = 1;

const FIRST_LINE: &str = "onceward embedded store";
const FORMAT: &str = "format";
const LOCK: &str = "lock";
/// Present while a store is created. With it and without a format nothing was acknowledged yet, so
/// creation starts again.
const CREATING: &str = "creating";
const LOG: &str = "log";
const TREE: &str = "tree";
/// Present in the root of every ext file system.
const LOST_AND_FOUND: &str = "lost+found";

/// Mode bits that grant access to others than the owner.
const OTHERS: u32 = 0o077;

/// A directory that this process has to itself while the value lives.
///
/// Two files are locked. `lock` exists before the store is created, and earlier releases check it.
/// It may be deleted, so the lock that counts is on the log's mark: a directory without its mark is
/// refused as damaged, so the lock cannot be avoided by deleting the file.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    state: DirectoryState,
    lock: File,
    /// The log's mark, locked; `None` while the store is created.
    data: Option<File>,
}

/// Content of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryState {
    /// Nothing yet. The caller fills it and calls [`Directory::created`].
    Empty,
    /// A store in a known format.
    Store,
}

impl Directory {
    /// Takes a directory, and creates it if it is missing.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(parent) = parent {
                fs::create_dir_all(parent).map_err(OpenError::io("create", parent))?;
            }
            private_directory(path)?;
            if let Some(parent) = parent {
                sync_directory(parent).map_err(OpenError::io("sync", parent))?;
            }
        }
        Self::existing(path, IfMissing::Create)
    }

    /// Takes a directory that must hold a store.
    pub(super) fn take_store(path: &Path) -> Result<Self, OpenError> {
        Self::existing(path, IfMissing::Fail)
    }

    fn existing(path: &Path, if_missing: IfMissing) -> Result<Self, OpenError> {
        let names = names(path).map_err(OpenError::io("read", path))?;
        let has = |name: &str| names.iter().any(|it| it == name);
        let foreign = |found: &str| {
            Err(OpenError::Foreign { directory: path.into(), found: found.to_owned() })
        };
        // Other programs have lock files too. So without a format, or our mark that a store is
        // being created, no other file may be there. Losing the lock file alone does no harm.
        let known = has(FORMAT) || has(LOCK) && has(CREATING);
        let ours = |name: &str| known || has(LOCK) && [LOCK, LOG, TREE].contains(&name);
        if let Some(found) = names.iter().find(|name| !ours(name)) {
            return foreign(found);
        }
        if names.is_empty() && if_missing == IfMissing::Fail {
            return foreign("nothing");
        }
        let lock = lock(path)?;
        let state = match (has(FORMAT), has(CREATING), has(LOG) || has(TREE)) {
            (true, _, _) => {
                check_format(path)?;
                DirectoryState::Store
            }
            (false, false, true) => {
                let detail = "it is missing, and there are records";
                return Err(OpenError::corrupt(&path.join(FORMAT), detail));
            }
            (false, true, _) | (false, false, false) => DirectoryState::Empty,
        };
        let mut directory = Self { path: path.into(), state, lock, data: None };
        match (state, if_missing) {
            (DirectoryState::Store, IfMissing::Fail) => directory.lock_data()?,
            (DirectoryState::Empty, IfMissing::Fail) => {
                return foreign("a store whose creation was interrupted");
            }
            (DirectoryState::Store, IfMissing::Create) => {
                directory.lock_data()?;
                directory.remove_creating()?;
                directory.close_to_others();
            }
            (DirectoryState::Empty, IfMissing::Create) => directory.begin_creating()?,
        }
        Ok(directory)
    }

    /// Fails once the locked file is no longer the one in the directory. Another process may have
    /// opened the store then, so nothing more may be written or answered.
    pub(super) fn must_be_ours(&self) -> io::Result<()> {
        match &self.data {
            Some(data) => must_be_named(data, &self.mark()),
            None => Err(io::Error::other("the store is still being created")),
        }
    }

    fn lock_data(&mut self) -> Result<(), OpenError> {
        let path = self.mark();
        let open = OpenOptions::new().read(true).write(true).open(&path);
        let file = open.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::corrupt(&path, "it is missing"),
            _ => OpenError::io("open", &path)(error),
        })?;
        try_lock(&file, &path, &self.path)?;
        self.data = Some(file);
        self.must_be_ours().map_err(OpenError::io("lock", &path))
    }

    fn mark(&self) -> PathBuf {
        self.log().join(log::MARK)
    }

    /// Closes a directory that an earlier release, or another program, left open to other users.
    fn close_to_others(&self) {
        match close_to_others(&self.path) {
            Ok(0) => {}
            Ok(closed) => tracing::warn!(
                directory = ?self.path,
                closed,
                "other users could read files of the store: only its owner may now"
            ),
            Err(error) => tracing::warn!(
                directory = ?self.path,
                %error,
                "other users may be able to read files of the store, and their rights cannot be \
                 changed: run `chmod -R go= DIRECTORY` as its owner"
            ),
        }
    }

    pub(super) fn state(&self) -> DirectoryState {
        self.state
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.path.join(TREE)
    }

    fn begin_creating(&self) -> Result<(), OpenError> {
        let mark = self.path.join(CREATING);
        private_file().open(&mark).map_err(OpenError::io("create", &mark))?;
        self.sync()?;
        for leftover in [self.log(), self.tree()] {
            if leftover.exists() {
                fs::remove_dir_all(&leftover).map_err(OpenError::io("remove", &leftover))?;
            }
        }
        private_directory(&self.log())?;
        self.sync()
    }

    /// Completes the creation: from now on the directory is a store.
    pub(super) fn created(&mut self) -> Result<(), OpenError> {
        let (path, draft) = (self.path.join(FORMAT), self.path.join("format.new"));
        write_format(&draft).map_err(OpenError::io("write", &draft))?;
        fs::rename(&draft, &path).map_err(OpenError::io("rename", &draft))?;
        self.sync()?;
        self.remove_creating()?;
        if let Err(error) = close_to_others(&self.path) {
            tracing::warn!(directory = ?self.path, %error, "other users may read the new store");
        }
        self.lock_data()
    }

    fn remove_creating(&self) -> Result<(), OpenError> {
        let mark = self.path.join(CREATING);
        match fs::remove_file(&mark) {
            Ok(()) => self.sync(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(OpenError::io("remove", &mark)(error)),
        }
    }

    fn sync(&self) -> Result<(), OpenError> {
        sync_directory(&self.path).map_err(OpenError::io("sync", &self.path))
    }
}

impl Drop for Directory {
    /// Unlocks explicitly, as a child process that is just being started has a copy of the open
    /// file.
    fn drop(&mut self) {
        if let Some(data) = &self.data {
            let _ = data.unlock();
        }
        let _ = self.lock.unlock();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != LOST_AND_FOUND {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let open = private_file().truncate(false).open(&path);
    let file = open.map_err(OpenError::io("open", &path))?;
    try_lock(&file, &path, directory)?;
    Ok(file)
}

fn try_lock(file: &File, path: &Path, directory: &Path) -> Result<(), OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { directory: directory.into() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", path)(error)),
    }
}

fn private_directory(path: &Path) -> Result<(), OpenError> {
    DirBuilder::new().mode(0o700).create(path).map_err(OpenError::io("create", path))
}

/// Removes the access of other users to a directory and everything in it. Returns how many entries
/// changed.
fn close_to_others(path: &Path) -> io::Result<usize> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(0);
    }
    let (mut permissions, mut closed) = (found.permissions(), 0);
    if permissions.mode() & OTHERS != 0 {
        permissions.set_mode(permissions.mode() & !OTHERS);
        fs::set_permissions(path, permissions)?;
        closed += 1;
    }
    if found.is_dir() && path.file_name().is_none_or(|name| name != LOST_AND_FOUND) {
        for entry in fs::read_dir(path)? {
            closed += close_to_others(&entry?.path())?;
        }
    }
    Ok(closed)
}

fn write_format(path: &Path) -> io::Result<()> {
    let release = env!("CARGO_PKG_VERSION");
    let mut file = private_file().open(path)?;
    write!(
        file,
        "{FIRST_LINE}\nversion {VERSION}\nminimum reader {MINIMUM_READER}\nwritten by {release}\n"
    )?;
    file.sync_all()
}

fn check_format(directory: &Path) -> Result<(), OpenError> {
    let path = directory.join(FORMAT);
    let bytes = fs::read(&path).map_err(OpenError::io("read", &path))?;
    let format = std::str::from_utf8(&bytes).ok().and_then(Format::parse);
    let Some(format) = format else {
        return Err(OpenError::corrupt(&path, "it does not state the format of the store"));
    };
    if format.minimum > VERSION {
        let Format { version, minimum, written_by } = format;
        return Err(OpenError::Newer { directory: directory.into(), version, minimum, written_by });
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Format {
    version: u32,
    minimum: u32,
    written_by: String,
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == FIRST_LINE)?;
        let version = lines.next()?.strip_prefix("version ")?.parse().ok()?;
        let minimum = lines.next()?.strip_prefix("minimum reader ")?.parse().ok()?;
        let written_by = lines.next()?.strip_prefix("written by ")?.to_owned();
        (minimum <= version).then_some(Self { version, minimum, written_by })
    }
}
