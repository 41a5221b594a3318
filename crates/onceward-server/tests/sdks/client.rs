//! A program that pays with a client library and prints what its caller sees.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use onceward_services::ServiceError;

use crate::packages;

/// Directory of the programs, one per library.
pub(crate) const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks/clients");

/// A program, ready to run.
pub(crate) struct Client(Command);

/// Result of each case for its caller.
pub(crate) type Seen = HashMap<String, Outcome>;

/// Result of a call.
pub(crate) enum Outcome {
    /// The call returned, with this id.
    Result(String),
    /// The call raised this error.
    Error(String),
}

impl Client {
    /// A Python program.
    pub(crate) fn python(program: &str) -> Result<Self, ServiceError> {
        let mut command = Command::new(packages::python()?);
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(Path::new(PROGRAMS).join(program));
        Ok(Self(command))
    }

    /// A program for Node.
    pub(crate) fn node(program: &str) -> Result<Self, ServiceError> {
        let home = packages::node()?;
        let mut command = Command::new("node");
        command.env("PACKAGES", home).arg(Path::new(PROGRAMS).join(program));
        Ok(Self(command))
    }

    /// The program in `stripe-go`, compiled.
    pub(crate) fn stripe_go() -> Result<Self, ServiceError> {
        Ok(Self(Command::new(packages::go("stripe-go")?)))
    }

    /// The program in `stripe-java`, compiled.
    pub(crate) fn stripe_java() -> Result<Self, ServiceError> {
        let classes = packages::java("stripe-java", "PayStripe")?;
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
        command.arg(format!("{}:{}/libs/*", classes.display(), classes.display()));
        command.arg("PayStripe");
        Ok(Self(command))
    }

    /// Runs the program to its end.
    pub(crate) fn run(mut self, base: &str) -> Seen {
        // Requests to loopback must not go through a configured proxy.
        let clear = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
        for name in clear {
            self.0.env_remove(name);
        }
        let output = self.0.env("BASE", base).stderr(Stdio::piped()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {errors}", self.0);
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.lines().map(|line| parsed(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }
}

/// Parses a line: the case, `result` or `error`, and an id or an error.
fn parsed(line: &str) -> Option<(String, Outcome)> {
    let mut fields = line.splitn(3, '\t');
    let (case, kind, text) = (fields.next()?, fields.next()?, fields.next()?.to_owned());
    let outcome = match kind {
        "result" => Outcome::Result(text),
        "error" => Outcome::Error(text),
        _ => return None,
    };
    Some((case.to_owned(), outcome))
}

impl fmt::Display for Outcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(id) if id.starts_with("pay_") => write!(to, "result, id {id}"),
            Self::Result(id) => write!(to, "**taken for success**, id {id:?}"),
            Self::Error(error) => write!(to, "{}", error.replace('|', "/")),
        }
    }
}
