//! The steps of `cargo xtask test`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use onceward_services::{Program, SKIPPED_FILE, install, skips};

use crate::tools::{self, DENY, Tool};

/// Number of the simulator's seeds in every test run.
const SEEDS: &str = "20000";

/// Most skipped tests that are named for a reason.
const SKIPPED_NAMED: usize = 5;

/// A step, which can be repeated by its name.
struct Step {
    name: &'static str,
    commands: Vec<Line>,
    needs: Option<Tool>,
}

/// A cargo command with what it needs in its environment.
struct Line {
    words: String,
    environment: Option<(&'static str, &'static str)>,
}

fn line(words: impl Into<String>) -> Line {
    Line { words: words.into(), environment: None }
}

fn step(name: &'static str, words: &str) -> Step {
    Step { name, commands: vec![line(words)], needs: None }
}

/// The steps of `--quick`.
///
/// They compile with the same features as the steps of the full command, so that each finds the
/// other's dependencies compiled. The test program `simulation` runs 2,000 seeds and every mutant.
fn quick() -> Vec<Step> {
    let programs = "--lib --test core_tests --test simulation";
    vec![
        step("fmt", "fmt --all --check"),
        step("clippy", "clippy --workspace --all-features -- -D warnings"),
        step("tests", &format!("test --workspace --all-features {programs}")),
    ]
}

/// All steps, fast ones first.
fn all() -> Vec<Step> {
    let mut doc = line("doc --workspace --no-deps --all-features");
    doc.environment = Some(("RUSTDOCFLAGS", "-D warnings"));
    let sim = format!("run --quiet -p onceward-testkit --bin onceward-sim -- --seeds {SEEDS}");
    vec![
        step("fmt", "fmt --all --check"),
        step("clippy", "clippy --workspace --all-targets --all-features -- -D warnings"),
        Step { name: "doc", commands: vec![doc], needs: None },
        Step { name: "features", commands: features(), needs: None },
        step("tests", "test --workspace --all-features"),
        step("sim", &sim),
        Step { needs: Some(DENY), ..step("deny", "deny check bans licenses sources") },
    ]
}

/// Every library with features by itself: without any, and with each one alone. The program without
/// any is what `cargo demo` compiles.
fn features() -> Vec<Line> {
    let mut lines = vec![line("check -p onceward-server --no-default-features")];
    for (package, features) in tools::libraries() {
        lines.push(line(format!("check -p {package} --no-default-features")));
        for feature in features {
            let words = format!("check -p {package} --no-default-features --features {feature}");
            lines.push(line(words));
        }
    }
    lines
}

impl Line {
    fn shown(&self) -> String {
        let environment = self.environment.map(|(name, value)| format!("{name}='{value}' "));
        format!("{}cargo {}", environment.unwrap_or_default(), self.words)
    }

    fn succeeds(&self) -> bool {
        let mut command = crate::cargo(&self.words);
        command.envs(self.environment).env(SKIPPED_FILE, skipped_tests_file());
        tools::add_to_path(&mut command);
        command.status().is_ok_and(|status| status.success())
    }
}

fn chosen(quickly: bool) -> Vec<Step> {
    if quickly { quick() } else { all() }
}

/// Shows the steps and their commands.
pub(crate) fn list(quickly: bool) -> ExitCode {
    for Step { name, commands, .. } in chosen(quickly) {
        println!("{name}");
        commands.iter().for_each(|line| println!("    {}", line.shown()));
    }
    ExitCode::SUCCESS
}

/// Runs all steps, the quick ones, or one.
pub(crate) fn run(quickly: bool, only: Option<&str>) -> ExitCode {
    let mut steps = chosen(quickly);
    if let Some(only) = only {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        if !names.contains(&only) {
            println!("there is no step {only:?}; the steps are: {}", names.join(", "));
            return ExitCode::FAILURE;
        }
        steps.retain(|step| step.name == only);
    }
    if std::env::var_os("CI").is_some() && !quickly {
        install_for_ci(&steps);
    }
    let notes = skipped_tests_file();
    let _was_not_there = fs::remove_file(&notes);
    let (count, started, mut skipped) = (steps.len(), Instant::now(), Vec::new());
    for (index, Step { name, commands, needs }) in steps.into_iter().enumerate() {
        if let Some(missing) = needs.filter(|tool| !tools::available(*tool)) {
            skipped.push(format!("{name}: {}", missing.advice));
            continue;
        }
        let began = Instant::now();
        println!("[{}/{count}] {name}", index + 1);
        for line in commands {
            if !line.succeeds() {
                println!("\nfailed: {}", line.shown());
                let quick = if quickly { " --quick" } else { "" };
                println!("repeat the step alone: cargo xtask test{quick} --only {name}");
                return ExitCode::FAILURE;
            }
        }
        println!("[{}/{count}] {name}: ok, {:.0} s", index + 1, began.elapsed().as_secs_f64());
    }
    for (reason, tests) in skips(&notes) {
        skipped.push(format!("{}: {reason}", some_of(&tests)));
    }
    skipped.iter().for_each(|what| println!("skipped {what}"));
    println!("{}, in {:.0} s", verdict(skipped.len()), started.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

/// Names the first tests and counts the others, so that the summary stays short.
fn some_of(tests: &[String]) -> String {
    let (named, others) = tests.split_at(tests.len().min(SKIPPED_NAMED));
    match others.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more tests", named.join(", ")),
    }
}

fn verdict(skipped: usize) -> &'static str {
    if skipped == 0 { "all of it holds" } else { "all of it holds but what was skipped" }
}

/// Installs on CI what tests need, because nothing is skipped there. If that fails, the tests fail
/// and say what is missing.
fn install_for_ci(steps: &[Step]) {
    let _walks_look_again = tools::debian("curl");
    if steps.iter().any(|step| step.name == "tests") {
        for missing in
            [install(&Program::ALL), install(&Program::TOOLS)].into_iter().flat_map(Result::err)
        {
            println!("{missing}");
        }
    }
}

/// File in which tests note that they were skipped.
fn skipped_tests_file() -> PathBuf {
    tools::target_directory().join("skipped-tests")
}
