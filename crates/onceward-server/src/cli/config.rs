//! `onceward config`: check a file, print the reference, explain a setting, write the contract with
//! clients.

mod contract;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use super::failure::Failure;
use super::process::runtime;
use super::{exit, exit_with};
use crate::config::{self, Config, changes, lint};
use crate::gateway::Gateway;
use crate::resolver::ProbeError;
use crate::telemetry;
use contract::ContractArgs;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check a file: invalid settings are errors, risky ones are warnings
    ///
    /// Checks everything that the gateway checks at its start, so the files and environment
    /// variables that the file names must exist. Does not open the store. Asks the [resolver]
    /// about an operation that does not exist.
    ///
    /// Examples:
    ///   onceward config check onceward.toml
    ///   onceward config check onceward.toml --deny-warnings
    ///   onceward config check onceward.toml --offline
    ///   onceward config check new.toml --replaces onceward.toml
    #[command(verbatim_doc_comment)]
    Check {
        /// The configuration file
        file: PathBuf,
        /// Fail on warnings too
        #[arg(long)]
        deny_warnings: bool,
        /// Do not ask the resolver
        #[arg(long)]
        offline: bool,
        /// The file that is in force: also warn of changes under which retries run again
        #[arg(long, value_name = "FILE")]
        replaces: Option<PathBuf>,
    },
    /// Print a configuration file with every setting and its default
    PrintDefault,
    /// Explain a setting or a section
    ///
    /// Examples:
    ///   onceward config explain defaults.ttl
    ///   onceward config explain upstream
    #[command(verbatim_doc_comment)]
    Explain {
        /// A setting or a section; by default, all settings
        setting: Option<String>,
    },
    Contract(ContractArgs),
}

impl ConfigCommand {
    pub(super) fn run(self) -> ExitCode {
        match self {
            Self::Check { file, deny_warnings, offline, replaces } => {
                match check(&file, replaces.as_deref(), offline) {
                    Ok(warnings) if deny_warnings && warnings > 0 => ExitCode::FAILURE,
                    Ok(_) => ExitCode::SUCCESS,
                    Err(error) => exit_with(&error),
                }
            }
            Self::PrintDefault => {
                print!("{}", config::REFERENCE);
                ExitCode::SUCCESS
            }
            Self::Explain { setting } => exit(explain(setting.as_deref().unwrap_or_default())),
            Self::Contract(args) => {
                args.execute().map_or_else(Failure::exit, |()| ExitCode::SUCCESS)
            }
        }
    }
}

/// Prints all warnings about a file and returns their number.
fn check(file: &Path, replaces: Option<&Path>, offline: bool) -> Result<usize, Box<dyn Error>> {
    let config = Config::read(file)?;
    let mut warnings: Vec<String> = lint(&config).iter().map(ToString::to_string).collect();
    if let Some(before) = replaces {
        let before = Config::read(before)?;
        warnings.extend(changes(&before, &config).iter().map(ToString::to_string));
    }
    let (operations, upstream) = (config.operations.len(), config.upstream.url.clone());
    telemetry::check(&config.telemetry)?;
    let checked = runtime()?.block_on(async {
        config.check_rules()?;
        match Gateway::check(config)? {
            Some(resolver) if !offline => match resolver.probe().await {
                Ok(()) => Ok(None),
                Err(ProbeError::Unreachable(why)) => Ok(Some(why)),
                Err(error @ (ProbeError::NoResolver(_) | ProbeError::Untrue(_))) => {
                    Err(error.into())
                }
            },
            _ => Ok(None),
        }
    });
    let checked: Result<_, Box<dyn Error>> = checked;
    warnings.extend(checked.as_ref().ok().cloned().flatten());
    for warning in &warnings {
        println!("warning: {warning}");
    }
    checked?;
    println!("{}: valid; {operations} named operations, upstream {upstream}", file.display());
    Ok(warnings.len())
}

fn explain(setting: &str) -> Result<(), Box<dyn Error>> {
    let text = config::explain(setting).ok_or_else(|| {
        format!("{setting:?} is not a setting; `onceward config print-default` lists all settings")
    })?;
    print!("{text}");
    Ok(())
}
