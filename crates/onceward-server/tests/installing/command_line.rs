//! Version, help, completions and manual pages.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::onceward;

/// A command and all subcommands that its `--help` lists.
fn commands(above: &[&str]) -> Vec<Vec<String>> {
    let help = onceward(&[above, &["--help"]].concat());
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, after)| after);
    let names = listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    let mut all = vec![above.iter().map(|&name| name.to_owned()).collect()];
    for name in names {
        all.extend(commands(&[above, &[name.as_str()]].concat()));
    }
    all
}

#[test]
fn the_version_names_its_commit_or_says_that_it_is_unknown() {
    let version = onceward(&["--version"]);
    let start = concat!("onceward ", env!("CARGO_PKG_VERSION"), " (commit ");
    let commit = version.strip_prefix(start).and_then(|rest| rest.split([')', ',']).next());
    let commit = commit.unwrap_or_else(|| panic!("{version}"));
    let is_hash = commit.len() >= 40 && commit.bytes().all(|letter| letter.is_ascii_hexdigit());
    assert!(is_hash || commit == "unknown", "{version}");
}

#[test]
fn every_command_has_a_manual_page_that_shows_its_examples() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man1");
    onceward(&["man", "--out", out.to_str().unwrap()]);
    let commands = commands(&[]);
    assert!(commands.len() > 20, "{commands:?}");
    for command in &commands {
        let name = [&["onceward".to_owned()][..], command].concat().join("-");
        let page = fs::read_to_string(out.join(format!("{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}.1: {error}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), commands.len());
    let gateway = fs::read_to_string(out.join("onceward-gateway.1")).unwrap();
    assert!(gateway.contains(r"\-\-upstream http://127.0.0.1:3000"), "{gateway}");
    // An example that `man` hyphenates could not be copied.
    assert!(gateway.starts_with(".nh\n.ad l\n"), "{gateway}");
}

#[test]
fn manual_pages_that_cannot_be_written_are_told_with_their_directory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let directory = file.path().join("man1");
    let mut man = Command::new(env!("CARGO_BIN_EXE_onceward"));
    let output = man.args(["man", "--out"]).arg(&directory).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.contains(&format!("--out {}", directory.display())), "{error}");
}

#[test]
fn completions_of_every_shell_name_every_command() {
    let commands = commands(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = onceward(&["completions", shell]);
        for name in commands.iter().flatten() {
            assert!(script.contains(name.as_str()), "{shell}: {name}");
        }
    }
}

#[test]
fn bash_accepts_its_completions_and_completes_a_command() {
    let script = onceward(&["completions", "bash"]);
    let asked = "\nCOMP_WORDS=(onceward ga); COMP_CWORD=1; _onceward onceward ga onceward\n\
                 echo \"${COMPREPLY[@]}\"\n";
    let mut bash = Command::new("bash");
    let bash = bash.args(["--norc", "-s"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bash = bash.spawn().unwrap();
    bash.stdin.take().unwrap().write_all([&script, asked].concat().as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "gateway\n");
}
