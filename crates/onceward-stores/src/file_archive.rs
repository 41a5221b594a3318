//! An archive of expired records: files of lines in a directory.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use onceward_core::{Record, StoreAdmin, Sweeper, SystemAmbient};
//! # fn line_of(record: &Record) -> String { String::new() }
//! # fn example(store: Arc<dyn StoreAdmin>) -> Result<(), Box<dyn std::error::Error>> {
//! use onceward_stores::file_archive::FileArchive;
//!
//! let archive = FileArchive::open("./archive", |record| Ok(line_of(record)))?;
//! let sweeper = Sweeper::new(store, Arc::new(SystemAmbient::new())).archive(Arc::new(archive));
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - When [`Archive::write`] returns, the lines and the name of their file are synced.
//! - Each process has files of its own, one a day: `expired-2026-11-16-5f0c….jsonl`. Nothing is ever
//!   changed or removed, so finished files can be moved elsewhere, even today's: the next write
//!   begins another one.
//! - After a crash or a full disk a file may end with a part of a line. Its record was not removed
//!   and comes again, in another file.
//! - Only the owner can read the files (0600), and a new directory (0700).
//!
//! Unix only: it syncs directories.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{env, fmt};

use async_trait::async_trait;
use onceward_core::{Archive, ArchiveError, BoxError, Record};
use parking_lot::Mutex;

/// Makes the line of a record, without its end. The same record must give the same line.
type Format = dyn Fn(&Record) -> Result<String, BoxError> + Send + Sync;

/// An archive in a directory. See the [module](self) for its guarantees.
pub struct FileArchive {
    directory: Arc<ArchiveDirectory>,
    format: Box<Format>,
}

struct ArchiveDirectory {
    path: PathBuf,
    /// Tells the files of processes apart, on every machine that uses the directory.
    process: String,
    open: Mutex<OpenFile>,
}

/// The file of this process, while it can be written.
#[derive(Default)]
struct OpenFile {
    current: Option<DayFile>,
    /// Files that this process has begun.
    begun: u32,
}

struct DayFile {
    day: String,
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Why a directory cannot be an archive.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct OpenError {
    path: PathBuf,
    why: String,
}

impl FileArchive {
    /// Opens an archive in a directory, and creates the directory if only that is missing. Checks
    /// that it can be written.
    pub fn open(
        directory: impl AsRef<Path>,
        format: impl Fn(&Record) -> Result<String, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let path = absolute(directory.as_ref())?;
        let at = |error: io::Error| OpenError { path: path.clone(), why: error.to_string() };
        if !Self::exists(&path)? {
            DirBuilder::new().mode(0o700).create(&path).map_err(at)?;
            sync_directory(path.parent().unwrap_or(&path)).map_err(at)?;
        }
        let process = format!("{:016x}", rand::random::<u64>());
        probe(&path, &process).map_err(at)?;
        let directory = ArchiveDirectory { path, process, open: Mutex::default() };
        directory.warn_about_others();
        Ok(Self { directory: Arc::new(directory), format: Box::new(format) })
    }

    /// Checks what can be checked without changing anything: that the directory is one, or could be
    /// created.
    pub fn check(directory: impl AsRef<Path>) -> Result<(), OpenError> {
        Self::exists(&absolute(directory.as_ref())?).map(drop)
    }

    /// Returns whether the directory exists. Fails if it could not be created either.
    fn exists(path: &Path) -> Result<bool, OpenError> {
        let failed = |why: String| Err(OpenError { path: path.to_owned(), why });
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(true),
            Ok(_) => failed("it is not a directory".into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                Some(parent) if parent.is_dir() => Ok(false),
                // Not created: it may be the place of a disk that is not mounted.
                _ => failed("its parent directory does not exist; create it first".into()),
            },
            Err(error) => failed(error.to_string()),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }
}

#[async_trait]
impl Archive for FileArchive {
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError> {
        let mut lines = String::new();
        for record in records {
            let line = (self.format)(record).map_err(ArchiveError::new)?;
            debug_assert!(!line.contains('\n'), "one line for each record");
            lines.push_str(&line);
            lines.push('\n');
        }
        let directory = Arc::clone(&self.directory);
        let writing = tokio::task::spawn_blocking(move || directory.append(lines.as_bytes()));
        writing.await.map_err(ArchiveError::new)?.map_err(ArchiveError::new)
    }
}

impl ArchiveDirectory {
    /// Appends lines durably, to the file of today.
    fn append(&self, lines: &[u8]) -> Result<(), OpenError> {
        let mut open = self.open.lock();
        let day = today();
        open.current = open.current.take().filter(|file| file.day == day && file.is_named());
        let mut file = match open.current.take() {
            Some(file) => file,
            None => self.begin(day, &mut open.begun)?,
        };
        let path = file.path.clone();
        let failed = |error: io::Error| OpenError { path, why: error.to_string() };
        if let Err(error) = file.file.write_all(lines) {
            // A full disk, as a rule. Without the part that was written, the file is as before.
            if file.cut().is_ok() {
                open.current = Some(file);
            }
            return Err(failed(error));
        }
        if let Err(error) = file.sync() {
            // What is on the disk is unknown, so the file is not used again.
            file.leave();
            return Err(failed(error));
        }
        file.bytes += lines.len() as u64;
        open.current = Some(file);
        Ok(())
    }

    /// Begins another file, whose name is synced.
    fn begin(&self, day: String, begun: &mut u32) -> Result<DayFile, OpenError> {
        *begun += 1;
        let more = if *begun == 1 { String::new() } else { format!("-{begun}") };
        let path = self.path.join(format!("expired-{day}-{}{more}.jsonl", self.process));
        let mut options = OpenOptions::new();
        let created = options.append(true).create_new(true).mode(0o600).open(&path);
        let synced = created.and_then(|file| sync_directory(&self.path).map(|()| file));
        match synced {
            Ok(file) => Ok(DayFile { day, path, file, bytes: 0 }),
            Err(error) => Err(OpenError { path, why: error.to_string() }),
        }
    }

    fn warn_about_others(&self) {
        let mode = fs::metadata(&self.path).map_or(0, |found| found.mode());
        if mode & 0o007 != 0 {
            let path = self.path.display();
            tracing::warn!(
                "the archive {path} is open to all users of this machine: chmod o= {path}"
            );
        }
    }
}

impl DayFile {
    /// Makes everything written durable, under the name of the file.
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        match self.is_named() {
            true => Ok(()),
            false => Err(io::Error::other("it was moved or deleted while it was written")),
        }
    }

    /// True if its path still names it.
    fn is_named(&self) -> bool {
        let id = |found: fs::Metadata| (found.dev(), found.ino());
        let named = fs::metadata(&self.path).map(id);
        matches!((named, self.file.metadata().map(id)), (Ok(named), Ok(own)) if named == own)
    }

    /// Removes what was written since the last sync.
    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)
    }

    /// Ends the use of the file. If it cannot be cut, a part of a line stays in it.
    fn leave(self) {
        let _a_part_stays = self.cut();
        if self.bytes == 0 && self.is_named() {
            let _an_empty_file_stays = fs::remove_file(&self.path);
        }
    }
}

/// The path from the root: the working directory of a process may change.
fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    let failed = |error: io::Error| OpenError { path: path.to_owned(), why: error.to_string() };
    // Collected without `.`, for messages.
    Ok(env::current_dir().map_err(failed)?.join(path).components().collect())
}

/// Writes, syncs and removes a file.
fn probe(directory: &Path, process: &str) -> io::Result<()> {
    let path = directory.join(format!(".probe-{process}"));
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(b"probe").and_then(|()| file.sync_data()));
    let removed = fs::remove_file(&path);
    written.and(removed)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The day, in UTC.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

impl fmt::Debug for FileArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileArchive")
            .field("directory", &self.directory.path)
            .finish_non_exhaustive()
    }
}
