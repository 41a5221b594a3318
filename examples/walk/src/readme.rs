//! The curl walk of a README.

use std::process::Command;

use crate::answer::Answer;
use crate::promise::Promise;
use crate::tools::Tools;

/// The commands in a README's `sh` blocks, with what it promises about each.
#[derive(Debug, Clone, PartialEq)]
pub struct Readme {
    /// In the order they are to be run.
    pub steps: Vec<Step>,
}

/// One command, and what must come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What bash gets.
    pub command: String,
    /// What the lines `# → …` behind it say.
    pub promises: Vec<Promise>,
}

const ARROW: &str = "# → ";

impl Readme {
    /// Reads a README. Refuses one without commands, commands without a promise and promises
    /// that cannot be checked: each would be a test that cannot fail.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for block in text.split("```sh\n").skip(1) {
            let (block, _) = block.split_once("```").ok_or("a block of commands has no end")?;
            let overlooked = |line: &&str| line.contains('→') && !line.starts_with(ARROW);
            if let Some(line) = block.lines().find(overlooked) {
                return Err(format!("a promise must begin with {ARROW:?}: {line:?}"));
            }
            for part in commands(block) {
                steps.push(Step::read(&part)?);
            }
        }
        if steps.is_empty() { Err("there is no command in it".into()) } else { Ok(Self { steps }) }
    }

    /// Runs all commands by bash and curl, each address of the README replaced by the one
    /// where the service really is. Panics where an answer is not as promised.
    ///
    /// Returns false, with a line that says why, where a tool is missing.
    pub fn walk(&self, addresses: &[(&str, &str)]) -> bool {
        match Tools::look() {
            Tools::There => {}
            Tools::Skip(why) => {
                println!("{why}");
                return false;
            }
            Tools::Fail(why) => panic!("{why}"),
        }
        let mut before = None;
        for step in &self.steps {
            let command = step.addressed(addresses).unwrap_or_else(|why| panic!("{why}"));
            let answer = run(&command).unwrap_or_else(|why| panic!("{why}"));
            step.check(&answer, before.as_ref()).unwrap_or_else(|why| panic!("{why}"));
            before = Some(answer);
        }
        true
    }
}

impl Step {
    fn read(lines: &[&str]) -> Result<Self, String> {
        let is_command = |line: &&&str| !line.starts_with(ARROW);
        let command = lines.iter().filter(is_command).copied().collect::<Vec<_>>().join("\n");
        let promises = lines.iter().filter_map(|line| line.strip_prefix(ARROW));
        let promises: Vec<_> =
            promises.map(|it| Promise::read(it.trim())).collect::<Result<_, _>>()?;
        let asks = command.lines().filter(|line| line.starts_with("curl ")).count();
        if promises.is_empty() || asks > 1 {
            return Err(format!("nothing is promised about:\n{command}"));
        }
        Ok(Self { command, promises })
    }

    /// The command with the true addresses. One that goes elsewhere would test nothing.
    fn addressed(&self, addresses: &[(&str, &str)]) -> Result<String, String> {
        let replaced = addresses
            .iter()
            .fold(self.command.clone(), |command, (shown, real)| command.replace(shown, real));
        if replaced == self.command {
            return Err(format!("asks none of the services under test:\n{replaced}"));
        }
        Ok(replaced)
    }

    /// Holds an answer against the promises.
    pub fn check(&self, answer: &Answer, before: Option<&Answer>) -> Result<(), String> {
        match self.promises.iter().find(|promise| !promise.holds(answer, before)) {
            None => Ok(()),
            Some(broken) => Err(format!(
                "the README promises {broken:?} of\n{}\nand it answered {answer:#?}\nafter {before:#?}",
                self.command
            )),
        }
    }
}

/// Cuts a block into commands: each ends where its promises do. Other comments are left out.
fn commands(block: &str) -> Vec<Vec<&str>> {
    let mut commands: Vec<Vec<&str>> = Vec::new();
    let mut promised = true;
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let promise = line.starts_with(ARROW);
        if line.starts_with('#') && !promise {
            continue;
        }
        match commands.last_mut() {
            Some(command) if promise || !promised => command.push(line),
            _ => commands.push(vec![line]),
        }
        promised = promise;
    }
    commands
}

fn run(command: &str) -> Result<Answer, String> {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        // Neither a proxy nor the settings of whoever runs the tests may come between.
        .env("NO_PROXY", "*")
        .env("CURL_HOME", env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{command}\n{complaint}", output.status));
    }
    Answer::of_curl(&printed)
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
    fn commands_are_found_with_their_promises() {
        let readme = Readme::read(README).unwrap();
        let commands: Vec<_> = readme.steps.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(commands, ["curl -i localhost:1/a \\\n  -H 'A: b'", "curl -i localhost:1/b"]);
        let promised: Vec<_> = readme.steps.iter().map(|step| step.promises.len()).collect();
        assert_eq!(promised, [2, 1]);
    }

    #[test]
    fn a_readme_that_cannot_fail_is_refused() {
        for (readme, why) in [
            ("no commands", "no command"),
            ("```sh\ncurl x\n```", "nothing is promised"),
            ("```sh\ncurl x\n\ncurl y\n# → 200 OK\n```", "nothing is promised"),
            ("```sh\ncurl x\n#→ 200 OK\n```", "must begin with"),
            ("```sh\ncurl x\n  # → 200 OK\n```", "must begin with"),
            ("```sh\ncurl x\n# → fine\n```", "cannot read the promise"),
            ("```sh\ncurl x\n# → 200 OK", "no end"),
        ] {
            assert!(Readme::read(readme).unwrap_err().contains(why), "{readme}");
        }
    }

    #[test]
    fn a_command_to_an_unknown_address_is_refused() {
        let step = &Readme::read(README).unwrap().steps[0];
        assert!(
            step.addressed(&[("localhost:1", "127.0.0.1:7")]).unwrap().contains("127.0.0.1:7/a")
        );
        assert!(step.addressed(&[("localhost:2", "127.0.0.1:7")]).is_err());
    }

    #[test]
    fn a_lie_is_told_with_the_promise_and_the_answer() {
        let step = &Readme::read(README).unwrap().steps[1];
        let answer = Answer::of_curl("HTTP/1.1 500 Internal Server Error\r\n\r\nboom").unwrap();
        let told = step.check(&answer, None).unwrap_err();
        assert!(told.contains("200 OK") && told.contains("boom"), "{told}");
    }
}
