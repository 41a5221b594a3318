//! `onceward config contract`: reviewed snapshots, secrets that must not be in them, and the pages
//! that show the command.

mod command;
mod pages;
mod snapshots;

use std::process::{Command, Output};

/// A configuration with every setting that clients can notice.
const RICH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/rich.toml");

/// Runs `onceward config contract` with these arguments.
fn run(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_onceward"));
    program.args(["config", "contract"]).args(arguments).output().unwrap()
}

/// The contract that the command prints.
fn contract(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The contract of a configuration.
fn contract_of(config: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    contract(&[file.path().to_str().unwrap()])
}
