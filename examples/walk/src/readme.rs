//! Parses and runs the commands of a README.

use std::process::Command;

use crate::expectation::Expectation;
use crate::printed_line::PrintedLine;
use crate::required_tools::RequiredTools;
use crate::response::Response;

/// The commands in a README's `sh` blocks, with their expectations.
#[derive(Debug, Clone, PartialEq)]
pub struct Readme {
    /// In the order of the README.
    pub steps: Vec<Step>,
}

/// A command and its expectations.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The last heading `## …` before it; empty if there is none.
    pub section: String,
    /// Command for bash.
    pub command: String,
    /// The lines `# → …` after it.
    pub expected: Expected,
}

/// The expected output of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// A request with curl: its response meets all expectations.
    Response(Vec<Expectation>),
    /// Another command: it prints exactly these lines.
    Lines(Vec<PrintedLine>),
}

const ARROW: &str = "# → ";

impl Readme {
    /// Parses a README. It is an error if there is no command, if a command has no expectation, or
    /// if an expectation cannot be checked: such a test could not fail.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut texts = text.split("```sh\n");
        let mut section = last_heading(texts.next().unwrap_or_default()).unwrap_or_default();
        for text in texts {
            let (block, after) = text.split_once("```").ok_or("a block of commands has no end")?;
            let misplaced = |line: &&str| line.contains('→') && !line.starts_with(ARROW);
            if let Some(line) = block.lines().find(misplaced) {
                return Err(format!("an expectation must begin with {ARROW:?}: {line:?}"));
            }
            for part in commands(block) {
                steps.push(Step::parse(section, &part)?);
            }
            section = last_heading(after).unwrap_or(section);
        }
        if steps.is_empty() { Err("it has no command".into()) } else { Ok(Self { steps }) }
    }

    /// Leaves out the commands of a section, which need a service that is not there. Panics if there
    /// are none: the section may have another name now.
    #[must_use]
    pub fn without(mut self, section: &str) -> Self {
        let all = self.steps.len();
        self.steps.retain(|step| step.section != section);
        assert!(self.steps.len() < all, "the README has no commands in a section {section:?}");
        self
    }

    /// Runs all commands with bash, after replacing each address of the README by the service's
    /// actual address. Panics if an output is not the expected one.
    ///
    /// Returns false, and prints the reason, if a tool is missing.
    pub fn run(&self, addresses: &[(&str, &str)]) -> bool {
        match RequiredTools::check(self) {
            RequiredTools::Available => {}
            RequiredTools::Skip(why) => {
                println!("{why}");
                return false;
            }
            RequiredTools::Fail(why) => panic!("{why}"),
        }
        let mut previous = None;
        for step in &self.steps {
            let output = step.output(addresses).unwrap_or_else(|why| panic!("{why}"));
            let checked = step.check(&output, previous.as_ref());
            previous = checked.unwrap_or_else(|why| panic!("{why}")).or(previous);
        }
        true
    }
}

impl Step {
    fn parse(section: &str, lines: &[&str]) -> Result<Self, String> {
        let is_command = |line: &&&str| !line.starts_with(ARROW);
        let command = lines.iter().filter(is_command).copied().collect::<Vec<_>>().join("\n");
        let expected = lines.iter().filter_map(|line| line.strip_prefix(ARROW)).map(str::trim);
        let requests = command.lines().filter(|line| line.starts_with("curl ")).count();
        if expected.clone().next().is_none() || requests > 1 {
            return Err(format!("a command has no expectation:\n{command}"));
        }
        let expected = match requests {
            0 => Expected::Lines(expected.map(PrintedLine::parse).collect::<Result<_, _>>()?),
            _ => Expected::Response(expected.map(Expectation::parse).collect::<Result<_, _>>()?),
        };
        Ok(Self { section: section.to_owned(), command, expected })
    }

    /// Runs the command with the actual addresses, and returns what it prints. It is an error if it
    /// fails.
    pub fn output(&self, addresses: &[(&str, &str)]) -> Result<String, String> {
        run(&self.with_addresses(addresses)?)
    }

    /// The command with the actual addresses. It is an error if it contains none of the README's
    /// addresses, because it would test something else.
    fn with_addresses(&self, addresses: &[(&str, &str)]) -> Result<String, String> {
        let replaced = addresses
            .iter()
            .fold(self.command.clone(), |command, (shown, real)| command.replace(shown, real));
        if replaced == self.command {
            return Err(format!(
                "the command contains no address of the services under test:\n{replaced}"
            ));
        }
        Ok(replaced)
    }

    /// Compares an output with the expected one. Returns the response, if it is one.
    pub fn check(
        &self,
        output: &str,
        previous: Option<&Response>,
    ) -> Result<Option<Response>, String> {
        match &self.expected {
            Expected::Response(expectations) => {
                let response = Response::from_curl(output)?;
                self.check_response(expectations, &response, previous).map(|()| Some(response))
            }
            Expected::Lines(lines) if PrintedLine::all_match(lines, output) => Ok(None),
            Expected::Lines(lines) => {
                Err(format!("expected {lines:#?} from\n{}\ngot\n{output}", self.command))
            }
        }
    }

    fn check_response(
        &self,
        expectations: &[Expectation],
        response: &Response,
        previous: Option<&Response>,
    ) -> Result<(), String> {
        match expectations.iter().find(|it| !it.matches(response, previous)) {
            None => Ok(()),
            Some(expected) => Err(format!(
                "expected {expected:?} from\n{}\ngot {response:#?}\nprevious response: {previous:#?}",
                self.command
            )),
        }
    }
}

fn last_heading(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| line.strip_prefix("## "))
}

/// Splits a block into commands, each with its expectations. Other comments are dropped.
fn commands(block: &str) -> Vec<Vec<&str>> {
    let mut commands: Vec<Vec<&str>> = Vec::new();
    let mut after_expectation = true;
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let is_expectation = line.starts_with(ARROW);
        if line.starts_with('#') && !is_expectation {
            continue;
        }
        match commands.last_mut() {
            Some(command) if is_expectation || !after_expectation => command.push(line),
            _ => commands.push(vec![line]),
        }
        after_expectation = is_expectation;
    }
    commands
}

fn run(command: &str) -> Result<String, String> {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        // Ignores the proxy and the curl settings of the user's environment.
        .env("NO_PROXY", "*")
        .env("CURL_HOME", env!("CARGO_MANIFEST_DIR"))
        // `sort` has one order everywhere.
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{command}\n{errors}", output.status));
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "
Text with `curl` in it.

```sh
# The first one
curl -i localhost:1/a \\
  -H 'A: b'
# → 201 Created
# → A: b

curl -i localhost:1/b
# → 200 OK
```

```text
curl -i elsewhere
```

## Inspecting

```sh
redis-cli -p 1 GET a |
  sort
# → one
# → t…o
```
";

    #[test]
    fn commands_are_parsed_with_their_expectations() {
        let readme = Readme::parse(README).unwrap();
        let commands: Vec<_> = readme.steps.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "curl -i localhost:1/a \\\n  -H 'A: b'",
                "curl -i localhost:1/b",
                "redis-cli -p 1 GET a |\n  sort"
            ]
        );
        let sections: Vec<_> = readme.steps.iter().map(|step| step.section.as_str()).collect();
        assert_eq!(sections, ["", "", "Inspecting"]);
        assert_eq!(readme.clone().without("Inspecting").steps.len(), 2);
        let expected = readme.steps.iter().map(|step| match &step.expected {
            Expected::Response(expectations) => ("response", expectations.len()),
            Expected::Lines(lines) => ("lines", lines.len()),
        });
        assert_eq!(expected.collect::<Vec<_>>(), [("response", 2), ("response", 1), ("lines", 2)]);
    }

    #[test]
    fn a_readme_that_cannot_fail_is_an_error() {
        for (readme, why) in [
            ("no commands", "no command"),
            ("```sh\ncurl x\n```", "no expectation"),
            ("```sh\ncurl x\n\ncurl y\n# → 200 OK\n```", "no expectation"),
            ("```sh\ncurl x\n#→ 200 OK\n```", "must begin with"),
            ("```sh\ncurl x\n  # → 200 OK\n```", "must begin with"),
            ("```sh\ncurl x\n# → fine\n```", "cannot parse the expectation"),
            ("```sh\ncurl x\n# → 200 OK", "no end"),
        ] {
            assert!(Readme::parse(readme).unwrap_err().contains(why), "{readme}");
        }
    }

    #[test]
    fn a_command_to_an_unknown_address_is_an_error() {
        let step = &Readme::parse(README).unwrap().steps[0];
        assert!(
            step.with_addresses(&[("localhost:1", "127.0.0.1:7")])
                .unwrap()
                .contains("127.0.0.1:7/a")
        );
        assert!(step.with_addresses(&[("localhost:2", "127.0.0.1:7")]).is_err());
    }

    #[test]
    fn a_failure_shows_the_expectation_and_the_response() {
        let step = &Readme::parse(README).unwrap().steps[1];
        let error = step.check("HTTP/1.1 500 Internal Server Error\r\n\r\nboom", None).unwrap_err();
        assert!(error.contains("200 OK") && error.contains("boom"), "{error}");
    }

    #[test]
    fn a_command_prints_all_expected_lines_and_no_other() {
        let step = &Readme::parse(README).unwrap().steps[2];
        assert_eq!(step.check("one\ntwo\n", None), Ok(None));
        for wrong in ["", "one\n", "two\none\n", "one\ntwo\nthree\n", "one\n\ntwo\n"] {
            let error = step.check(wrong, None).unwrap_err();
            assert!(error.contains("t…o") && error.contains("GET a"), "{wrong:?}: {error}");
        }
    }

    #[test]
    #[should_panic(expected = "no commands in a section")]
    fn a_section_without_commands_cannot_be_left_out() {
        let _readme = Readme::parse(README).unwrap().without("Renamed");
    }
}
