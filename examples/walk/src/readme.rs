//! Parses and runs the commands of a README.

use std::process::Command;

use crate::expectation::Expectation;
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
    /// Command for bash.
    pub command: String,
    /// The lines `# → …` after it.
    pub expectations: Vec<Expectation>,
}

const ARROW: &str = "# → ";

impl Readme {
    /// Parses a README. It is an error if there is no command, if a command has no expectation, or
    /// if an expectation cannot be checked: such a test could not fail.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for block in text.split("```sh\n").skip(1) {
            let (block, _) = block.split_once("```").ok_or("a block of commands has no end")?;
            let misplaced = |line: &&str| line.contains('→') && !line.starts_with(ARROW);
            if let Some(line) = block.lines().find(misplaced) {
                return Err(format!("an expectation must begin with {ARROW:?}: {line:?}"));
            }
            for part in commands(block) {
                steps.push(Step::parse(&part)?);
            }
        }
        if steps.is_empty() { Err("it has no command".into()) } else { Ok(Self { steps }) }
    }

    /// Runs all commands with bash, after replacing each address of the README by the service's
    /// actual address. Panics if a response does not meet an expectation.
    ///
    /// Returns false, and prints the reason, if a tool is missing.
    pub fn run(&self, addresses: &[(&str, &str)]) -> bool {
        match RequiredTools::check() {
            RequiredTools::Available => {}
            RequiredTools::Skip(why) => {
                println!("{why}");
                return false;
            }
            RequiredTools::Fail(why) => panic!("{why}"),
        }
        let mut previous = None;
        for step in &self.steps {
            let command = step.with_addresses(addresses).unwrap_or_else(|why| panic!("{why}"));
            let response = run(&command).unwrap_or_else(|why| panic!("{why}"));
            step.check(&response, previous.as_ref()).unwrap_or_else(|why| panic!("{why}"));
            previous = Some(response);
        }
        true
    }
}

impl Step {
    fn parse(lines: &[&str]) -> Result<Self, String> {
        let is_command = |line: &&&str| !line.starts_with(ARROW);
        let command = lines.iter().filter(is_command).copied().collect::<Vec<_>>().join("\n");
        let expectations = lines.iter().filter_map(|line| line.strip_prefix(ARROW));
        let expectations: Vec<_> =
            expectations.map(|it| Expectation::parse(it.trim())).collect::<Result<_, _>>()?;
        let requests = command.lines().filter(|line| line.starts_with("curl ")).count();
        if expectations.is_empty() || requests > 1 {
            return Err(format!("a request has no expectation:\n{command}"));
        }
        Ok(Self { command, expectations })
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

    /// Compares a response with the expectations.
    pub fn check(&self, response: &Response, previous: Option<&Response>) -> Result<(), String> {
        match self.expectations.iter().find(|it| !it.matches(response, previous)) {
            None => Ok(()),
            Some(expected) => Err(format!(
                "expected {expected:?} from\n{}\ngot {response:#?}\nprevious response: {previous:#?}",
                self.command
            )),
        }
    }
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

fn run(command: &str) -> Result<Response, String> {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        // Ignores the proxy and the curl settings of the user's environment.
        .env("NO_PROXY", "*")
        .env("CURL_HOME", env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{command}\n{errors}", output.status));
    }
    Response::from_curl(&printed)
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
";

    #[test]
    fn commands_are_parsed_with_their_expectations() {
        let readme = Readme::parse(README).unwrap();
        let commands: Vec<_> = readme.steps.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(commands, ["curl -i localhost:1/a \\\n  -H 'A: b'", "curl -i localhost:1/b"]);
        let expectations: Vec<_> = readme.steps.iter().map(|it| it.expectations.len()).collect();
        assert_eq!(expectations, [2, 1]);
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
        let response =
            Response::from_curl("HTTP/1.1 500 Internal Server Error\r\n\r\nboom").unwrap();
        let error = step.check(&response, None).unwrap_err();
        assert!(error.contains("200 OK") && error.contains("boom"), "{error}");
    }
}
