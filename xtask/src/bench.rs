//! The benchmarks of `cargo xtask bench`. None of them is a test: they fail only if what
//! they measure is wrong, never because it is slow.

use std::process::{Command, ExitCode};

use crate::tools;

/// One benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Benchmark {
    /// The memory store beside a bare map and dashmap
    Memory,
    /// Calls of the HTTP layer in the process, without sockets
    Layer,
    /// The HTTP layer beside the bare handler and others' layers, under wrk
    Http,
    /// The gateway beside nginx and Restate, under wrk
    Gateway,
    /// The embedded store beside the limit of the disk, SQLite and redb
    Embedded,
    /// The Redis store beside redis-benchmark with the same scripts
    Redis,
    /// The PostgreSQL store beside pgbench with the same statements
    Postgres,
    /// Replays by Redis before PostgreSQL, beside each alone
    Tiered,
}

/// In this order, quick ones first.
const ALL: [Benchmark; 8] = [
    Benchmark::Layer,
    Benchmark::Http,
    Benchmark::Gateway,
    Benchmark::Memory,
    Benchmark::Redis,
    Benchmark::Postgres,
    Benchmark::Tiered,
    Benchmark::Embedded,
];

/// Runs all benchmarks, or one, to which the arguments go.
pub(crate) fn run(only: Option<Benchmark>, arguments: &[String]) -> ExitCode {
    for benchmark in ALL.into_iter().filter(|it| only.is_none_or(|only| only == *it)) {
        let ended = match benchmark {
            Benchmark::Memory => {
                let words = "bench -p onceward-core --bench memory --";
                crate::status(crate::cargo(words).args(arguments))
            }
            Benchmark::Layer => crate::status(http("layer").args(arguments)),
            Benchmark::Embedded => {
                let words = "bench -p onceward-stores --features embedded --bench embedded --";
                crate::status(crate::cargo(words).args(arguments))
            }
            Benchmark::Gateway => gateway(arguments),
            Benchmark::Redis => {
                let words = "bench -p onceward-stores --features redis --bench redis --";
                crate::status(crate::cargo(words).args(arguments))
            }
            Benchmark::Tiered => {
                let words = "bench -p onceward-stores --features tiered --bench tiered --";
                crate::status(crate::cargo(words).args(arguments))
            }
            Benchmark::Postgres => {
                let words = "bench -p onceward-stores --features postgres --bench postgres --";
                crate::status(crate::cargo(words).args(arguments))
            }
            Benchmark::Http if tools::debian("wrk") => {
                crate::status(http("compare").args(arguments))
            }
            Benchmark::Http => {
                println!("http needs wrk: install your system's package `wrk`, then repeat it");
                ExitCode::FAILURE
            }
        };
        if ended != ExitCode::SUCCESS {
            return ended;
        }
    }
    ExitCode::SUCCESS
}

/// Builds the program as one would for production, and measures it.
fn gateway(arguments: &[String]) -> ExitCode {
    for program in ["wrk", "nginx"] {
        if !tools::debian(program) {
            println!("gateway needs {program}: install your system's package, then repeat it");
            return ExitCode::FAILURE;
        }
    }
    let built = crate::status(&mut crate::cargo("build --release --bin onceward"));
    if built != ExitCode::SUCCESS {
        return built;
    }
    let mut measure = http("gateway");
    measure.arg("--onceward").arg(tools::target_directory().join("release/onceward"));
    match tools::restate() {
        Some(home) => measure.arg("--restate").arg(home),
        None => {
            println!("without Restate: npm could not install it");
            &mut measure
        }
    };
    crate::status(measure.args(arguments))
}

/// A command of the package in `benches/http`, which is a workspace of its own. One of the
/// layers that it measures declares a newer compiler than it needs.
fn http(words: &str) -> Command {
    let mut cargo = crate::cargo("run --release --quiet --ignore-rust-version");
    cargo.args([
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/http/Cargo.toml"),
    ]);
    cargo.arg("--target-dir").arg(tools::target_directory());
    cargo.arg("--").args(words.split_whitespace());
    cargo
}
