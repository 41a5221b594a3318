//! One process for each directory, even if files are deleted under it; and no other user can read
//! it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use onceward_core::{Store as _, StoreErrorKind};
use onceward_stores::embedded::{EmbeddedStore, OpenError, verify};

use super::common::{complete, copy, files, open, replay, request, small};

/// The lock was once on the file `lock` alone. After that was deleted, a second gateway made
/// another one and opened the directory: 30 of 30 keys ran twice.
#[tokio::test]
async fn a_lock_file_deleted_under_a_running_store_lets_no_second_one_open_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    complete(&first, "before", "done").await;
    fs::remove_file(directory.path().join("lock")).unwrap();
    for error in [
        EmbeddedStore::open(directory.path(), small()).unwrap_err(),
        verify(directory.path(), |_| {}).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    }
    complete(&first, "after", "done").await;
    drop(first);
    assert_eq!(replay(&open(directory.path()), "after").await, "done");
}

/// Checks that nothing is granted any more: the name may belong to another process by now.
async fn assert_stopped(store: &EmbeddedStore, says: &str) {
    let error = store.claim(&request("new")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Poisoned, "{error:?}");
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains(says), "{why}");
}

#[tokio::test]
async fn a_store_whose_directory_was_replaced_stops_before_it_grants_anything() {
    let parent = tempfile::tempdir().unwrap();
    let (data, away) = (parent.path().join("data"), parent.path().join("away"));
    let first = open(&data);
    complete(&first, "before", "done").await;
    fs::rename(&data, &away).unwrap();
    copy(&away, &data);
    let second = open(&data);
    assert_stopped(&first, "log/mark").await;
    complete(&second, "new", "done").await;
}

#[tokio::test]
async fn a_store_whose_files_were_deleted_stops_before_it_grants_anything() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = open(&data);
    complete(&store, "before", "done").await;
    fs::remove_dir_all(&data).unwrap();
    assert_stopped(&store, "log/mark").await;
}

#[tokio::test]
async fn a_store_whose_log_was_deleted_stops_before_it_grants_anything() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    complete(&store, "before", "done").await;
    fs::remove_file(directory.path().join("log/000000000001.log")).unwrap();
    assert_stopped(&store, "000000000001.log").await;
}

/// Directories and files that other users can read.
fn readable_by_others(directory: &Path) -> Vec<PathBuf> {
    let mut found = files(directory);
    found.extend(["", "log", "tree"].map(|name| directory.join(name)));
    let open = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o077 != 0;
    found.into_iter().filter(open).collect()
}

#[tokio::test]
async fn only_its_owner_may_read_a_new_directory() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let store = open(&data);
    complete(&store, "key", "secret").await;
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let ours =
        readable_by_others(&data).into_iter().filter(|it| !it.starts_with(data.join("tree")));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_directory_that_others_may_read_is_closed_to_them_when_it_is_opened() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    complete(&open(&data), "key", "secret").await;
    for path in files(&data) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let store = open(&data);
    assert_eq!(replay(&store, "key").await, "secret");
    assert_eq!(readable_by_others(&data), Vec::<PathBuf>::new());
}
