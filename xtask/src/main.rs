//! `cargo xtask`: the project's own commands.

mod bench;
mod deb;
mod schemathesis;
mod services;
mod steps;
mod tools;

use std::process::{Command, ExitCode};

use clap::Parser;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
enum Xtask {
    /// Everything that must hold before a change lands: the one test command
    ///
    /// Examples:
    ///   cargo xtask test                 all steps
    ///   cargo xtask test --quick         what finds most mistakes, without servers
    ///   cargo xtask test --only clippy   one step alone
    ///   cargo xtask test --quick --list  the commands of the quick steps
    #[command(verbatim_doc_comment)]
    Test {
        /// Formatting, lints, unit tests, the core's tests and a short simulation: under three
        /// minutes once everything is compiled
        #[arg(long)]
        quick: bool,
        /// Run this step alone
        #[arg(long, value_name = "STEP")]
        only: Option<String>,
        /// Show the steps and their commands
        #[arg(long)]
        list: bool,
    },
    /// The simulator, optimised: many seeds with a progress bar, or one with its history
    ///
    /// Examples:
    ///   cargo xtask sim --seeds 1000000
    ///   cargo xtask sim --seed 4711
    #[command(verbatim_doc_comment, disable_help_flag = true)]
    Sim {
        /// Arguments of the simulator; `--help` shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The fuzzer, optimised: every parser of untrusted input
    ///
    /// Examples:
    ///   cargo xtask fuzz --seconds 60
    ///   cargo xtask fuzz canonical_json --seed 4711
    #[command(verbatim_doc_comment, disable_help_flag = true)]
    Fuzz {
        /// Arguments of the fuzzer; `--help` shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The benchmarks, each beside its limit
    ///
    /// Examples:
    ///   cargo xtask bench         all of them
    ///   cargo xtask bench http    the HTTP layer beside the bare handler, under wrk
    ///   cargo xtask bench http --rounds 9 --subject onceward --handler writing    one, more often
    ///   cargo xtask bench gateway the gateway beside nginx and Restate
    ///   cargo xtask bench embedded --present 1000    beside 1 M records instead of 10 M
    #[command(verbatim_doc_comment)]
    Bench {
        /// Run this benchmark alone
        only: Option<bench::Benchmark>,
        /// Arguments of the benchmark; its file lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, requires = "only")]
        arguments: Vec<String>,
    },
    /// Private servers on free loopback ports, stopped at the end whatever happens
    ///
    /// Examples:
    ///   cargo xtask services                     all of them, until Ctrl-C
    ///   cargo xtask services postgres redis      these, and prints NAME=url lines
    ///   cargo xtask services kafka nats connect  Kafka, NATS, Kafka Connect with Debezium
    ///   cargo xtask services run -- COMMAND      beside a command, with the URLs as variables
    ///   cargo xtask services list                what is found, what would be installed
    ///   cargo xtask services install             installs what is missing
    #[command(verbatim_doc_comment)]
    Services(services::Services),
    /// Checks an API against the OpenAPI document that it serves, by schemathesis
    ///
    /// The first run installs it into the build cache, which needs python3 and the network.
    ///
    /// Examples:
    ///   cargo xtask schemathesis         the claims API, on an empty store
    ///   cargo xtask schemathesis --url http://127.0.0.1:9090/openapi.json --token-env TOKEN
    #[command(verbatim_doc_comment)]
    Schemathesis(schemathesis::Schemathesis),
    /// A Debian package of the program, with manual pages, completions and the systemd unit
    ///
    /// The first run installs cargo-deb into the build cache.
    ///
    /// Examples:
    ///   cargo xtask deb
    #[command(verbatim_doc_comment)]
    Deb,
}

fn main() -> ExitCode {
    match Xtask::parse() {
        Xtask::Test { quick, list: true, .. } => steps::list(quick),
        Xtask::Test { quick, only, .. } => steps::run(quick, only.as_deref()),
        Xtask::Sim { arguments } => {
            let mut cargo =
                cargo("run --release --quiet -p onceward-testkit --bin onceward-sim --");
            status(cargo.args(arguments))
        }
        Xtask::Fuzz { arguments } => {
            status(cargo("run --release --quiet -p onceward-fuzz --").args(arguments))
        }
        Xtask::Bench { only, arguments } => bench::run(only, &arguments),
        Xtask::Services(services) => services::run(services),
        Xtask::Schemathesis(asked) => schemathesis::run(&asked),
        Xtask::Deb => deb::run(),
    }
}

/// A cargo command from its words.
fn cargo(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace());
    command
}

fn status(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{command:?} cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
