//! Tests without their server: skipped for a person, failed on CI.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;

use crate::error::ServiceError;

/// The environment variable with the file in which skipped tests are noted, because the output of
/// a passed test is not shown.
pub const SKIPPED_FILE: &str = "ONCEWARD_SKIPPED_FILE";

/// Returns the started server, or `None` if a program or a client library is missing and the test
/// is skipped. The skip is noted for the last lines of `cargo xtask test`.
///
/// # Panics
///
/// On every other error. With `CI` set also on a missing program, so that no test is skipped
/// there.
#[track_caller]
pub fn or_skip<T>(started: Result<T, ServiceError>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) => match verdict(&error, env::var_os("CI").is_some()) {
            Verdict::Skip => {
                note(&error.to_string());
                None
            }
            Verdict::Fail => panic!("{error}"),
        },
    }
}

/// The skips that were noted in a file: each reason with the tests that it stopped.
pub fn skips(file: &Path) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let (test, reason) = line.split_once('\t').unwrap_or(("a test", line));
        match all.iter_mut().find(|(other, _)| other == reason) {
            Some((_, tests)) => tests.push(test.to_owned()),
            None => all.push((reason.to_owned(), vec![test.to_owned()])),
        }
    }
    all
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Skip,
    Fail,
}

fn verdict(error: &ServiceError, on_ci: bool) -> Verdict {
    match error {
        ServiceError::Missing { .. } | ServiceError::Packages { .. } if !on_ci => Verdict::Skip,
        ServiceError::Missing { .. }
        | ServiceError::Packages { .. }
        | ServiceError::Failed { .. }
        | ServiceError::Io { .. } => Verdict::Fail,
    }
}

fn note(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    println!("skipped {test}: {reason}");
    let Some(file) = env::var_os(SKIPPED_FILE) else { return };
    // One write: several test processes note at once.
    let noted = OpenOptions::new().create(true).append(true).open(file);
    let noted = noted.and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes()));
    noted.expect("a skip that cannot be noted would be a test left out in silence");
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::program::Program;

    fn missing() -> ServiceError {
        ServiceError::Missing { program: Program::Redis, advice: "install it".to_owned() }
    }

    #[test]
    fn a_missing_server_is_a_skip_for_a_person_and_a_failure_on_ci() {
        assert_eq!(verdict(&missing(), false), Verdict::Skip);
        assert_eq!(verdict(&missing(), true), Verdict::Fail);
    }

    #[test]
    fn libraries_that_cannot_be_installed_are_a_skip_for_a_person_and_a_failure_on_ci() {
        let packages = "client libraries for node".to_owned();
        let offline = ServiceError::Packages { packages, why: "no network".to_owned() };
        assert_eq!(verdict(&offline, false), Verdict::Skip);
        assert_eq!(verdict(&offline, true), Verdict::Fail);
    }

    #[test]
    fn a_server_that_does_not_start_is_a_failure_for_everybody() {
        let broken = ServiceError::io("starting")(io::ErrorKind::Other.into());
        assert_eq!(verdict(&broken, false), Verdict::Fail);
    }

    #[test]
    fn a_missing_server_says_what_to_do() {
        assert_eq!(missing().to_string(), "Redis is not installed: install it");
    }

    #[test]
    fn skips_are_listed_by_reason() {
        let file = env::temp_dir().join(format!("onceward-skips-{}", std::process::id()));
        fs::write(&file, "a\tno Redis\nb\tno PostgreSQL\nc\tno Redis\n").unwrap();
        let all = skips(&file);
        fs::remove_file(&file).unwrap();
        let redis = ("no Redis".to_owned(), vec!["a".to_owned(), "c".to_owned()]);
        assert_eq!(all, [redis, ("no PostgreSQL".to_owned(), vec!["b".to_owned()])]);
    }
}
