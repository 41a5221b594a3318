//! Checks from outside: processes and directories.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use onceward_services::Server;

/// How many processes work in a directory: servers do, all of theirs. Nothing is found where
/// there is no `/proc`.
pub(crate) fn processes_in(directory: &Path) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let works_there = |entry: &fs::DirEntry| {
        // The directory of a process that works in a removed one ends in "(deleted)".
        let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        place.to_string_lossy().starts_with(&*directory.to_string_lossy())
    };
    processes.filter(works_there).count()
}

/// Waits until neither a process nor a directory is left, also under the name that the guard
/// gives it while it ends.
pub(crate) fn nothing_is_left(directory: &Path) -> bool {
    let name = directory.file_name().unwrap().to_string_lossy().into_owned();
    let is_left = || {
        let mut entries = fs::read_dir(directory.parent().unwrap()).unwrap().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
    };
    eventually(|| processes_in(directory) == 0 && !is_left())
}

/// Waits for a fact about other processes.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// The piece of shared memory by which PostgreSQL knows whether an earlier life of it goes on.
pub(crate) struct SharedMemory {
    id: String,
}

impl SharedMemory {
    /// Nothing on systems that do not list such pieces, and for a server in a container: there
    /// it ends with the container.
    pub(crate) fn of(postgres: &Server) -> Option<Self> {
        let note = fs::read_to_string(postgres.directory().join("data/postmaster.pid")).unwrap();
        let id = note.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
        let in_container = postgres.directory().join("postgres.container").exists();
        (!in_container && fs::exists(PIECES).unwrap()).then_some(Self { id })
    }

    pub(crate) fn exists(&self) -> bool {
        let pieces = fs::read_to_string(PIECES).unwrap();
        pieces.lines().any(|line| line.split_whitespace().nth(1) == Some(&self.id))
    }
}

const PIECES: &str = "/proc/sysvipc/shm";
