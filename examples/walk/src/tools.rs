//! What a walk needs beside the toolchain.

use std::env;
use std::process::{Command, Stdio};

/// Whether bash and curl are there, and what to do if they are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tools {
    /// They are there.
    There,
    /// Not here: a person may do without.
    Skip(String),
    /// Not on CI, where a walk that is not run would go unnoticed.
    Fail(String),
}

impl Tools {
    /// Looks for them.
    pub fn look() -> Self {
        let missing: Vec<_> = ["bash", "curl"].into_iter().filter(|tool| !runs(tool)).collect();
        Self::judge(&missing, env::var("CI").is_ok_and(|ci| ci == "true"))
    }

    fn judge(missing: &[&str], ci: bool) -> Self {
        if missing.is_empty() {
            return Self::There;
        }
        let names = missing.join(" and ");
        if ci {
            Self::Fail(format!("the README's walk needs {names}: install {names} on this runner"))
        } else {
            Self::Skip(format!("SKIPPED: the README's walk needs {names}"))
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
    fn a_missing_tool_fails_ci_and_is_told_elsewhere() {
        assert_eq!(Tools::judge(&[], true), Tools::There);
        assert!(
            matches!(Tools::judge(&["curl"], true), Tools::Fail(why) if why.contains("install curl"))
        );
        assert!(
            matches!(Tools::judge(&["curl"], false), Tools::Skip(why) if why.contains("SKIPPED"))
        );
    }

    #[test]
    fn a_tool_that_is_not_there_does_not_run() {
        assert!(!runs("no-such-tool-anywhere"));
    }
}
