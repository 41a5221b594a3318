//! The target of a command: a store, or a running gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::Fallible;
use crate::admin::{AdminApi, AdminClient, AdminService};
use crate::api::{Caller, RetentionRules};
use crate::backend;
use crate::config::{self, Config, StoreKind, StoreUrl, UpstreamUrl, environment};

/// The target of a command: a store, or a running gateway.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(super) store: StoreTarget,
    /// Ask the running gateway with this admin address, such as http://127.0.0.1:9090
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "store"])]
    admin: Option<UpstreamUrl>,
    /// Environment variable with the token for --admin
    #[arg(long, value_name = "NAME", default_value = "ONCEWARD_TOKEN")]
    token_env: String,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A store that this process opens itself.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreTarget {
    /// Open the store of this configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Open this store: file:DIRECTORY, redis://HOST, postgres://USER@HOST/DATABASE
    ///
    /// Put a URL with a password into a configuration file: other users of the machine can read
    /// command lines. A sealed store, or one with an identity secret, needs --config.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    store: Option<StoreUrl>,
}

impl Target {
    /// Returns the admin API of the gateway, or of the opened store.
    pub(super) async fn admin(&self) -> Fallible<Arc<dyn AdminApi>> {
        let Some(admin) = &self.admin else { return self.store.admin().await };
        let token = environment(&self.token_env).map_err(|error| {
            format!("{error}; set it to a token of the gateway's [[tokens]], for --admin")
        })?;
        let client = AdminClient::new(admin, &token).map_err(|error| error.to_string())?;
        Ok(Arc::new(client))
    }

    /// Returns the store, if this process opens it.
    pub(super) fn direct(&self) -> Option<&StoreTarget> {
        self.admin.is_none().then_some(&self.store)
    }
}

impl StoreTarget {
    /// The configuration; with --store, everything else has its default.
    pub(super) fn config(&self) -> Fallible<Config> {
        match (&self.config, &self.store) {
            (Some(path), _) => Config::read(path).map_err(|error| error.to_string().into()),
            (None, Some(url)) => of_url(url),
            (None, None) => Err("no store: give --config FILE, --store URL or --admin URL".into()),
        }
    }

    async fn admin(&self) -> Fallible<Arc<dyn AdminApi>> {
        let config = self.config()?;
        must_exist(&config.store)?;
        let text = |error: &dyn std::error::Error| error.to_string();
        let identity = backend::identity(&config.store).map_err(|error| text(&error))?;
        let store = backend::open_for_command(&config.store).await.map_err(|error| text(&error))?;
        let retention = Arc::new(RetentionRules::of(&config));
        let caller = Arc::new(Caller::at_the_store(user()));
        Ok(Arc::new(AdminService::new(store, identity, retention, caller)))
    }
}

/// The default configuration with another store.
pub(super) fn of_url(url: &StoreUrl) -> Fallible<Config> {
    let mut config = Config::default();
    config.store.url.clone_from(url);
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

/// Refuses a store that does not exist, so that no command creates one.
pub(super) fn must_exist(settings: &config::Store) -> Fallible {
    if settings.url.kind() == Some(StoreKind::Memory) {
        return Err("a memory: store exists only in the gateway's process: give --admin URL".into());
    }
    match backend::directory(&settings.url).map_err(|error| error.to_string())? {
        Some(directory) if !has_store(&directory) => {
            Err(format!("there is no store in {}: check the path", directory.display()).into())
        }
        _ => Ok(()),
    }
}

fn has_store(directory: &Path) -> bool {
    directory.join("format").exists()
}

/// The user who runs the command, for the audit log.
fn user() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    format!("cli:{}", user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()))
}
