//! Runs the simulator: many seeds on all cores, or one seed with its history.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use onceward_testkit::sim::{self, Coverage, Mutant, Report};
use parking_lot::Mutex;

/// Simulates nodes, clients and faults, and checks every invariant.
///
/// Examples:
///   onceward-sim --seeds 20000          the seeds 0 to 19999, on all cores
///   onceward-sim --seed 4711            one seed, with its history
///   onceward-sim --seeds 500 --mutant look-then-lock
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// Number of seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed alone and print its history
    #[arg(long)]
    seed: Option<u64>,
    /// Plant a bug; fails if it is not found
    #[arg(long, value_parser = mutant)]
    mutant: Option<Mutant>,
    /// Worker threads (default: one a core)
    #[arg(long)]
    threads: Option<usize>,
}

fn mutant(name: &str) -> Result<Mutant, String> {
    let named = Mutant::ALL.into_iter().find(|mutant| mutant.name() == name);
    named.ok_or_else(|| format!("no mutant {name:?}; there are: {}", names().join(", ")))
}

fn names() -> Vec<String> {
    Mutant::ALL.iter().map(Mutant::name).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => tell(&sim::run(seed, arguments.mutant), arguments.mutant),
        None => run_many(&arguments),
    }
}

/// Prints every event of a seed, then the violations.
fn tell(report: &Report, mutant: Option<Mutant>) -> ExitCode {
    println!("seed {}: {:#?}", report.seed, report.plan);
    for (position, event) in report.events.iter().enumerate() {
        println!("{position:5}  {event:?}");
    }
    for (what, times) in &report.coverage {
        println!("{times:7}  {what}");
    }
    if report.violations.is_empty() {
        println!("seed {}: every invariant held", report.seed);
        return ExitCode::SUCCESS;
    }
    print_violations(report, mutant);
    ExitCode::FAILURE
}

fn print_violations(report: &Report, mutant: Option<Mutant>) {
    for violation in &report.violations {
        println!("seed {}: {violation}", report.seed);
    }
    let planted = mutant.map(|it| format!(" --mutant {}", it.name())).unwrap_or_default();
    println!("repeat it alone: cargo xtask sim --seed {}{planted}", report.seed);
}

/// The counts of a run over many seeds.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    bad: AtomicU64,
    stop: AtomicBool,
    coverage: Mutex<Coverage>,
    shown: Mutex<Vec<Report>>,
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let (tally, next) = (Tally::default(), AtomicU64::new(arguments.from));
    let end = arguments.from + arguments.seeds;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.unwrap_or(cores) {
            scope.spawn(|| work(&tally, &next, end, arguments.mutant));
        }
        watch(&tally, arguments.seeds, started);
    });
    verdict(&tally, arguments, started)
}

fn work(tally: &Tally, next: &AtomicU64, end: u64, mutant: Option<Mutant>) {
    while !tally.stop.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let report = sim::run(seed, mutant);
        // One seed in a hundred must repeat itself exactly.
        if seed.is_multiple_of(100) && sim::run(seed, mutant).digest() != report.digest() {
            println!("seed {seed}: two runs had different histories");
            tally.bad.fetch_add(1, Ordering::Relaxed);
        }
        for (what, times) in &report.coverage {
            *tally.coverage.lock().entry(what).or_default() += times;
        }
        if !report.violations.is_empty() {
            // A mutant is found once; a real bug is worth a few examples.
            tally.stop.store(mutant.is_some(), Ordering::Relaxed);
            tally.bad.fetch_add(1, Ordering::Relaxed);
            let mut shown = tally.shown.lock();
            if shown.len() < 5 {
                shown.push(report);
            }
        }
        tally.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A progress line on a terminal, a line every 15 s elsewhere.
fn watch(tally: &Tally, seeds: u64, started: Instant) {
    let terminal = std::io::stdout().is_terminal();
    let mut spoke = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let done = tally.done.load(Ordering::Relaxed);
        let over = done >= seeds || tally.stop.load(Ordering::Relaxed);
        if terminal || spoke.elapsed() > Duration::from_secs(15) {
            spoke = Instant::now();
            let rate = done as f64 / started.elapsed().as_secs_f64();
            let left = (seeds - done.min(seeds)) as f64 / rate.max(0.001);
            let bar = "#".repeat((done * 30 / seeds.max(1)) as usize);
            let line = format!("[{bar:30}] {done}/{seeds} seeds, {rate:.0}/s, {left:.0} s left");
            let (start, end) = if terminal { ("\r", "  ") } else { ("", "\n") };
            print!("{start}{line}{end}");
            let _unflushed = std::io::stdout().flush();
        }
        if over {
            break;
        }
    }
    if terminal {
        println!();
    }
}

fn verdict(tally: &Tally, arguments: &Arguments, started: Instant) -> ExitCode {
    let (done, bad) = (tally.done.load(Ordering::Relaxed), tally.bad.load(Ordering::Relaxed));
    println!("coverage over {done} seeds:");
    for (what, times) in &*tally.coverage.lock() {
        println!("{times:9}  {what}");
    }
    for report in &*tally.shown.lock() {
        print_violations(report, arguments.mutant);
    }
    let missing = missing(&tally.coverage.lock());
    let proves_nothing = done >= 5_000 && arguments.mutant.is_none() && !missing.is_empty();
    if proves_nothing {
        println!("never occurred, so this run proves nothing about: {}", missing.join(", "));
    }
    println!("{done} seeds, {bad} bad, in {:.1} s", started.elapsed().as_secs_f64());
    let good = match arguments.mutant {
        Some(_) => bad > 0,
        None => bad == 0 && !proves_nothing,
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn missing(coverage: &Coverage) -> Vec<&'static str> {
    sim::SITUATIONS.iter().copied().filter(|what| !coverage.contains_key(what)).collect()
}
