//! Checks for the tools that run the README commands.

use std::env;
use std::process::{Command, Stdio};

use crate::readme::Readme;

/// Tools that commands may use. All others are on every machine with bash.
const TOOLS: [&str; 2] = ["curl", "redis-cli"];

/// Result of the check for bash and the tools of a README.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequiredTools {
    /// All are installed.
    Available,
    /// One is missing on a developer's machine. Contains the message to print.
    Skip(String),
    /// One is missing on CI, where a skipped test would go unnoticed. Contains the error.
    Fail(String),
}

impl RequiredTools {
    /// Looks for bash and for the tools that the README's commands use.
    pub fn check(readme: &Readme) -> Self {
        let is_used = |tool: &&str| readme.steps.iter().any(|step| step.command.contains(tool));
        let used = TOOLS.into_iter().filter(is_used).chain(["bash"]);
        let missing: Vec<_> = used.filter(|tool| !runs(tool)).collect();
        Self::of_missing(&missing, env::var("CI").is_ok_and(|ci| ci == "true"))
    }

    fn of_missing(missing: &[&str], ci: bool) -> Self {
        if missing.is_empty() {
            return Self::Available;
        }
        let names = missing.join(" and ");
        if ci {
            Self::Fail(format!(
                "the README's commands need {names}: install {names} on this runner"
            ))
        } else {
            Self::Skip(format!("SKIPPED: the README's commands need {names}"))
        }
    }
}

fn runs(tool: &str) -> bool {
    let mut command = Command::new(tool);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_fails_on_ci_and_skips_elsewhere() {
        assert_eq!(RequiredTools::of_missing(&[], true), RequiredTools::Available);
        assert!(
            matches!(RequiredTools::of_missing(&["curl"], true), RequiredTools::Fail(why) if why.contains("install curl"))
        );
        assert!(
            matches!(RequiredTools::of_missing(&["curl"], false), RequiredTools::Skip(why) if why.contains("SKIPPED"))
        );
    }

    #[test]
    fn a_missing_tool_does_not_run() {
        assert!(!runs("no-such-tool-anywhere"));
    }
}
