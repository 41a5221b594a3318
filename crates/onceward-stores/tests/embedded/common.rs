//! Stores in temporary directories, and short words for what tests do to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward_core::{
    Claim, Clock, Fenced, Holder, Outcome, Retention, SettleRequest, Settlement, Store as _,
    StoreError, Tag,
};
use onceward_stores::embedded::{EmbeddedStore, Settings, Surroundings};
use tempfile::TempDir;

pub(crate) use crate::calls::{DAY, granted, id, request};

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
    let surroundings = Surroundings { clock, ..Surroundings::default() };
    EmbeddedStore::open_in(directory, small(), surroundings).unwrap()
}

pub(crate) fn outcome(text: impl Into<String>) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.into().into_bytes())
}

pub(crate) async fn settle(
    store: &EmbeddedStore,
    key: &str,
    holder: Holder,
    settlement: Settlement,
    retention: Retention,
) -> Result<Fenced<()>, StoreError> {
    store.settle(&SettleRequest { id: id(key), holder, settlement, retention }).await
}

/// Claims a key and completes it.
pub(crate) async fn complete(store: &EmbeddedStore, key: &str, text: &str) {
    let holder = granted(store, key).await;
    let settlement = Settlement::Complete(outcome(text));
    let settled = settle(store, key, holder, settlement, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
}

/// What a key replays.
pub(crate) async fn replay(store: &EmbeddedStore, key: &str) -> String {
    match store.claim(&request(key)).await.unwrap() {
        Claim::Completed { outcome, .. } => String::from_utf8(outcome.bytes.to_vec()).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
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

/// A directory in memory where there is one: thousands of stores are opened, and what a
/// sync costs is not what is tested.
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

/// How much more than usual a long-running test does: set `ONCEWARD_LONG=1`.
pub(crate) fn long() -> bool {
    std::env::var_os("ONCEWARD_LONG").is_some_and(|it| it == "1")
}
