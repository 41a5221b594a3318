//! The command line.
//!
//! Operators' commands are written once, against [`AdminApi`](crate::admin::AdminApi), and work on
//! a store and on a running gateway alike.
//!
//! | file | contents |
//! |---|---|
//! | `gateway`, `claims`, `demo` | commands that serve until a signal comes |
//! | `process`, `reload`, `service_manager` | runtime and signals; the pid file; systemd's notices |
//! | `config`, `manual` | configurations; completions and manual pages |
//! | `records`, `operations`, `export`, `store/`, `plan/` | operators' commands |
//! | `target`, `pages` | where the records are; all pages of a listing |
//! | `show`, `output`, `confirm`, `progress`, `interrupt`, `failure` | what is printed and asked; Ctrl-C; exit codes |

mod claims;
mod config;
mod confirm;
mod demo;
mod export;
mod failure;
mod gateway;
mod interrupt;
mod manual;
mod operations;
mod output;
mod pages;
mod plan;
mod process;
mod progress;
mod records;
mod reload;
mod service_manager;
mod show;
mod store;
mod target;

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use config::ConfigCommand;
use failure::Failure;
use operations::OperationsCommand;
use plan::PlanArgs;
use records::RecordsCommand;
use store::StoreCommand;

/// Version and commit. The build script finds the commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("ONCEWARD_BUILD"), ")");

/// Makes retries safe: the same intent has one effect and one outcome
#[derive(Debug, Parser)]
#[command(name = "onceward", version = VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put Idempotency-Key in front of an HTTP service
    ///
    /// POST and PATCH with a key run once; a retry gets the first answer. All else passes
    /// through. Records are kept in ./onceward-data.
    ///
    /// Examples:
    ///   onceward gateway --upstream http://127.0.0.1:3000
    ///   onceward gateway --upstream http://127.0.0.1:3000 --listen 0.0.0.0:8080 --single-tenant
    ///   onceward gateway --upstream http://127.0.0.1:3000 --store redis://127.0.0.1
    ///   onceward gateway --config onceward.toml
    #[command(verbatim_doc_comment)]
    Gateway(gateway::GatewayArgs),
    /// Give workers in any language the right to run, over HTTP
    ///
    /// A worker claims a key, works, and says what came of it; whoever claims the key again gets
    /// that. Needs no gateway; beside one, [claims] in its configuration does the same. The file
    /// names the tokens: [[tokens]] with name, role = "worker" and secret_env.
    ///
    /// Examples:
    ///   onceward claims --config onceward.toml
    ///   onceward claims --config onceward.toml --listen 0.0.0.0:8090 --store redis://127.0.0.1
    #[command(verbatim_doc_comment)]
    Claims(claims::ClaimsArgs),
    /// Start a sample service with the gateway in front of it, and say what to try
    ///
    /// Examples:
    ///   onceward demo
    ///   onceward demo --listen 127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Demo(demo::DemoArgs),
    #[command(subcommand)]
    Records(RecordsCommand),
    #[command(subcommand)]
    Operations(OperationsCommand),
    #[command(subcommand)]
    Store(StoreCommand),
    Plan(PlanArgs),
    /// Look at configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Let a running gateway read its configuration again, without dropping a request
    ///
    /// The same as SIGHUP to its process. Fails with the reason if the configuration was refused;
    /// then the gateway goes on with the one that it had.
    ///
    /// Examples:
    ///   onceward reload --pid-file /run/onceward.pid
    #[command(verbatim_doc_comment)]
    Reload {
        /// The file that the gateway was started with as --pid-file
        #[arg(long, value_name = "FILE")]
        pid_file: PathBuf,
    },
    /// Print a completion script for a shell
    ///
    /// Examples:
    ///   onceward completions bash > /etc/bash_completion.d/onceward
    ///   onceward completions zsh > "${fpath[1]}/_onceward"
    ///   onceward completions fish > ~/.config/fish/completions/onceward.fish
    #[command(verbatim_doc_comment)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages, one for each command
    ///
    /// Examples:
    ///   onceward man --out /usr/local/share/man/man1
    #[command(verbatim_doc_comment)]
    Man {
        /// The directory that the pages are written to; created if it is missing
        #[arg(long, value_name = "DIRECTORY")]
        out: PathBuf,
    },
}

type Fallible<T = ()> = Result<T, Failure>;

impl Cli {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Gateway(args) => exit(gateway::run(&args)),
            Command::Claims(args) => exit(claims::run(&args)),
            Command::Demo(args) => exit(demo::run(&args)),
            Command::Records(command) => run(command.execute()),
            Command::Operations(command) => run(command.execute()),
            Command::Store(command) => run(command.execute()),
            Command::Plan(args) => {
                args.execute().map_or_else(Failure::exit, |()| ExitCode::SUCCESS)
            }
            Command::Config(command) => command.run(),
            Command::Reload { pid_file } => exit(reload::run(&pid_file)),
            Command::Completions { shell } => exit(manual::completions(shell)),
            Command::Man { out } => exit(manual::pages(&out)),
        }
    }
}

/// Runs an operator's command to its end, on a runtime of its own.
fn run(command: impl Future<Output = Fallible>) -> ExitCode {
    match process::runtime() {
        Ok(runtime) => {
            let done = runtime.block_on(command);
            // Background work of the store does not hold up the exit.
            runtime.shutdown_background();
            done.map_or_else(Failure::exit, |()| ExitCode::SUCCESS)
        }
        Err(error) => Failure::from(error).exit(),
    }
}

fn exit(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit_with(&error),
    }
}

fn exit_with(error: &dyn Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
