//! Stores in temporary directories, and short functions for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onceward_core::Clock;
use onceward_stores::embedded::{EmbeddedStore, Environment, Settings};
use tempfile::TempDir;

pub(crate) use crate::calls::{DAY, complete, granted, id, long, outcome, replay, request, settle};

pub(crate) fn small() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        memtable_bytes: 64 << 10,
        reserve_bytes: 0,
        ..Settings::small()
    }
}

pub(crate) fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, small()).unwrap()
}

pub(crate) fn open_at(directory: &Path, clock: Arc<dyn Clock>) -> EmbeddedStore {
    let environment = Environment { clock, ..Environment::default() };
    EmbeddedStore::open_in(directory, small(), environment).unwrap()
}

/// All files under a directory.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A directory in memory if there is one: thousands of stores are opened, and the cost of a sync is
/// not under test.
pub(crate) fn fast_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, &target).unwrap();
    }
}

/// A small file system, if this process may mount one.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn mount(megabytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]);
        let mounted = mount.arg(directory.path()).output().is_ok_and(|it| it.status.success());
        mounted.then_some(Self(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}
