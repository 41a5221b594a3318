//! Where records are: at a store, or behind a gateway that has it open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::Fallible;
use crate::admin::{AdminApi, AdminClient, AdminService};
use crate::api::{Caller, RetentionRules};
use crate::backend;
use crate::config::{self, Config, StoreKind, StoreUrl, UpstreamUrl, environment};

/// Where to look.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(super) store: StoreTarget,
    /// Ask a running gateway: its admin address, such as http://127.0.0.1:9090
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "store"])]
    admin: Option<UpstreamUrl>,
    /// The environment variable that holds the token for --admin
    #[arg(long, value_name = "NAME", default_value = "ONCEWARD_TOKEN")]
    token_env: String,
    /// Print JSON, for programs
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
    /// Others can read a command line: put a URL with a password into a configuration file.
    /// A store that is sealed, or whose ids are made with a secret, needs --config.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    store: Option<StoreUrl>,
}

impl Target {
    /// The admin there.
    pub(super) async fn admin(&self) -> Fallible<Arc<dyn AdminApi>> {
        let Some(admin) = &self.admin else { return self.store.admin().await };
        let token = environment(&self.token_env).map_err(|error| {
            format!(
                "{error}; it holds the token for --admin, which [[tokens]] of the gateway names"
            )
        })?;
        let remote = AdminClient::new(admin, &token).map_err(|error| error.to_string())?;
        Ok(Arc::new(remote))
    }

    /// The store itself, where this process is to open it.
    pub(super) fn direct(&self) -> Option<&StoreTarget> {
        self.admin.is_none().then_some(&self.store)
    }
}

impl StoreTarget {
    /// What is configured; a store's URL alone leaves all else at its default.
    pub(super) fn config(&self) -> Fallible<Config> {
        match (&self.config, &self.store) {
            (Some(path), _) => Config::read(path).map_err(|error| error.to_string().into()),
            (None, Some(url)) => of_url(url),
            (None, None) => {
                Err("where are the records? give --config FILE, --store URL or --admin URL".into())
            }
        }
    }

    async fn admin(&self) -> Fallible<Arc<dyn AdminApi>> {
        let config = self.config()?;
        must_exist(&config.store)?;
        let told = |error: &dyn std::error::Error| error.to_string();
        let identity = backend::identity(&config.store).map_err(|error| told(&error))?;
        let store = backend::open_for_command(&config.store).await.map_err(|error| told(&error))?;
        let keeping = Arc::new(RetentionRules::of(&config));
        let caller = Arc::new(Caller::at_the_store(who()));
        Ok(Arc::new(AdminService::new(store, identity, keeping, caller)))
    }
}

/// A configuration that names nothing but a store.
pub(super) fn of_url(url: &StoreUrl) -> Fallible<Config> {
    let mut config = Config::default();
    config.store.url.clone_from(url);
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

/// A command that looks at a store never makes one.
pub(super) fn must_exist(settings: &config::Store) -> Fallible {
    if settings.url.kind() == Some(StoreKind::Memory) {
        return Err("memory: is inside of another process; ask that one by --admin URL".into());
    }
    match backend::directory(&settings.url).map_err(|error| error.to_string())? {
        Some(directory) if !has_store(&directory) => {
            Err(format!("there is no store in {}", directory.display()).into())
        }
        _ => Ok(()),
    }
}

fn has_store(directory: &Path) -> bool {
    directory.join("format").exists()
}

/// Who is at the keyboard, for the trail.
fn who() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    format!("cli:{}", user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()))
}
