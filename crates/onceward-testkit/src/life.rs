//! Processes that are killed: a test begins a child, which is a test of the same program, and
//! kills it in the middle of its work.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const CHILD: &str = "ONCEWARD_KILL_CHILD";
const LIFE: &str = "ONCEWARD_KILL_LIFE";

/// A process that works until it is killed, and what it says: lines that begin with `@ `.
#[derive(Debug)]
pub struct Life {
    child: Child,
    began: Receiver<()>,
    said: JoinHandle<Vec<String>>,
}

/// Whoever writes down what a process said before it was killed.
pub trait Hear {
    /// One line.
    fn hear(&mut self, line: &str);
}

impl Hear for Vec<String> {
    fn hear(&mut self, line: &str) {
        self.push(line.to_owned());
    }
}

impl Life {
    /// Where this process is to work and which life it is, if it is a child.
    ///
    /// # Panics
    ///
    /// If it is one that [`begin`](Self::begin) did not begin.
    pub fn of_this_process() -> Option<(OsString, u32)> {
        let place = std::env::var_os(CHILD)?;
        Some((place, std::env::var(LIFE).unwrap().parse().unwrap()))
    }

    /// Lets a child work for a while, kills it, and writes down what it said.
    ///
    /// # Panics
    ///
    /// As [`begin`](Self::begin) and [`kill`](Self::kill).
    pub fn live_and_die(test: &str, place: impl AsRef<OsStr>, life: u32, ledger: &mut impl Hear) {
        let child = Self::begin(test, place, life);
        // From its first word on, or also before: while it opens.
        if life % 8 != 7 {
            child.wait_until_it_works();
        }
        std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 120_000));
        for line in child.kill() {
            ledger.hear(&line);
        }
    }

    /// Begins a test of this program as a child, on the store in `place`.
    ///
    /// # Panics
    ///
    /// If there is no process to be had.
    pub fn begin(test: &str, place: impl AsRef<OsStr>, life: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(CHILD, place).env(LIFE, life.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (first, began) = channel();
        let said = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for line in output.split(b'\n').map_while(Result::ok) {
                if line.starts_with(b"@ ") {
                    let _ = first.send(());
                    lines.push(String::from_utf8_lossy(&line).into_owned());
                }
            }
            lines
        });
        Self { child, began, said }
    }

    /// Waits for its first word.
    ///
    /// # Panics
    ///
    /// If it says nothing for a minute.
    pub fn wait_until_it_works(&self) {
        self.began.recv_timeout(Duration::from_secs(60)).expect("the child begins to work");
    }

    /// Kills it, and returns what it said.
    ///
    /// # Panics
    ///
    /// If it died by itself.
    pub fn kill(mut self) -> Vec<String> {
        assert!(self.child.try_wait().unwrap().is_none(), "the child died by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.join().unwrap()
    }
}
