//! Child processes that are killed in the middle of their work. The child is a test of the same
//! program.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const CHILD: &str = "ONCEWARD_KILL_CHILD";
const LIFE: &str = "ONCEWARD_KILL_LIFE";

/// A child process, from its start until it is killed, with its output: lines that begin with
/// `@ `.
#[derive(Debug)]
pub struct KilledProcess {
    child: Child,
    first_line: Receiver<()>,
    output_lines: JoinHandle<Vec<String>>,
}

/// Collects the output of a process that was killed.
pub trait CollectOutput {
    /// Takes one line.
    fn line(&mut self, line: &str);
}

impl CollectOutput for Vec<String> {
    fn line(&mut self, line: &str) {
        self.push(line.to_owned());
    }
}

impl KilledProcess {
    /// The argument and the number of this process, if it is a child.
    ///
    /// # Panics
    ///
    /// If [`begin`](Self::begin) did not start the child.
    pub fn of_this_process() -> Option<(OsString, u32)> {
        let place = std::env::var_os(CHILD)?;
        Some((place, std::env::var(LIFE).unwrap().parse().unwrap()))
    }

    /// Starts a child, kills it after a random time, and collects its output.
    ///
    /// # Panics
    ///
    /// As [`begin`](Self::begin) and [`kill`](Self::kill).
    pub fn run_and_kill(
        test: &str,
        place: impl AsRef<OsStr>,
        life: u32,
        ledger: &mut impl CollectOutput,
    ) {
        let child = Self::begin(test, place, life);
        // Most are killed after their first line, some before it, while they open the store.
        if life % 8 != 7 {
            child.wait_until_it_works();
        }
        std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 120_000));
        for line in child.kill() {
            ledger.line(&line);
        }
    }

    /// Starts a test of this program as a child, with an argument, such as the place of the store.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn begin(test: &str, place: impl AsRef<OsStr>, life: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(CHILD, place).env(LIFE, life.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (first, first_line) = channel();
        let output_lines = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for line in output.split(b'\n').map_while(Result::ok) {
                if line.starts_with(b"@ ") {
                    let _ = first.send(());
                    lines.push(String::from_utf8_lossy(&line).into_owned());
                }
            }
            lines
        });
        Self { child, first_line, output_lines }
    }

    /// Waits for its first line.
    ///
    /// # Panics
    ///
    /// If there is none within a minute.
    pub fn wait_until_it_works(&self) {
        self.first_line.recv_timeout(Duration::from_secs(60)).expect("the child begins to work");
    }

    /// Kills it, and returns its output.
    ///
    /// # Panics
    ///
    /// If it has ended by itself.
    pub fn kill(mut self) -> Vec<String> {
        assert!(self.child.try_wait().unwrap().is_none(), "the child died by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.output_lines.join().unwrap()
    }
}
