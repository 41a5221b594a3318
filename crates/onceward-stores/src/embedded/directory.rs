//! The store's directory: whose it is, who has it open, and in which format it is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::disk::sync_directory;
use super::error::OpenError;

/// The format of the directory as a whole: which files there are, and their layouts.
const VERSION: u32 = 1;
/// The oldest reader of what this release writes.
const MINIMUM_READER: u32 = 1;

const FIRST_LINE: &str = "onceward embedded store";
const FORMAT: &str = "format";
const LOCK: &str = "lock";
/// There while a store is being made. With it and without a format, nothing was ever
/// acknowledged, so making it may begin anew.
const CREATING: &str = "creating";
const LOG: &str = "log";
const TREE: &str = "tree";
/// In the root of a file system of its own.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory that is ours alone while this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    state: Found,
    lock: File,
}

/// What a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet: the caller fills it and calls [`Directory::created`].
    Nothing,
    /// A store in a format that we read.
    Store,
}

impl Directory {
    /// Takes a directory, making it if there is none.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            fs::create_dir_all(path).map_err(OpenError::io("create", path))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                sync_directory(parent).map_err(OpenError::io("sync", parent))?;
            }
        }
        Self::existing(path, Missing::MayBeMade)
    }

    /// Takes a directory that must hold a store.
    pub(super) fn take_store(path: &Path) -> Result<Self, OpenError> {
        Self::existing(path, Missing::IsAnError)
    }

    fn existing(path: &Path, missing: Missing) -> Result<Self, OpenError> {
        let names = names(path).map_err(OpenError::io("read", path))?;
        let has = |name: &str| names.iter().any(|it| it == name);
        let foreign = |found: &str| {
            Err(OpenError::Foreign { directory: path.into(), found: found.to_owned() })
        };
        // Other programs have lock files too: without a format, or our mark that one is being
        // made, nothing else may be there. A lock file alone that is missing is no loss.
        let known = has(FORMAT) || has(LOCK) && has(CREATING);
        let ours = |name: &str| known || has(LOCK) && [LOCK, LOG, TREE].contains(&name);
        if let Some(found) = names.iter().find(|name| !ours(name)) {
            return foreign(found);
        }
        if names.is_empty() && missing == Missing::IsAnError {
            return foreign("nothing");
        }
        let lock = lock(path)?;
        let state = match (has(FORMAT), has(CREATING), has(LOG) || has(TREE)) {
            (true, _, _) => {
                check_format(path)?;
                Found::Store
            }
            (false, false, true) => {
                let detail = "it is missing, while records are there";
                return Err(OpenError::corrupt(&path.join(FORMAT), detail));
            }
            (false, true, _) | (false, false, false) => Found::Nothing,
        };
        let directory = Self { path: path.into(), state, lock };
        match (state, missing) {
            (Found::Store, Missing::IsAnError) => {}
            (Found::Nothing, Missing::IsAnError) => {
                return foreign("a store that was never finished");
            }
            (Found::Store, Missing::MayBeMade) => directory.remove_creating()?,
            (Found::Nothing, Missing::MayBeMade) => directory.begin_creating()?,
        }
        Ok(directory)
    }

    pub(super) fn state(&self) -> Found {
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
        File::create(&mark).map_err(OpenError::io("create", &mark))?;
        self.sync()?;
        for leftover in [self.log(), self.tree()] {
            if leftover.exists() {
                fs::remove_dir_all(&leftover).map_err(OpenError::io("remove", &leftover))?;
            }
        }
        fs::create_dir(self.log()).map_err(OpenError::io("create", &self.log()))?;
        self.sync()
    }

    /// Everything is in place: from now on it is a store.
    pub(super) fn created(&self) -> Result<(), OpenError> {
        let (path, draft) = (self.path.join(FORMAT), self.path.join("format.new"));
        write_format(&draft).map_err(OpenError::io("write", &draft))?;
        fs::rename(&draft, &path).map_err(OpenError::io("rename", &draft))?;
        self.sync()?;
        self.remove_creating()
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
    /// Closing alone would not do: a child process that is just being started still has a
    /// copy of the file.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    MayBeMade,
    IsAnError,
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
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(OpenError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { directory: directory.into() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path)(error)),
    }
}

fn write_format(path: &Path) -> io::Result<()> {
    let release = env!("CARGO_PKG_VERSION");
    let mut file = File::create(path)?;
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
        return Err(OpenError::corrupt(&path, "it does not say which format the store has"));
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
