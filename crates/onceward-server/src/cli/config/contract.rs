//! `onceward config contract`: what the API promises to its clients.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::Fallible;
use crate::cli::output;
use crate::config::{Config, UpstreamUrl};
use crate::contract::{Contract, Heading};

/// Write what the API promises to its clients about retries, ready to publish
///
/// States every setting that clients can notice: where the key goes, what counts as the same
/// request, what retries get and for how long, and each error with what to do about it. Contains
/// nothing internal: no addresses of the service or the store, no files, no names of secrets or
/// tenants. Without a file, it states the defaults.
///
/// Examples:
///   onceward config contract onceward.toml
///   onceward config contract onceward.toml --title 'Payments API' \
///       --base-url https://api.example.com --out retries.md
///   onceward config contract onceward.toml --format json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ContractArgs {
    /// The configuration file; by default, all settings have their defaults
    file: Option<PathBuf>,
    /// The heading
    #[arg(long, value_name = "TEXT", default_value = "Client contract for safe retries")]
    title: String,
    /// Address of the API for its clients, used in examples
    #[arg(long, value_name = "URL")]
    base_url: Option<UpstreamUrl>,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Md)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Markdown, for people
    Md,
    /// JSON, for programs
    Json,
}

impl ContractArgs {
    pub(super) fn execute(self) -> Fallible {
        let config = self.file.as_deref().map(Config::read).transpose();
        let config = config.map_err(|error| error.to_string())?.unwrap_or_default();
        config.check_rules().map_err(|error| error.to_string())?;
        let base_url = self.base_url.map(|url| url.to_string().trim_end_matches('/').to_owned());
        let heading = Heading { title: self.title, base_url };
        let contract = Contract::of(&config, heading).map_err(|error| error.to_string())?;
        let text = match self.format {
            Format::Md => contract.markdown(),
            Format::Json => {
                serde_json::to_string_pretty(&contract).map_err(|error| error.to_string())? + "\n"
            }
        };
        match self.out {
            Some(path) => Ok(publish(&path, &text)
                .map_err(|error| format!("--out {}: {error}", path.display()))?),
            None => output::bytes(text.as_bytes()),
        }
    }
}

/// Writes a file. A new one may be read by everyone, unlike other files of this program.
fn publish(path: &Path, text: &str) -> std::io::Result<()> {
    let is_new = !path.exists();
    fs::write(path, text)?;
    if is_new { fs::set_permissions(path, fs::Permissions::from_mode(0o644)) } else { Ok(()) }
}
