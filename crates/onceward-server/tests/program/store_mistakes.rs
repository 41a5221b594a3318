//! Mistakes around the store, made under a running gateway: each ends in a refusal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::book::{Book, post};
use crate::process::{Program, run};

/// Once its `lock` was deleted, a second gateway opened the directory: 30 of 30 keys ran twice.
#[test]
fn a_deleted_lock_file_lets_no_second_gateway_open_the_directory() {
    let (book, directory) = (Book::open(), tempfile::tempdir().unwrap());
    let data = directory.path().join("data");
    let gateway = Program::gateway(book.address, &data, "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "before").unwrap().status, 201);
    fs::remove_file(data.join("lock")).unwrap();
    let (upstream, store) =
        (format!("http://{}", book.address), format!("file:{}", data.display()));
    let second = ["gateway", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--store", &store];
    let (started, told) = run(&second);
    assert!(!started && told.contains("is open in another process"), "{told}");
    assert!(post(gateway.address(), "0", "before").unwrap().is_replay());
    assert_eq!(post(gateway.address(), "0", "after").unwrap().status, 201);
}

fn everything_in(directory: &Path, found: &mut Vec<PathBuf>) {
    found.push(directory.to_owned());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { everything_in(&path, found) } else { found.push(path) }
    }
}

#[test]
fn only_its_owner_may_read_what_a_gateway_keeps_and_what_is_exported() {
    let (book, directory) = (Book::open(), tempfile::tempdir().unwrap());
    let data = directory.path().join("data");
    let mut gateway = Program::gateway(book.address, &data, "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "key").unwrap().status, 201);
    gateway.kill();
    let export = directory.path().join("export.jsonl");
    let store = format!("file:{}", data.display());
    let (fine, told) = run(&[
        "records",
        "export",
        "--store",
        &store,
        "--outcomes",
        "--to",
        export.to_str().unwrap(),
    ]);
    assert!(fine, "{told}");
    let mut found = vec![export];
    everything_in(&data, &mut found);
    assert!(found.len() > 8, "{found:?}");
    for path in found {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", path.display());
    }
}
