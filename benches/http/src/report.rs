//! The tables, with the goals beside them.

use std::fmt;

use crate::compare::{Run, Sample, Turn};
use crate::duplicates::{Duplicates, HANG_UPS, RACERS, RACES, Retry};
use crate::orders::Handler;
use crate::subject::Subject;

/// The least of the bare handler's throughput that is left for first requests.
const FIRST_GOAL: f64 = 0.85;

/// A replay is not slower than running the handler.
const REPLAY_GOAL: f64 = 1.0;

/// One kind of load, with its goal.
struct Loaded {
    title: &'static str,
    goal: f64,
    of: fn(&Run) -> Sample,
}

const LOADED: [Loaded; 2] = [
    Loaded { title: "First requests", goal: FIRST_GOAL, of: |run| run.first },
    Loaded { title: "Replays", goal: REPLAY_GOAL, of: |run| run.replay },
];

/// Prints the results of the turns.
pub(crate) fn print_turns(handler: Handler, turns: &[Turn]) {
    println!("\n# With {}", handler.title());
    LOADED.iter().for_each(|loaded| loaded.print(turns));
    println!("\nWhat a process grows by for each key\n");
    println!("| server | bytes |\n|---|---:|");
    for (subject, own) in by_subject(turns) {
        let bytes = Spread::of(own.iter().map(|turn| turn.layered.bytes_per_key));
        println!("| {subject} | {:.0} |", bytes.median);
    }
}

/// Each subject that was measured, with its turns.
fn by_subject(turns: &[Turn]) -> impl Iterator<Item = (Subject, Vec<&Turn>)> {
    Subject::LAYERED.into_iter().filter_map(|subject| {
        let own: Vec<_> = turns.iter().filter(|turn| turn.subject == subject).collect();
        (!own.is_empty()).then_some((subject, own))
    })
}

impl Loaded {
    fn print(&self, turns: &[Turn]) {
        let Self { title, goal, of } = self;
        println!("\n{title}, as shares of what the bare handler does (low to high)\n");
        println!(
            "| server | throughput | processor time | requests/s | p50 ms | p99 ms | CPU µs |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|");
        let bare = turns.iter().flat_map(|turn| turn.bare).map(|run| of(&run));
        println!("| {} | 1 | 1 | {} |", Subject::Bare, numbers(bare));
        for (subject, own) in by_subject(turns) {
            let throughput = self.share(&own, |sample| sample.per_second);
            let cpu = self.share(&own, |sample| sample.cpu_micros);
            let numbers = numbers(own.iter().map(|turn| of(&turn.layered)));
            println!("| {subject} | {throughput} | {cpu} | {numbers} |");
        }
        for (subject, own) in by_subject(turns).filter(|(it, _)| *it == Subject::Onceward) {
            let reached = self.share(&own, |sample| sample.per_second).median;
            let verdict = if reached >= *goal { "reached" } else { "NOT reached" };
            println!("\nGoal for {subject} ≥ {goal:.2}: {verdict}, {reached:.2}");
        }
    }

    /// A number of one subject as a share of the bare handler's, turn by turn.
    fn share(&self, own: &[&Turn], number: fn(&Sample) -> f64) -> Spread {
        Spread::of(own.iter().map(|turn| {
            let [before, after] = turn.bare.map(|run| number(&(self.of)(&run)));
            number(&(self.of)(&turn.layered)) / f64::midpoint(before, after)
        }))
    }
}

fn numbers(samples: impl Iterator<Item = Sample>) -> String {
    let samples: Vec<_> = samples.collect();
    let median = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median;
    format!(
        "{:.0} | {:.2} | {:.2} | {:.1}",
        median(|it| it.per_second),
        median(|it| it.p50_micros) / 1000.0,
        median(|it| it.p99_micros) / 1000.0,
        median(|it| it.cpu_micros),
    )
}

/// Prints the duplicate executions.
pub(crate) fn print_duplicates(counted: &[(Subject, Duplicates)]) {
    println!("\nExecutions that should not have been\n");
    println!(
        "| server | {RACERS} at once, {RACES} keys | client hung up, {HANG_UPS} keys \
         | retry after a 500 | other payload, same key |"
    );
    println!("|---|---:|---:|---|---|");
    for (subject, Duplicates { racing, hung_up, after_500, changed }) in counted {
        let (after_500, changed) = (told(after_500), told(changed));
        println!("| {subject} | {racing} | {hung_up} | {after_500} | {changed} |");
    }
}

fn told(retry: &Retry) -> String {
    let Retry { answer, executions } = retry;
    let replay = if answer.replayed { " replayed" } else { "" };
    let ran = if *executions == 1 { "" } else { ", **ran again**" };
    format!("{}{replay}{ran}", answer.status)
}

/// The middle of some numbers, and their ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high } = self;
        write!(f, "**{median:.2}** ({low:.2} to {high:.2})")
    }
}

impl Spread {
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            low: at(0),
            high: at(last),
        }
    }
}
