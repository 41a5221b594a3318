//! The Containerfile, checked without building the image.

use std::path::Path;

use clap::Parser as _;
use onceward_server::cli::Cli;

const FILE: &str = include_str!("../../../../packaging/Containerfile");
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

fn instructions(name: &str) -> Vec<&'static str> {
    FILE.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

/// Words of an instruction in JSON form.
fn words(name: &str) -> Vec<String> {
    let [words] = instructions(name)[..] else { panic!("one {name}") };
    serde_json::from_str(words).unwrap()
}

#[test]
fn the_image_starts_a_command_that_exists() {
    let command = [words("ENTRYPOINT"), words("CMD")].concat();
    if let Err(error) = Cli::try_parse_from(&command) {
        panic!("{command:?}: {error}");
    }
}

#[test]
fn the_image_is_built_by_the_oldest_compiler_that_the_workspace_supports() {
    let version = WORKSPACE.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
    let [build, _image] = instructions("FROM")[..] else { panic!("two stages") };
    assert!(build.starts_with(&format!("docker.io/library/rust:{version}-")), "{build}");
}

#[test]
fn the_image_does_not_run_as_root_and_owns_its_records() {
    assert_eq!(instructions("USER"), ["65532:65532"]);
    let copied = instructions("COPY");
    let owns = |it: &&str| it.contains("--chown=65532:65532") && it.ends_with("/var/lib/onceward");
    assert_eq!(copied.iter().filter(|line| owns(line)).count(), 1, "{copied:?}");
}

#[test]
fn the_build_leaves_out_what_is_large_or_private() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ignored = std::fs::read_to_string(root.join(".containerignore")).unwrap();
    for name in [".git", "target", "onceward-data"] {
        assert!(ignored.lines().any(|line| line == name), "{name}");
    }
}
