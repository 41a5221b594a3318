//! The tables, with the goals beside them.

use crate::compare::{Round, Run, Sample};
use crate::duplicates::{Duplicates, HANG_UPS, RACERS, RACES, Retry};
use crate::subject::Subject;

/// The least of the bare handler's throughput that is left for first requests.
const FIRST_GOAL: f64 = 0.85;

/// A replay is not slower than running the handler.
const REPLAY_GOAL: f64 = 1.0;

/// Prints what the rounds came to.
pub(crate) fn print_rounds(rounds: &[Round]) {
    let loads: [(&str, f64, fn(&Run) -> Sample); 2] = [
        ("First requests", FIRST_GOAL, |run| run.first),
        ("Replays", REPLAY_GOAL, |run| run.replay),
    ];
    for (title, goal, of) in loads {
        println!("\n{title}: throughput as a share of the bare handler's, goal ≥ {goal:.2}\n");
        println!(
            "| server | of bare | in {} rounds | requests/s | p50 ms | p99 ms | CPU µs | of bare |",
            rounds.len()
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|");
        let bare: Vec<_> = rounds.iter().flat_map(|it| it.bare).map(|it| of(&it)).collect();
        println!("| {} | 1 | | {}", Subject::Bare, numbers(&bare, 1.0));
        for (index, subject) in Subject::GUARDED.into_iter().enumerate() {
            let runs: Vec<_> = rounds.iter().map(|round| of(&round.guarded[index])).collect();
            let shares = rounds.iter().map(|round| {
                let base = round.bare.iter().map(|bare| of(bare).per_second).sum::<f64>() / 2.0;
                of(&round.guarded[index]).per_second / base
            });
            let Spread { median, low, high } = Spread::of(shares);
            let cpu = Spread::of(rounds.iter().map(|round| {
                let base = round.bare.iter().map(|bare| of(bare).cpu_micros).sum::<f64>() / 2.0;
                of(&round.guarded[index]).cpu_micros / base
            }));
            let numbers = numbers(&runs, cpu.median);
            println!("| {subject} | **{median:.2}** | {low:.2} to {high:.2} | {numbers}");
            if subject == Subject::Onceward {
                verdict(median, goal);
            }
        }
    }
    println!("\nWhat a process grows by for each key, in bytes\n");
    println!("| server | bytes |\n|---|---:|");
    for (index, subject) in Subject::GUARDED.into_iter().enumerate() {
        let bytes = Spread::of(rounds.iter().map(|round| round.guarded[index].bytes_per_key));
        println!("| {subject} | {:.0} |", bytes.median);
    }
}

/// To standard error, so that the tables stay tables.
fn verdict(median: f64, goal: f64) {
    let reached = if median >= goal { "reached" } else { "NOT reached" };
    eprintln!("onceward: {median:.2} of bare, goal {goal:.2}: {reached}");
}

fn numbers(samples: &[Sample], cpu_share: f64) -> String {
    let median = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median;
    format!(
        "{:.0} | {:.2} | {:.2} | {:.1} | {cpu_share:.2} |",
        median(|it| it.per_second),
        median(|it| it.p50_micros) / 1000.0,
        median(|it| it.p99_micros) / 1000.0,
        median(|it| it.cpu_micros),
    )
}

/// Prints what became of duplicates.
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
