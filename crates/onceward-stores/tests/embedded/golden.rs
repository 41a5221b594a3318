//! A whole directory as this release wrote it, for later releases to read.
//!
//! `ONCEWARD_WRITE_GOLDEN=1` writes it again: only for a new format.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use onceward_core::{Claim, Query, Retention, Settlement, StateName, Store as _, StoreAdmin as _};
use onceward_stores::embedded::verify;

use super::common::{DAY, complete, files, granted, open, outcome, replay, request, settle};
use crate::calls::unknown;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/directory-v1.txt")
}

/// Files as text: names, lengths, and every sixteen bytes that are not all zero.
fn dump(directory: &Path) -> String {
    let mut text = String::new();
    for file in files(directory).into_iter().filter(|file| !file.ends_with("lock")) {
        let bytes = fs::read(&file).unwrap();
        let name = file.strip_prefix(directory).unwrap().display();
        writeln!(text, "file {name} {}", bytes.len()).unwrap();
        for (line, bytes) in bytes.chunks(16).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{:x} {hex}", line * 16).unwrap();
            }
        }
    }
    text
}

fn restore(text: &str, directory: &Path) {
    fs::write(directory.join("lock"), "").unwrap();
    for part in text.split("file ").skip(1) {
        let mut lines = part.lines();
        let (name, length) = lines.next().unwrap().split_once(' ').unwrap();
        let mut bytes = vec![0; length.parse().unwrap()];
        for line in lines {
            let (at, hex) = line.split_once(' ').unwrap();
            let at = usize::from_str_radix(at, 16).unwrap();
            for (index, pair) in hex.as_bytes().chunks(2).enumerate() {
                let pair = std::str::from_utf8(pair).unwrap();
                bytes[at + index] = u8::from_str_radix(pair, 16).unwrap();
            }
        }
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// No end, so that the golden directory does not expire.
const KEPT: Retention = Retention { keep: std::time::Duration::MAX, ..DAY };

async fn write() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let settled = async |key: &str, settlement| {
        let holder = granted(&store, key).await;
        let _ = settle(&store, key, holder, settlement, KEPT).await.unwrap();
    };
    settled("completed", Settlement::Complete(outcome("completed"))).await;
    settled("large", Settlement::Complete(outcome("large ".repeat(200)))).await;
    store.compact(|_| {}).await.unwrap();
    settled("failed", Settlement::Fail(outcome("failed"))).await;
    settled("unknown", unknown()).await;
    settled("released", Settlement::Release).await;
    granted(&store, "running").await;
    drop(store);
    fs::create_dir_all(golden().parent().unwrap()).unwrap();
    fs::write(golden(), dump(directory.path())).unwrap();
}

#[tokio::test]
async fn a_directory_of_the_first_format_is_read() {
    if std::env::var_os("ONCEWARD_WRITE_GOLDEN").is_some() {
        write().await;
    }
    let directory = tempfile::tempdir().unwrap();
    restore(&fs::read_to_string(golden()).unwrap(), directory.path());
    assert!(verify(directory.path(), |_| {}).unwrap().is_clean());
    let store = open(directory.path());
    assert_eq!(replay(&store, "completed").await, "completed");
    assert_eq!(replay(&store, "large").await, "large ".repeat(200));
    let claim = async |key: &str| store.claim(&request(key)).await.unwrap();
    assert!(
        matches!(claim("failed").await, Claim::Failed { outcome: it, .. } if it == outcome("failed"))
    );
    assert!(matches!(claim("unknown").await, Claim::Unknown { .. }));
    assert!(matches!(claim("running").await, Claim::Unknown { .. }));
    assert!(matches!(claim("released").await, Claim::Granted { attempt: 2, .. }));
    assert_eq!(store.list(&Query::default()).await.unwrap().records.len(), 6);
    let running = store.stats().await.unwrap().by_state[StateName::Running as usize];
    assert_eq!(running, 1);
    complete(&store, "new", "new").await;
}
