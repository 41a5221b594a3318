//! The steps of `cargo xtask test`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use onceward_services::{Program, SKIPPED_FILE, install, skips};

use crate::tools::{self, DENY, Tool};

/// How many seeds of the simulator are part of every test run.
const SEEDS: &str = "20000";

/// How many skipped tests are named for each reason.
const SKIPPED_NAMED: usize = 5;

/// One step: a name to repeat it by, and the commands it runs.
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

/// All steps, quick ones first.
fn all() -> Vec<Step> {
    let step = |name, words: &str| Step { name, commands: vec![line(words)], needs: None };
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

/// Every library with features by itself: without any, and with each one alone.
fn features() -> Vec<Line> {
    let mut lines = Vec::new();
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

/// Shows the steps and their commands.
pub(crate) fn list() -> ExitCode {
    for Step { name, commands, .. } in all() {
        println!("{name}");
        commands.iter().for_each(|line| println!("    {}", line.shown()));
    }
    ExitCode::SUCCESS
}

/// Runs all steps, or one.
pub(crate) fn run(only: Option<&str>) -> ExitCode {
    let mut steps = all();
    if let Some(only) = only {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        if !names.contains(&only) {
            println!("there is no step {only:?}; the steps are: {}", names.join(", "));
            return ExitCode::FAILURE;
        }
        steps.retain(|step| step.name == only);
    }
    if std::env::var_os("CI").is_some() {
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
                println!("repeat the step alone: cargo xtask test --only {name}");
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

/// The first tests by name, the others by number: the last lines are to be read.
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

/// On CI nothing is skipped: what tests need is installed. Where that fails they fail by
/// themselves, and say what is missing.
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

/// Where tests note that they were skipped.
fn skipped_tests_file() -> PathBuf {
    tools::target_directory().join("skipped-tests")
}
