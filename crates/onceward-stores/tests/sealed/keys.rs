//! Reading keys, and the errors of keys that cannot be read.

use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use onceward_core::MemoryStore;
use onceward_stores::sealed::{KeyProblem, Keys, KeysError, SealedStore, Sealing};

use super::common::{A, B};

/// All texts of an error and its sources.
fn texts(error: &dyn Error) -> String {
    let source = error.source().map(texts).unwrap_or_default();
    format!("{error} {error:?} {source}")
}

fn problem(text: &str) -> (String, KeyProblem) {
    match Keys::parse(text).unwrap_err() {
        KeysError::Key { place, problem } => (place, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_come_from_a_file_with_comments_and_blank_lines() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("# seals\r\n{A}\r\n\n  # opens\n  {B}  \n")).unwrap();
    let keys = Keys::from_file(file.path()).unwrap();
    assert_eq!((keys.sealing(), keys.ids().collect::<Vec<_>>()), ("a", vec!["a", "b"]));
}

#[test]
fn base64_needs_no_padding() {
    assert_eq!(Keys::parse(A.trim_end_matches('=')).unwrap().sealing(), "a");
}

/// Runs itself again with the variable set, as a test must not change its own environment.
#[test]
fn keys_come_from_the_environment_separated_by_commas_or_lines() {
    const NAME: &str = "ONCEWARD_TEST_SEALING_KEYS";
    if std::env::var_os(NAME).is_some() {
        let keys = Keys::from_env(NAME).unwrap();
        assert_eq!(keys.ids().collect::<Vec<_>>(), ["a", "b"]);
        return;
    }
    let error = Keys::from_env(NAME).unwrap_err();
    assert!(error.to_string().starts_with(&format!("the environment variable {NAME} is not set")));
    let test = "sealed::keys::keys_come_from_the_environment_separated_by_commas_or_lines";
    for separator in [",", ", ", "\n"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", test]).env(NAME, [A, B].join(separator));
        let output = child.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sealing.keys");
    let error = Keys::from_file(&path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(error.source().is_some());
}

#[test]
fn a_file_without_keys_or_without_text_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "# nothing yet\n\n").unwrap();
    let error = Keys::from_file(file.path()).unwrap_err();
    assert!(matches!(error, KeysError::Empty { .. }), "{error:?}");
    assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    fs::write(file.path(), [0xff, 0xfe, 0]).unwrap();
    let error = Keys::from_file(file.path()).unwrap_err();
    assert!(matches!(error, KeysError::NotText { .. }), "{error:?}");
}

#[test]
fn every_mistake_names_its_line() {
    let cases = [
        ("justtext".to_owned(), KeyProblem::NoColon),
        (A.replacen("a:", ":", 1), KeyProblem::Id),
        (A.replacen("a:", "a b:", 1), KeyProblem::Id),
        (A.replacen("a:", &format!("{}:", "i".repeat(33)), 1), KeyProblem::Id),
        ("c:q83v!".to_owned(), KeyProblem::NotBase64),
        ("c:".to_owned(), KeyProblem::Length { bytes: 0 }),
        ("c:q83vEjRWeJCrze8SNFZ4kA==".to_owned(), KeyProblem::Length { bytes: 16 }),
        (format!("c:{}=", "A".repeat(43)), KeyProblem::Placeholder),
        (format!("b:{}", &A[2..]), KeyProblem::SameId { id: "b".into(), first: "line 2".into() }),
        (format!("c:{}", &B[2..]), KeyProblem::SameKey { first: "line 2".into() }),
    ];
    for (line, expected) in cases {
        let (place, problem) = problem(&format!("# keys\n{B}\n\n{line}\n"));
        assert_eq!((place.as_str(), &problem), ("the given text, line 4", &expected), "{line}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("{A}\nc:short\n")).unwrap();
    let text = Keys::from_file(file.path()).unwrap_err().to_string();
    assert!(text.starts_with(&format!("{}, line 2: ", file.path().display())), "{text}");
}

/// Any part of a line that is in the place of an id by mistake may be the key.
#[test]
fn no_error_shows_any_of_the_text() {
    let secret = &A[2..];
    let lines = [
        secret.to_owned(),
        format!("{secret}:a"),
        format!("a:{secret}{secret}"),
        format!("a:{secret}!"),
        format!("a b:{secret}"),
        format!("b:{secret}"),
        format!("a:{}", &secret[..20]),
    ];
    for line in lines {
        let text = texts(&Keys::parse(&format!("{A}\n{line}")).unwrap_err());
        let shown = secret.as_bytes().windows(6).any(|part| {
            let part = std::str::from_utf8(part).unwrap();
            text.contains(part)
        });
        assert!(!shown, "{text}");
    }
}

#[test]
fn debug_shows_ids_and_no_key() {
    let keys = Keys::parse(&[A, B].join("\n")).unwrap();
    let sealing = Sealing::from(keys.clone());
    let store = SealedStore::new(Arc::new(MemoryStore::new()), sealing.clone());
    for shown in [format!("{keys:?}"), format!("{sealing:?}"), format!("{store:#?}")] {
        assert!(shown.contains("sealing: \"a\"") && shown.contains("\"b\""), "{shown}");
        for secret in [&A[2..], &B[2..]] {
            assert!(!shown.contains(&secret[..6]), "{shown}");
        }
        // Not as numbers either.
        assert!(!shown.contains("171") && !shown.contains("0xab"), "{shown}");
    }
}
