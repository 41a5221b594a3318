//! The command line.
//!
//! Operators' commands are written once, against `AdminApi`, and work on a store and on a running
//! gateway.
//!
//! | file | contents |
//! |---|---|
//! | `gateway`, `claims`, `demo` | commands that serve until a signal comes |
//! | `process`, `reload`, `service_manager` | runtime and signals; the pid file; systemd notifications |
//! | `config`, `manual` | configurations; completions and manual pages |
//! | `records`, `invalidate`, `operations`, `export`, `store/`, `plan/` | operators' commands |
//! | `target`, `pages` | the store or gateway that a command works on; paging |
//! | `show`, `output`, `confirm`, `progress` | printing; confirmations; progress bars |
//! | `interrupt`, `failure` | Ctrl-C; errors and exit codes |

mod claims;
mod config;
mod confirm;
mod demo;
mod export;
mod failure;
mod gateway;
mod interrupt;
mod invalidate;
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

/// Version and commit. The build script supplies the commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("ONCEWARD_BUILD"), ")");

/// Make retries safe: the same intent has one effect and one outcome
#[derive(Debug, Parser)]
#[command(name = "onceward", version = VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a gateway that makes retries of an HTTP service safe
    ///
    /// A POST or PATCH request with an Idempotency-Key is executed once, and its retries get the
    /// first response. All other requests pass through. Records are stored in ./onceward-data.
    ///
    /// Examples:
    ///   onceward gateway --upstream http://127.0.0.1:3000
    ///   onceward gateway --upstream http://127.0.0.1:3000 --listen 0.0.0.0:8080 --single-tenant
    ///   onceward gateway --upstream http://127.0.0.1:3000 --store redis://127.0.0.1
    ///   onceward gateway --config onceward.toml
    #[command(verbatim_doc_comment)]
    Gateway(gateway::GatewayArgs),
    /// Run the claims API, for workers in any language
    ///
    /// A worker claims a key, works, and stores the result; the next worker that claims the key
    /// gets this result. Runs without a gateway; in a gateway, the section [claims] starts the
    /// same API. The file needs [[tokens]] with name, role = "worker" and secret_env.
    ///
    /// Examples:
    ///   onceward claims --config onceward.toml
    ///   onceward claims --config onceward.toml --listen 0.0.0.0:8090 --store redis://127.0.0.1
    #[command(verbatim_doc_comment)]
    Claims(claims::ClaimsArgs),
    /// Run a sample service behind a gateway, and print commands to try
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
    /// Check and explain configurations, and write the contract with clients
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Reload the configuration of a running gateway, without dropping a request
    ///
    /// Sends SIGHUP to the process. Fails with the reason if the configuration is refused; the
    /// gateway then keeps its current configuration.
    ///
    /// Examples:
    ///   onceward reload --pid-file /run/onceward.pid
    #[command(verbatim_doc_comment)]
    Reload {
        /// The gateway's --pid-file
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
    /// Write a manual page for each command
    ///
    /// Examples:
    ///   onceward man --out /usr/local/share/man/man1
    #[command(verbatim_doc_comment)]
    Man {
        /// The directory for the pages; created if it is missing
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
            // Background work of the store does not delay the exit.
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
