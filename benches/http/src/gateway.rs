//! The gateway beside nginx, which only passes on, and beside Restate.

use std::time::Duration;

use crate::Fallible;
use crate::fronts::{Front, Programs, Running};
use crate::report::Spread;
use crate::wrk::{self, Load, Measured};

/// The share of nginx's throughput that is to be left.
const GOAL: f64 = 0.8;

const WARM_UP: Duration = Duration::from_secs(1);

/// Arguments of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    programs: Programs,
    /// Number of rounds for each front
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Duration of each load
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// One front under each load, in the order of [`Load::ALL`].
type Loaded = [Measured; Load::ALL.len()];

/// One front beside nginx, which ran before and after it.
struct Turn {
    front: Front,
    nginx: [Loaded; 2],
    guarded: Loaded,
}

/// Measures all of it, and prints the table.
pub(crate) async fn measure(plan: Plan) -> Fallible<()> {
    let service = Running::service().await?;
    let has_restate = plan.programs.restate.is_some();
    let fronts = Front::GUARDED.into_iter().filter(|it| has_restate || *it != Front::Restate);
    let fronts: Vec<Front> = fronts.collect();
    let mut turns = Vec::new();
    let mut before = run(Front::Nginx, &service, &plan).await?;
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        for front in &fronts {
            let guarded = run(*front, &service, &plan).await?;
            let after = run(Front::Nginx, &service, &plan).await?;
            turns.push(Turn { front: *front, nginx: [before, after], guarded });
            before = after;
        }
    }
    Load::ALL.iter().enumerate().for_each(|(index, load)| print(*load, index, &fronts, &turns));
    Ok(())
}

async fn run(front: Front, service: &Running, plan: &Plan) -> Fallible<Loaded> {
    let running = Running::start(front, service.address, &plan.programs).await?;
    let mut measured = Vec::new();
    for (number, load) in (0..).zip(Load::ALL) {
        let (to, path) = (running.address, front.path());
        // Replays are warmed up by the requests that they repeat.
        let warm = if load == Load::Replay { number } else { 100 + number };
        wrk::send(load, warm, to, path, WARM_UP).await?;
        let seconds = Duration::from_secs(plan.seconds);
        let result = wrk::send(load, number, to, path, seconds).await?;
        result.check().map_err(|error| format!("{front}, {load:?}: {error}"))?;
        measured.push(result);
    }
    measured.try_into().map_err(|_| "a load is missing".into())
}

fn print(load: Load, index: usize, fronts: &[Front], turns: &[Turn]) {
    println!("\n{}\n", load.title());
    println!("| | of nginx | requests/s | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|");
    let nginx: Vec<_> = turns.iter().flat_map(|turn| turn.nginx).map(|it| it[index]).collect();
    println!("| {} | 1 | {} |", Front::Nginx, numbers(&nginx));
    for front in fronts {
        let own = || turns.iter().filter(|turn| turn.front == *front);
        let share = Spread::of(own().map(|turn| {
            let nginx: f64 = turn.nginx.iter().map(|it| it[index].per_second()).sum();
            turn.guarded[index].per_second() / (nginx / 2.0)
        }));
        let measured: Vec<_> = own().map(|turn| turn.guarded[index]).collect();
        let reached = if share.median >= GOAL { "" } else { ", goal 0.80 missed" };
        println!("| {front} | {share}{reached} | {} |", numbers(&measured));
    }
}

fn numbers(measured: &[Measured]) -> String {
    let median = |of: fn(&Measured) -> f64| Spread::of(measured.iter().map(of)).median;
    format!(
        "{:.0} | {:.2} | {:.2}",
        median(Measured::per_second),
        median(|it| it.p50_micros as f64) / 1000.0,
        median(|it| it.p99_micros as f64) / 1000.0,
    )
}
