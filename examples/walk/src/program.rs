//! Runs an example's program as a child process.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A running program. Killed on drop, so also when the test panics.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// Time limit for the next line of output. Only a program that hangs exceeds it.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

impl Program {
    /// Starts a program with environment variables. `ONCEWARD_…` variables of the test process
    /// are removed.
    pub fn start(binary: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_with(binary, &[], variables)
    }

    /// Starts a program with arguments and environment variables.
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

    /// Next line of its output; `None` at the end of the output.
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(LINE_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no output for {LINE_TIMEOUT:?}"),
        }
    }

    /// Address in the next line, as in `listening on http://127.0.0.1:8081`.
    pub fn address(&self) -> String {
        let line = self.line().expect("the program listens before it ends");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a started program");
        self.child.wait().expect("a started program");
    }

    /// Sends SIGTERM, as an orchestrator does, and returns the remaining lines and the exit status.
    pub fn terminate(mut self) -> (Vec<String>, ExitStatus) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -TERM");
        let rest = std::iter::from_fn(|| self.line()).collect();
        (rest, self.child.wait().expect("a started program"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Reads in a thread, so that a full pipe does not block the program.
fn read_lines(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Goes on reading after the receiver is dropped: the program may still print.
            let _receiver_dropped = sender.send(line);
        }
    });
    lines
}
