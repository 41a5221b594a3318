//! Failures of commands, and exit codes.

use std::io;
use std::process::ExitCode;

use crate::api::ApiProblem;

/// Exit code after Ctrl-C, by the shells' convention.
const INTERRUPTED: u8 = 130;

/// Why a command ends before its work is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error.
    Error(String),
    /// Ctrl-C, with what was done before.
    Interrupted(String),
    /// The reader of standard output closed it, as `head` does.
    OutputClosed,
}

impl Failure {
    /// Prints the failure and returns its exit code.
    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Self::Error(why) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
            Self::Interrupted(done) => {
                eprintln!("interrupted: {done}");
                ExitCode::from(INTERRUPTED)
            }
            Self::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

impl From<ApiProblem> for Failure {
    fn from(problem: ApiProblem) -> Self {
        Self::Error(problem.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Error(error.to_string()),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Error(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::Error(why.to_owned())
    }
}
