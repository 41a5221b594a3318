//! The target of a command: a store, or a running gateway.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use onceward_core::Purger;

use super::Fallible;
use super::failure::Failure;
use crate::admin::{AdminApi, AdminClient, AdminService, archive_line};
use crate::api::{Caller, OutcomeRules};
use crate::backend;
use crate::config::{self, Config, StoreKind, StoreUrl, UpstreamUrl, environment};

/// The target of a command: a store, or a running gateway.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(super) store: StoreTarget,
    /// Ask the running gateway with this admin address, such as http://127.0.0.1:9090
    ///
    /// Without --admin, --config and --store, the environment variable ONCEWARD_ADMIN has it. With
    /// --config, a gateway that has the only access to its store (memory: and file:) is asked at the
    /// admin address of that configuration.
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
        if let Some(admin) = self.gateway()? {
            return self.client(&admin);
        }
        let config = self.store.config()?;
        let admin = config.admin.as_ref().map(|admin| reachable(admin.address));
        match (StoreTarget::admin(&config).await, admin) {
            (Err(OnlyGateway::InUse(_)), Some(admin)) => self.client(&admin),
            (Err(OnlyGateway::InUse(failure) | OnlyGateway::Failed(failure)), _) => Err(failure),
            (Ok(service), _) => Ok(service),
        }
    }

    /// The address of the gateway to ask, by `--admin` or the environment.
    fn gateway(&self) -> Fallible<Option<UpstreamUrl>> {
        if self.admin.is_some() || self.store.is_given() {
            return Ok(self.admin.clone());
        }
        match environment(ADMIN_ENV) {
            Ok(url) => url.parse().map(Some).map_err(|why| format!("{ADMIN_ENV}: {why}").into()),
            Err(_not_set) => Ok(None),
        }
    }

    fn client(&self, admin: &UpstreamUrl) -> Fallible<Arc<dyn AdminApi>> {
        let token = environment(&self.token_env).map_err(|error| {
            format!("{error}; set it to a token of the gateway's [[tokens]], for --admin")
        })?;
        let client = AdminClient::new(admin, &token).map_err(|error| error.to_string())?;
        Ok(Arc::new(client))
    }

    /// Returns the store, if this process opens it.
    pub(super) fn direct(&self) -> Option<&StoreTarget> {
        self.gateway().is_ok_and(|gateway| gateway.is_none()).then_some(&self.store)
    }
}

impl StoreTarget {
    /// The configuration; with --store, everything else has its default.
    pub(super) fn config(&self) -> Fallible<Config> {
        match (&self.config, &self.store) {
            (Some(path), _) => Config::read(path).map_err(|error| error.to_string().into()),
            (None, Some(url)) => of_url(url),
            (None, None) => {
                Err("no store: give --config FILE, --store URL or --admin URL, or set \
                                 ONCEWARD_ADMIN"
                    .into())
            }
        }
    }

    fn is_given(&self) -> bool {
        self.config.is_some() || self.store.is_some()
    }

    async fn admin(config: &Config) -> Result<Arc<dyn AdminApi>, OnlyGateway> {
        if config.store.url.kind() == Some(StoreKind::Memory) {
            return Err(OnlyGateway::InUse(MEMORY.into()));
        }
        must_exist(&config.store).map_err(OnlyGateway::Failed)?;
        let identity = backend::identity(&config.store);
        let identity = identity.map_err(|error| OnlyGateway::Failed(error.to_string().into()))?;
        let opened = backend::open_for_command(&config.store).await;
        let store = opened.map_err(|error| match error.is_in_use() {
            true => OnlyGateway::InUse(error.to_string().into()),
            false => OnlyGateway::Failed(error.to_string().into()),
        })?;
        let rules = Arc::new(OutcomeRules::of(config));
        let caller = Arc::new(Caller::at_the_store(user()));
        // The archive is opened by a purge only.
        let archiving = backend::archiving(&config.store, archive_line);
        let purger = Purger::new(store.clone(), archiving);
        Ok(Arc::new(AdminService::new(store, identity, purger, rules, caller)))
    }
}

/// Why a store cannot be opened here.
enum OnlyGateway {
    /// Another process has it open, as a rule the gateway.
    InUse(Failure),
    Failed(Failure),
}

/// The default of `--admin`.
const ADMIN_ENV: &str = "ONCEWARD_ADMIN";

const MEMORY: &str = "a memory: store exists only in the gateway's process: give --admin URL";

/// A URL of an address to listen on: for all addresses of the machine, the loopback address.
fn reachable(mut address: SocketAddr) -> UpstreamUrl {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    #[expect(clippy::expect_used, reason = "an address is a valid authority")]
    UpstreamUrl(format!("http://{address}").parse().expect("a URL"))
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
        return Err(MEMORY.into());
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
