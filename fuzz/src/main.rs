//! Runs fuzz targets on the stable toolchain.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, panic};

use clap::Parser;
use onceward_fuzz::run::{self, Failure};
use onceward_fuzz::{TARGETS, Target};

/// Mutates the seeds of a target and runs it on them, until a limit or the first failure.
///
/// Examples:
///   onceward-fuzz                                        every target, ten seconds each
///   onceward-fuzz canonical_json --executions 5000000
///   onceward-fuzz multipart --seed 4711 --executions 1   one input again
///   onceward-fuzz multipart --input failing.bin          an input from a file
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// The target (default: each in turn)
    #[arg(value_parser = target)]
    target: Option<Target>,
    /// Duration (default: ten seconds, if no number of executions is given)
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of executions
    #[arg(long)]
    executions: Option<u64>,
    /// The first execution's number; the others count on from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run this file as it is
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

fn target(name: &str) -> Result<Target, String> {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let found = TARGETS.iter().find(|target| target.name == name).copied();
    found.ok_or_else(|| format!("no target {name:?}; there are: {}", names.join(", ")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A failure is printed once, at the end, and not for every attempt to shorten it.
    panic::set_hook(Box::new(|_| {}));
    let chosen = arguments.target.as_slice();
    let targets = if chosen.is_empty() { TARGETS } else { chosen };
    let fine = match &arguments.input {
        Some(path) => targets.iter().all(|target| run_file(target, path)),
        None => targets.iter().all(|target| run_many(target, &arguments)),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_file(target: &Target, path: &PathBuf) -> bool {
    let result = fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|input| run::attempt(target, &input));
    match &result {
        Ok(()) => println!("{}: fine", target.name),
        Err(reason) => println!("{}: {reason}", target.name),
    }
    result.is_ok()
}

fn run_many(target: &Target, arguments: &Arguments) -> bool {
    let limit = Limit::new(arguments);
    let (mut done, mut told) = (0, 0);
    while !limit.reached(done) {
        let number = arguments.seed.wrapping_add(done);
        if let Err(failure) = run::once(target, number) {
            tell(target, number, &failure);
            return false;
        }
        done += 1;
        let seconds = limit.begun.elapsed().as_secs();
        if seconds >= told + 10 {
            told = seconds;
            println!("{}: {done} executions in {seconds} s", target.name);
        }
    }
    println!("{}: {done} executions in {:.1?}, no failure", target.name, limit.begun.elapsed());
    true
}

struct Limit {
    begun: Instant,
    time: Option<Duration>,
    executions: u64,
}

impl Limit {
    fn new(arguments: &Arguments) -> Self {
        let unlimited = arguments.executions.is_none();
        let seconds = arguments.seconds.or(unlimited.then_some(10));
        Self {
            begun: Instant::now(),
            time: seconds.map(Duration::from_secs),
            executions: arguments.executions.unwrap_or(u64::MAX),
        }
    }

    fn reached(&self, done: u64) -> bool {
        done >= self.executions || self.time.is_some_and(|time| self.begun.elapsed() >= time)
    }
}

fn tell(target: &Target, number: u64, failure: &Failure) {
    let name = target.name;
    println!("{name}: seed {number} fails: {}", failure.reason);
    println!("  shortened to {} bytes: b\"{}\"", failure.input.len(), failure.input.escape_ascii());
    println!("  again: onceward-fuzz {name} --seed {number} --executions 1");
}
