//! Installing: the version, completions and manual pages, and the files under `packaging/`.

mod command_line;
mod container;
mod docs;
mod source_commit;
mod systemd;

use std::process::Command;

/// Runs the program to its end and returns its standard output.
fn onceward(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_onceward")).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "onceward {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
