//! Why a command ends before its work is done.

use std::io;
use std::process::ExitCode;

use crate::api::ApiProblem;

/// What shells expect of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Why a command ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It could not be done, and this is why.
    Told(String),
    /// Ctrl-C; how far it came.
    Interrupted(String),
    /// Whoever read what it prints has seen enough.
    ReaderGone,
}

impl Failure {
    /// Says it, and what the shell is told.
    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Self::Told(why) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
            Self::Interrupted(how_far) => {
                eprintln!("interrupted: {how_far}");
                ExitCode::from(INTERRUPTED)
            }
            Self::ReaderGone => ExitCode::SUCCESS,
        }
    }
}

impl From<ApiProblem> for Failure {
    fn from(problem: ApiProblem) -> Self {
        Self::Told(problem.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Told(error.to_string()),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Told(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::Told(why.to_owned())
    }
}
