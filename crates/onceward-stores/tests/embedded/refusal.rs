//! Directories that are not opened, and the error texts.

use std::fs;
use std::path::Path;

use onceward_stores::embedded::{EmbeddedStore, OpenError, verify};

use super::common::{complete, files, open, replay, small};

fn refused(directory: &Path) -> OpenError {
    EmbeddedStore::open(directory, small()).unwrap_err()
}

/// A store with records in its files, and others only in its log.
async fn filled(directory: &Path) {
    let store = open(directory);
    complete(&store, "old", &"old ".repeat(300)).await;
    store.compact(|_| {}).await.unwrap();
    complete(&store, "new", &"new ".repeat(300)).await;
}

#[tokio::test]
async fn a_second_opening_is_refused_with_the_path_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    for error in [refused(directory.path()), verify(directory.path(), |_| {}).unwrap_err()] {
        assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
        assert!(text.contains("another process") && text.contains("stop"), "{text}");
    }
    complete(&first, "key", "done").await;
    drop(first);
    assert_eq!(replay(&open(directory.path()), "key").await, "done");
}

#[test]
fn a_directory_with_other_files_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(files(directory.path()).len(), 1);
}

#[test]
fn verifying_what_is_no_store_makes_none() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(verify(directory.path(), |_| {}), Err(OpenError::Foreign { .. })));
    assert!(files(directory.path()).is_empty());
    let missing = directory.path().join("missing");
    assert!(matches!(verify(&missing, |_| {}), Err(OpenError::Io { .. })));
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_newer_format_is_refused_with_the_release_that_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    let format = |version, minimum| {
        format!(
            "onceward embedded store\nversion {version}\nminimum reader {minimum}\nwritten by 7.1.0\n"
        )
    };
    fs::write(directory.path().join("format"), format(9, 8)).unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::Newer { version: 9, minimum: 8, .. }), "{error:?}");
    assert!(error.to_string().contains("release 7.1.0"), "{error}");
    // A newer directory whose minimum reader is this release can be read.
    fs::write(directory.path().join("format"), format(9, 1)).unwrap();
    assert!(replay(&open(directory.path()), "old").await.starts_with("old"));
}

#[tokio::test]
async fn a_missing_file_is_refused_by_its_name_and_never_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    for file in files(directory.path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let spare_segment = name == "000000000002.log";
        if name == "lock" || spare_segment {
            continue;
        }
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let before = files(directory.path());
        let error = refused(directory.path());
        assert!(matches!(error, OpenError::Corrupt { .. }), "{name}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("verify") && text.contains("backup"), "{text}");
        assert_eq!(files(directory.path()), before, "{name}: nothing was made or removed");
        fs::write(&file, kept).unwrap();
    }
    assert!(replay(&open(directory.path()), "new").await.starts_with("new"));
}

#[tokio::test]
async fn making_a_store_that_was_interrupted_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("lock"), "").unwrap();
    fs::write(directory.path().join("creating"), "").unwrap();
    fs::create_dir_all(directory.path().join("log")).unwrap();
    fs::write(directory.path().join("log/000000000001.log"), "half a header").unwrap();
    complete(&open(directory.path()), "key", "done").await;
    assert!(!directory.path().join("creating").exists());
    // In a finished store the file `creating` is ignored.
    fs::write(directory.path().join("creating"), "").unwrap();
    assert_eq!(replay(&open(directory.path()), "key").await, "done");
}

/// A lock file has no content, and a backup may lack it.
#[tokio::test]
async fn a_store_that_lost_only_its_lock_file_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await;
    fs::remove_file(directory.path().join("lock")).unwrap();
    assert!(replay(&open(directory.path()), "old").await.starts_with("old"));
}

/// Any program may leave a file called `lock`. Once, it was taken for a store whose creation had
/// been interrupted, and a store was created among other files.
#[test]
fn a_directory_with_another_programs_lock_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["lock", "notes.txt"] {
        fs::write(directory.path().join(name), "not ours").unwrap();
    }
    let error = EmbeddedStore::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}
