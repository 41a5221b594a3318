//! Checks the programs, links and test names in the documents.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents' programs are the examples, which are compiled, linted and run.
#[test]
fn the_documents_show_the_examples_as_they_are() {
    let readme = include_str!("../../../README.md");
    let library = include_str!("../../../docs/library.md");
    let [first, function, survives] = [
        include_str!("../examples/pay_once.rs"),
        include_str!("../examples/idempotent_fn.rs"),
        include_str!("../examples/survives.rs"),
    ];
    assert_eq!(programs(readme), [first]);
    assert_eq!(programs(library), [function, survives]);
    assert!(first.lines().count() < 40 && function.lines().count() < 65);
}

/// The Rust programs in a document.
fn programs(document: &str) -> Vec<&str> {
    let blocks = document.split("```rust\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

/// The first command, and what it is for, fit on one screen.
#[test]
fn the_readme_is_short() {
    let readme = include_str!("../../../README.md");
    assert!(readme.lines().count() <= 150);
    let first_command = readme.lines().position(|line| line.starts_with("```sh"));
    assert!(first_command.is_some_and(|line| line < 20), "{first_command:?}");
}

/// Every document is in the index.
#[test]
fn the_index_lists_every_document() {
    let index = include_str!("../../../docs/README.md");
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let listed = name == "README.md" || index.contains(&format!("]({name})"));
        assert!(listed, "docs/README.md does not list {name}");
    }
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let guarantees = include_str!("../../../docs/guarantees.md");
    let folders = ["crates", "examples"].map(|folder| rust_sources(&root().join(folder)));
    let sources = folders.concat();
    // Names of tests are the only words in lower case in backquotes with three underscores or more.
    let named = guarantees.split('`').skip(1).step_by(2);
    let named: Vec<_> = named.filter(|name| is_name_of_a_test(name)).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}

/// Codes of errors are upper case.
fn is_name_of_a_test(name: &str) -> bool {
    name.matches('_').count() >= 3 && !name.contains(char::is_uppercase)
}

#[test]
fn every_document_that_is_linked_exists() {
    let documents = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents: Vec<_> =
        documents.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    let at_the_root =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    for document in at_the_root.into_iter().chain(documents) {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // Links are relative to the document, and may name a section of it.
            let file = target.split('#').next().unwrap_or_default();
            if !target.starts_with("http") && !file.is_empty() {
                let there = document.parent().unwrap().join(file).exists();
                assert!(there, "{} links {target}", document.display());
            }
        }
    }
}

fn rust_sources(directory: &Path) -> String {
    let mut sources = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources += &rust_sources(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            sources += &fs::read_to_string(&path).unwrap();
        }
    }
    sources
}
