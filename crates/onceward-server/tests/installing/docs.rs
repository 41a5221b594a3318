//! Commands and dependencies in the documentation.

use std::fs;
use std::path::Path;

use clap::Parser as _;
use onceward_server::cli::Cli;

const FACADE: &str = include_str!("../../../onceward/Cargo.toml");

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Code blocks of a language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let blocks = document.split(start.as_str()).skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

#[test]
fn commands_for_installing_exist() {
    let installing = document("docs/installing.md");
    let lines = blocks(&installing, "sh").concat().replace("\\\n", " ");
    // Redirections and pipes are the shell's part.
    let commands = lines.lines().map(|line| line.trim_start_matches("sudo "));
    let ours: Vec<_> = commands
        .filter(|line| line.starts_with("onceward "))
        .map(|line| line.split(['>', '|']).next().unwrap())
        .collect();
    assert!(ours.len() >= 5, "{ours:?}");
    for command in ours {
        let parsed = Cli::try_parse_from(command.split_whitespace());
        let shows_version =
            |error: &clap::Error| error.kind() == clap::error::ErrorKind::DisplayVersion;
        if let Some(error) = parsed.err().filter(|error| !shows_version(error)) {
            panic!("{command}: {error}");
        }
    }
}

#[test]
fn dependencies_in_the_documents_name_packages_and_features_that_exist() {
    let facade: toml::Table = FACADE.parse().unwrap();
    let mut features = 0;
    for name in ["README.md", "docs/http.md", "docs/installing.md", "docs/stores.md"] {
        let document = document(name);
        let blocks = blocks(&document, "toml");
        let tables: Vec<_> = blocks.iter().filter(|it| it.contains("[dependencies]")).collect();
        assert!(!tables.is_empty(), "{name} has no dependency");
        for text in tables {
            let manifest: toml::Table = text.parse().unwrap();
            let onceward = &manifest["dependencies"]["onceward"];
            assert_eq!(onceward["git"].as_str(), Some("https://github.com/onceward/onceward"));
            for feature in
                onceward.get("features").and_then(|it| it.as_array()).into_iter().flatten()
            {
                let feature = feature.as_str().unwrap();
                assert!(facade["features"].get(feature).is_some(), "{name}: {feature}");
                features += 1;
            }
        }
    }
    assert!(features >= 3);
}
