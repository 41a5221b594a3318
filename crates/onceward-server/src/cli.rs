//! The command line.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::{OperationsCommand, PlanArgs, RecordsCommand, StoreCommand};
use crate::config::{Config, StoreUrl, UpstreamUrl, lint};
use crate::gateway::Gateway;
use crate::resolver::ProbeError;
use crate::{claims, demo, manual, run, telemetry};

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
    Gateway(GatewayArgs),
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

/// What a gateway is started with.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GatewayArgs {
    /// The service behind the gateway
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<UpstreamUrl>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where records are kept: file:DIRECTORY, redis://HOST, postgres://USER@HOST/DATABASE
    /// [default: file:./onceward-data]
    ///
    /// Others can read a command line: put a URL with a password into a configuration file.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,
    /// All callers are one and share their keys; without it, a retry must come with the
    /// credentials of the first request
    #[arg(long)]
    pub(crate) single_tenant: bool,
    /// Metrics and health, for operators only
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,
    /// A configuration file; what is given beside it goes before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write the process id here, for `onceward reload`
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a file: mistakes are errors, unwise settings are warnings
    ///
    /// Builds what the gateway builds, so the files and environment variables that the file names
    /// must be there. The store is not opened. A [resolver] is asked about an operation that does
    /// not exist.
    ///
    /// Examples:
    ///   onceward config check onceward.toml
    ///   onceward config check onceward.toml --deny-warnings
    ///   onceward config check onceward.toml --offline
    #[command(verbatim_doc_comment)]
    Check {
        /// The file
        file: PathBuf,
        /// Fail on warnings too
        #[arg(long)]
        deny_warnings: bool,
        /// Do not ask the resolver
        #[arg(long)]
        offline: bool,
    },
    /// Print a file with every setting and its default
    PrintDefault,
    /// Say what a setting means
    ///
    /// Examples:
    ///   onceward config explain defaults.ttl
    ///   onceward config explain upstream
    #[command(verbatim_doc_comment)]
    Explain {
        /// A setting, or a section; all of them without it
        setting: Option<String>,
    },
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Gateway(args) => told(run::gateway(&args)),
            Command::Claims(args) => told(claims::run(&args)),
            Command::Demo(args) => told(demo::run(&args)),
            Command::Records(command) => command.run(),
            Command::Operations(command) => command.run(),
            Command::Store(command) => command.run(),
            Command::Plan(args) => args.run(),
            Command::Config(ConfigCommand::Check { file, deny_warnings, offline }) => {
                match check(&file, offline) {
                    Ok(warnings) if deny_warnings && warnings > 0 => ExitCode::FAILURE,
                    Ok(_) => ExitCode::SUCCESS,
                    Err(error) => failed(&error),
                }
            }
            Command::Config(ConfigCommand::PrintDefault) => {
                print!("{}", crate::config::REFERENCE);
                ExitCode::SUCCESS
            }
            Command::Config(ConfigCommand::Explain { setting }) => explain(setting.as_deref()),
            Command::Reload { pid_file } => told(run::reload(&pid_file)),
            Command::Completions { shell } => told(manual::completions(shell)),
            Command::Man { out } => told(manual::pages(&out)),
        }
    }
}

impl GatewayArgs {
    /// The file's settings, and those of the command line over them.
    pub(crate) fn config(&self) -> Result<Config, Box<dyn std::error::Error>> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if self.config.is_none() && self.upstream.is_none() {
            return Err("where do requests go? give --upstream http://…, or --config FILE".into());
        }
        if let Some(url) = &self.upstream {
            config.upstream.url = url.clone();
        }
        if let Some(address) = self.listen {
            config.listeners.truncate(1);
            config.listeners[0].address = address;
        }
        if let Some(url) = &self.store {
            config.store.url.clone_from(url);
        }
        if let Some(address) = self.admin {
            config.admin = Some(crate::config::Admin { address });
        }
        config.scope.single_tenant |= self.single_tenant;
        config.check()?;
        Ok(config)
    }
}

/// Prints all warnings about a file, and counts them.
fn check(file: &Path, offline: bool) -> Result<usize, Box<dyn std::error::Error>> {
    let config = Config::read(file)?;
    let mut warnings: Vec<String> = lint(&config).iter().map(ToString::to_string).collect();
    let (operations, upstream) = (config.operations.len(), config.upstream.url.clone());
    telemetry::check(&config.telemetry)?;
    let checked = run::runtime()?.block_on(async {
        match Gateway::check(config)? {
            Some(resolver) if !offline => match resolver.probe().await {
                Ok(()) => Ok(None),
                Err(ProbeError::Unreachable(why)) => Ok(Some(why)),
                Err(wrong @ (ProbeError::NoResolver(_) | ProbeError::Untrue(_))) => {
                    Err(wrong.into())
                }
            },
            _ => Ok(None),
        }
    });
    let checked: Result<_, Box<dyn std::error::Error>> = checked;
    warnings.extend(checked.as_ref().ok().cloned().flatten());
    for warning in &warnings {
        println!("warning: {warning}");
    }
    checked?;
    println!("{}: fine; {operations} named operations, upstream {upstream}", file.display());
    Ok(warnings.len())
}

fn explain(setting: Option<&str>) -> ExitCode {
    match crate::config::explain(setting.unwrap_or_default()) {
        Some(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        None => {
            let setting = setting.unwrap_or_default();
            failed(&format!("there is no setting {setting:?}; see `onceward config print-default`"))
        }
    }
}

fn told(result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
