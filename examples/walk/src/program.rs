//! An example's real program, running.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A running program; killed when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// Only a program that hangs comes near it.
const PATIENCE: Duration = Duration::from_secs(30);

impl Program {
    /// Starts a program with these variables. `ONCEWARD_…` of the one who runs the tests do
    /// not reach it.
    pub fn start(binary: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_with(binary, &[], variables)
    }

    /// The same with arguments.
    pub fn start_with(binary: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary);
        command.args(arguments);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("ONCEWARD_") {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{binary}: {error}"));
        let lines = child.stdout.take().map(read_lines).expect("stdout is piped");
        Self { child, lines }
    }

    /// The next line that it prints; `None` once it prints no more.
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing for {PATIENCE:?}"),
        }
    }

    /// The address in the next line, as in `listening on http://127.0.0.1:8081`.
    pub fn address(&self) -> String {
        let line = self.line().expect("it ended before it listened");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
    }

    /// Ends it at once, as nobody can prepare for.
    pub fn kill(&mut self) {
        self.child.kill().expect("it was started");
        self.child.wait().expect("it was started");
    }

    /// Asks it to end, as an orchestrator does, and returns what else it printed.
    pub fn terminate(mut self) -> (Vec<String>, ExitStatus) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()), "kill -TERM");
        let rest = std::iter::from_fn(|| self.line()).collect();
        (rest, self.child.wait().expect("it was started"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Reads in a thread, so that a full pipe never stops the program.
fn read_lines(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Whoever has heard enough still lets it go on talking.
            let _nobody_listens = sender.send(line);
        }
    });
    lines
}
