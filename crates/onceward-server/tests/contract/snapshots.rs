//! The wording of the contract, reviewed. `ONCEWARD_WRITE_GOLDEN=1 cargo test -p onceward-server
//! --test contract` writes the files again.

use std::path::Path;

use crate::{RICH, contract};

const TITLE: [&str; 4] = ["--title", "Payments API", "--base-url", "https://api.example.com/v1/"];

/// Compares a text with its reviewed file.
fn is_as_reviewed(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/snapshots").join(name);
    if std::env::var_os("ONCEWARD_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = reviewed.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        reviewed == text,
        "{name} has changed: {differs:?}. If that is intended, set ONCEWARD_WRITE_GOLDEN=1, run the \
         test again, and review the difference"
    );
}

#[test]
fn the_contract_of_the_defaults_is_as_reviewed() {
    is_as_reviewed("default.md", &contract(&[]));
}

#[test]
fn the_contract_of_the_stripe_profile_is_as_reviewed() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/stripe.toml");
    is_as_reviewed("stripe.md", &contract(&[config]));
}

#[test]
fn the_contract_of_a_rich_configuration_is_as_reviewed() {
    is_as_reviewed("rich.md", &contract(&[&[RICH], &TITLE[..]].concat()));
}

#[test]
fn the_contract_for_programs_is_as_reviewed() {
    let json = contract(&[&[RICH, "--format", "json"], &TITLE[..]].concat());
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
    is_as_reviewed("rich.json", &json);
}

/// A published contract is compared with the API by its readers, not with this file.
#[test]
fn an_empty_file_and_the_packaged_one_promise_what_the_defaults_promise() {
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/onceward.toml");
    assert_eq!(contract(&[packaged]), contract(&[]));
    assert_eq!(crate::contract_of(""), contract(&[]));
}
