//! The files of an archive.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use onceward_core::{
    Archive as _, Fence, Fingerprint, OwnerToken, Record, Retained, Sketch, State, Timestamp,
};
use onceward_stores::file_archive::FileArchive;

use crate::calls::{id, outcome, scope};
use crate::embedded::common::SmallDisk;

/// A record that is past its time.
pub(crate) fn expired(key: &str, text: &str) -> Record {
    let at = Timestamp::from_millis(1_000);
    let retained = Retained { until: at, tombstone_until: at };
    Record {
        id: id(key),
        operation: uuid::Uuid::from_u128(7).into(),
        scope: scope(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[b"request"]),
        sketch: Sketch::default(),
        path: None,
        state: State::Completed { outcome: outcome(text), retained },
        owner: OwnerToken::from_bytes([1; 16]),
        fence: Fence(1),
        attempts: 1,
        taken_over: false,
        created_at: at,
        updated_at: at,
    }
}

/// Archives the text of each outcome.
pub(super) fn open(directory: &Path) -> FileArchive {
    FileArchive::open(directory, line).unwrap()
}

pub(super) fn line(record: &Record) -> Result<String, onceward_core::BoxError> {
    let text = record.state.outcome().map_or(&[][..], |outcome| &outcome.bytes);
    Ok(format!("{} {}", record.id, String::from_utf8_lossy(text)))
}

/// The files of an archive, in the order of their names.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

/// All lines of an archive.
pub(super) fn lines(directory: &Path) -> Vec<String> {
    let text = files(directory).into_iter().map(|path| fs::read_to_string(path).unwrap());
    text.collect::<String>().lines().map(str::to_owned).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn records_are_lines_that_only_their_owner_can_read() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("archive");
    let archive = open(&directory);
    assert!(files(&directory).is_empty(), "nothing before the first record");
    archive.write(&[expired("a", "1"), expired("b", "2")]).await.unwrap();
    archive.write(&[expired("c", "3")]).await.unwrap();
    let expected = [("a", 1), ("b", 2), ("c", 3)].map(|(key, text)| format!("{} {text}", id(key)));
    assert_eq!(lines(&directory), expected);
    let [file] = &files(&directory)[..] else { panic!("one file a day and process") };
    assert_eq!((mode(&directory), mode(file)), (0o700, 0o600));
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("expired-20") && name.ends_with(".jsonl"), "{name}");
}

#[tokio::test]
async fn processes_that_share_a_directory_have_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (open(directory.path()), open(directory.path()));
    one.write(&[expired("a", "1")]).await.unwrap();
    other.write(&[expired("b", "2")]).await.unwrap();
    one.write(&[expired("c", "3")]).await.unwrap();
    assert_eq!((files(directory.path()).len(), lines(directory.path()).len()), (2, 3));
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_not_written_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let (archive, shipped) = (directory.path().join("archive"), directory.path().join("shipped"));
    let open = open(&archive);
    open.write(&[expired("a", "1")]).await.unwrap();
    fs::rename(&files(&archive)[0], &shipped).unwrap();
    open.write(&[expired("b", "2")]).await.unwrap();
    assert_eq!(fs::read_to_string(&shipped).unwrap(), format!("{} 1\n", id("a")));
    assert_eq!(lines(&archive), [format!("{} 2", id("b"))]);
}

#[tokio::test]
async fn a_directory_that_was_removed_takes_nothing_until_it_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("archive");
    let archive = open(&directory);
    archive.write(&[expired("a", "1")]).await.unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let error = archive.write(&[expired("b", "2")]).await.unwrap_err().to_string();
    assert!(error.contains(directory.to_str().unwrap()), "{error}");
    fs::create_dir(&directory).unwrap();
    archive.write(&[expired("b", "2")]).await.unwrap();
    assert_eq!(lines(&directory), [format!("{} 2", id("b"))]);
}

#[tokio::test]
async fn a_full_disk_takes_nothing_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(1) else {
        eprintln!("skipped: this process may not mount a small file system");
        return;
    };
    let archive = open(disk.path());
    archive.write(&[expired("a", "1")]).await.unwrap();
    let ballast = disk.path().join("ballast");
    let large = "x".repeat(600 << 10);
    archive.write(&[expired("b", &large)]).await.unwrap();
    let error = archive.write(&[expired("c", &large)]).await.unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    fs::rename(&files(disk.path())[0], &ballast).unwrap();
    for _ in 0..3 {
        assert!(archive.write(&[expired("c", &large)]).await.is_err(), "it is still full");
    }
    assert_eq!(
        files(disk.path()).len(),
        2,
        "the ballast, and one more file however often it fails"
    );
    let kept = fs::read_to_string(&ballast).unwrap();
    assert_eq!((kept.lines().count(), kept.ends_with('\n')), (2, true), "no part of a line");
    fs::remove_file(&ballast).unwrap();
    archive.write(&[expired("c", &large)]).await.unwrap();
    let written: Vec<_> = lines(disk.path());
    assert_eq!(written, [format!("{} {large}", id("c"))]);
}

#[test]
fn a_place_that_cannot_be_an_archive_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (file, missing) = (directory.path().join("file"), directory.path().join("none/archive"));
    fs::write(&file, "").unwrap();
    for (path, why) in [
        (&*file, "it is not a directory"),
        (&*missing, "its parent directory does not exist"),
        (Path::new("/proc/archive"), "/proc/archive"),
    ] {
        let error = FileArchive::open(path, line).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
    }
    FileArchive::check(directory.path().join("new")).unwrap();
    assert!(FileArchive::check(&file).is_err() && FileArchive::check(&missing).is_err());
    assert_eq!(files(directory.path()), [file], "checking creates nothing");
}
