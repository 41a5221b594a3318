//! Torn ends and flipped bits at every position of a small store. Each is refused, answered as
//! undecodable, or harmless. Nothing that was acknowledged is ever absent or different.

use std::fs;
use std::path::{Path, PathBuf};

use onceward_core::{Claim, Query, Store as _, StoreAdmin as _, StoreErrorKind};
use onceward_stores::embedded::{EmbeddedStore, OpenError, VerifyFinding, verify};
use tempfile::TempDir;

use super::common::{
    complete, copy, fast_directory, files, granted, id, long, open, request, small,
};

const DONE: [&str; 4] = ["in a table", "in a value file", "in the log", "in the log, large"];
const RUNNING: &str = "running";

fn text(key: &str) -> String {
    if key.contains("value file") || key.contains("large") { key.repeat(60) } else { key.into() }
}

async fn sample() -> TempDir {
    let directory = fast_directory();
    let store = open(directory.path());
    for key in &DONE[..2] {
        complete(&store, key, &text(key)).await;
    }
    store.compact(|_| {}).await.unwrap();
    for key in &DONE[2..] {
        complete(&store, key, &text(key)).await;
    }
    granted(&store, RUNNING).await;
    directory
}

/// The results of opening damaged stores.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    refused: u32,
    undecodable: u32,
    harmless: u32,
}

/// Opens a damaged copy, and reads everything that was acknowledged.
async fn look(directory: &Path, what: &str, seen: &mut Seen) {
    let store = match EmbeddedStore::open(directory, small()) {
        Ok(store) => store,
        Err(OpenError::Corrupt { .. } | OpenError::Newer { .. }) => {
            seen.refused += 1;
            return;
        }
        Err(error) => panic!("{what}: {error:?}"),
    };
    let mut undecodable = false;
    for key in DONE.into_iter().chain([RUNNING]) {
        match store.claim(&request(key)).await {
            Ok(Claim::Completed { outcome, .. }) if key != RUNNING => {
                assert_eq!(outcome.bytes, text(key).as_bytes(), "{what}: {key} is different");
            }
            Ok(Claim::Unknown { .. }) if key == RUNNING => {}
            Err(error) if error.kind == StoreErrorKind::Undecodable => undecodable = true,
            other => panic!("{what}: {key} is {other:?}"),
        }
    }
    match undecodable {
        true => seen.undecodable += 1,
        false => seen.harmless += 1,
    }
}

/// Applies a change to one file of a fresh copy.
async fn damaged(
    sample: &Path,
    file: &Path,
    what: &str,
    seen: &mut Seen,
    change: impl FnOnce(&mut Vec<u8>),
) {
    let directory = fast_directory();
    copy(sample, directory.path());
    let path = directory.path().join(file.strip_prefix(sample).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    look(directory.path(), what, seen).await;
}

fn names(sample: &Path) -> Vec<PathBuf> {
    files(sample).into_iter().filter(|file| !file.ends_with("lock")).collect()
}

/// Positions to damage: all with content, and some of the empty ones.
fn positions(bytes: &[u8], step: usize) -> Vec<usize> {
    let used = (0..bytes.len()).filter(|at| {
        let around = &bytes[at.saturating_sub(8)..(at + 8).min(bytes.len())];
        around.iter().any(|byte| *byte != 0)
    });
    used.step_by(step).chain((0..bytes.len()).step_by(9_973)).collect()
}

#[tokio::test]
async fn a_flipped_bit_is_refused_or_told_and_never_read_as_absent() {
    let sample = sample().await;
    let step = if long() { 1 } else { 13 };
    let mut seen = Seen::default();
    for file in names(sample.path()) {
        let bytes = fs::read(&file).unwrap();
        for at in positions(&bytes, step) {
            let what = format!("bit {} of byte {at} of {}", at % 8, file.display());
            damaged(sample.path(), &file, &what, &mut seen, |bytes| bytes[at] ^= 1 << (at % 8))
                .await;
        }
    }
    println!("flipped bits: {seen:?}");
    assert!(seen.refused > 0 && seen.undecodable > 0, "{seen:?}");
}

#[tokio::test]
async fn a_file_that_was_cut_is_refused_or_told_and_never_read_as_absent() {
    let sample = sample().await;
    let step = if long() { 7 } else { 101 };
    let mut seen = Seen::default();
    for file in names(sample.path()) {
        let bytes = fs::read(&file).unwrap();
        let end = bytes.len().saturating_sub(1);
        for at in positions(&bytes, step).into_iter().chain([end]) {
            let what = format!("{} cut to {at} bytes", file.display());
            damaged(sample.path(), &file, &what, &mut seen, |bytes| bytes.truncate(at)).await;
        }
    }
    println!("cut files: {seen:?}");
    assert!(seen.refused > 0, "{seen:?}");
}

#[tokio::test]
async fn sectors_that_read_as_zeros_are_refused_or_told() {
    let sample = sample().await;
    let mut seen = Seen::default();
    for file in names(sample.path()) {
        let bytes = fs::read(&file).unwrap();
        for at in (0..bytes.len()).step_by(512) {
            let sector = at..(at + 512).min(bytes.len());
            if bytes[sector.clone()].iter().all(|byte| *byte == 0) {
                continue;
            }
            let what = format!("sector at {at} of {}", file.display());
            damaged(sample.path(), &file, &what, &mut seen, |bytes| bytes[sector].fill(0)).await;
        }
    }
    println!("lost sectors: {seen:?}");
    assert!(seen.refused > 0, "{seen:?}");
}

/// A damaged record is undecodable on its own, and listed beside the others. Once, a single one
/// made the whole page fail.
#[tokio::test]
async fn one_record_that_cannot_be_read_does_not_hide_the_others_from_operators() {
    let sample = sample().await;
    let key = DONE[1];
    for file in files(&sample.path().join("tree/blobs")) {
        let mut bytes = fs::read(&file).unwrap();
        let text = text(key).into_bytes();
        let at = bytes.windows(text.len()).position(|it| it == text).unwrap();
        bytes[at + 100] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    let report = verify(sample.path(), |_| {}).unwrap();
    assert!(
        matches!(report.findings[0], VerifyFinding::Undecodable { id: it, .. } if it == id(key)),
        "{report:?}"
    );
    assert_eq!(report.records, 5, "{report:?}");

    let store = open(sample.path());
    let (claimed, looked_at) = (store.claim(&request(key)).await, store.get(&id(key)).await);
    for error in [claimed.unwrap_err(), looked_at.unwrap_err()] {
        assert_eq!(error.kind, StoreErrorKind::Undecodable);
    }
    for limit in [0, 1, 2, 3, 4, 5] {
        let (mut readable, mut undecodable) = (0, Vec::new());
        let mut query = Query { limit, ..Query::default() };
        loop {
            let page = store.list(&query).await.unwrap();
            readable += page.records.len();
            undecodable.extend(page.undecodable);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!((readable, &undecodable[..]), (4, &[id(key)][..]), "by {limit}");
    }
}

/// A torn end that was never acknowledged is normal: everything acknowledged before is there, and
/// the store opens.
#[tokio::test]
async fn a_torn_end_that_was_never_acknowledged_is_left_out() {
    let directory = fast_directory();
    let store = open(directory.path());
    complete(&store, "before", "before").await;
    let acknowledged = log_files(directory.path());
    complete(&store, "after", &"after ".repeat(300)).await;
    drop(store);
    let whole = log_files(directory.path());
    let segment = whole.iter().position(|(path, _)| path.ends_with("000000000001.log")).unwrap();
    let changed: Vec<usize> = (0..whole[segment].1.len())
        .filter(|at| whole[segment].1[*at] != acknowledged[segment].1[*at])
        .collect();
    let (first, last) = (changed[0] / 512, changed[changed.len() - 1] / 512);
    for lost in first..=last {
        let copied = fast_directory();
        copy(directory.path(), copied.path());
        // The mark as it was, and one sector that was not written.
        for (path, bytes) in &acknowledged {
            if path.ends_with("mark") {
                fs::write(copied.path().join(path), bytes).unwrap();
            }
        }
        let path = copied.path().join(&whole[segment].0);
        let mut bytes = fs::read(&path).unwrap();
        let sectors = lost * 512..(last + 1) * 512;
        bytes[sectors.clone()].copy_from_slice(&acknowledged[segment].1[sectors]);
        fs::write(&path, bytes).unwrap();
        let store = open(copied.path());
        assert_eq!(super::common::replay(&store, "before").await, "before");
        // Claimed and completed, claimed only, or absent: never half of a call.
        let claim = store.claim(&request("after")).await.unwrap();
        assert!(
            matches!(
                claim,
                Claim::Completed { .. } | Claim::Unknown { .. } | Claim::Granted { .. }
            ),
            "{claim:?}"
        );
        complete(&store, "goes on", "goes on").await;
    }
}

fn log_files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        (path.strip_prefix(directory).unwrap().to_owned(), bytes)
    };
    files(&directory.join("log")).into_iter().map(read).collect()
}

/// An empty file of values was once reported as an error of the machine, not as damage.
#[tokio::test]
async fn an_emptied_file_of_values_is_told_as_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    complete(&store, "key", &"v".repeat(4_000)).await;
    store.compact(|_| {}).await.unwrap();
    drop(store);
    for file in fs::read_dir(directory.path().join("tree/blobs")).unwrap() {
        fs::write(file.unwrap().path(), "").unwrap();
    }
    let error = EmbeddedStore::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}
