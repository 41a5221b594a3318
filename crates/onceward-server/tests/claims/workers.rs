//! The workers of examples/workers, also when they are killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{ACME, Server};

const WORKERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers");

/// One of the examples, with its server and the provider's ledger.
struct Worker<'s> {
    command: [String; 2],
    server: &'s Server,
    ledger: PathBuf,
}

impl Worker<'_> {
    fn start(&self, order: &str, settings: &[(&str, &str)]) -> Child {
        Command::new(&self.command[0])
            .args([&self.command[1], order, "4200"])
            .env("ONCEWARD_CLAIMS", format!("http://{}", self.server.address))
            .env("ONCEWARD_TOKEN", ACME)
            .env("LEDGER", &self.ledger)
            .env("LEASE", "2s")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, order: &str, settings: &[(&str, &str)]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } =
            self.start(order, settings).wait_with_output().unwrap();
        (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    fn charges(&self) -> usize {
        std::fs::read_to_string(&self.ledger).unwrap_or_default().lines().count()
    }

    /// Starts the worker, waits until it has charged, and kills it before it can report that.
    fn dies_after_charging(&self, order: &str) {
        let (before, end) = (self.charges(), Instant::now() + Duration::from_secs(20));
        let mut worker = self.start(order, &[("WORK_SECONDS", "60")]);
        while self.charges() == before {
            assert!(Instant::now() < end, "{order} is not charged");
            thread::sleep(Duration::from_millis(10));
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

/// Runs an example through all its cases, if its language is installed.
fn runs_all_cases(program: &str, file: &str) {
    if Command::new(program).arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "{program} is missing");
        println!("SKIPPED: {program} is missing");
        return;
    }
    let (server, directory) = Server::embedded();
    let path = Path::new(WORKERS).join(file);
    let command = [program.to_owned(), path.to_str().unwrap().to_owned()];
    let worker = Worker { command, server: &server, ledger: directory.path().join("ledger") };

    // The work takes longer than the lease, so the worker renews it.
    let (status, output) = worker.run("order-1", &[("WORK_SECONDS", "2.5")]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("granted: attempt 1") && output.contains("completed: "), "{output}");
    let (status, output) = worker.run("order-1", &[]);
    assert!(status == Some(0) && output.contains("completed before: "), "{output}");
    assert_eq!(worker.charges(), 1);

    worker.dies_after_charging("order-2");
    let (status, output) = worker.run("order-2", &[]);
    assert_eq!(status, Some(2), "{output}");
    assert!(output.contains("unknown: ") && output.contains("4200"), "{output}");
    assert_eq!(worker.charges(), 2);

    worker.dies_after_charging("order-3");
    let (status, output) = worker.run("order-3", &[("ON_LAPSE", "takeover")]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("granted: attempt 2") && output.contains("completed: "), "{output}");
    assert_eq!(worker.charges(), 3);
}

#[test]
fn the_python_worker_charges_once_whatever_happens() {
    runs_all_cases("python3", "python/worker.py");
}

#[test]
fn the_typescript_worker_charges_once_whatever_happens() {
    runs_all_cases("node", "typescript/worker.mjs");
}
