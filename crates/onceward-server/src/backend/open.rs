//! Opening the store that a configuration names.

use std::path::PathBuf;

use onceward_core::{FullStore, Identity};
#[cfg(feature = "postgres")]
use onceward_stores::postgres;
#[cfg(feature = "redis")]
use onceward_stores::redis;
use onceward_stores::sealed::{Keys, KeysError, SealedStore};
use onceward_stores::{Connect, ConnectError, SharedStore, embedded};

use super::archive::{self, ArchiveOpenError};
use super::probe::log_health;
use crate::config::{self, NotSet, StoreUrl, environment};
use crate::error_chain::error_chain;

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be opened.
    #[error("store.url: {url}: {why}{advice}")]
    Store {
        /// The URL, without its login.
        url: StoreUrl,
        /// The cause.
        why: String,
        /// Advice, empty if there is none.
        advice: &'static str,
        /// True if another process has it open.
        in_use: bool,
    },
    /// The sealing keys cannot be read.
    #[error("sealing keys: {0}")]
    Keys(String),
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveOpenError),
}

impl OpenError {
    /// True if another process has the store open, and no other can.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(self, Self::Store { in_use: true, .. })
    }
}

/// The method that computes record ids: keyed by a secret, if one is configured.
pub(crate) fn identity(settings: &config::Store) -> Result<Identity, NotSet> {
    Ok(match &settings.identity_secret_env {
        Some(variable) => Identity::keyed(environment(variable)?.as_bytes()),
        None => Identity::unkeyed(),
    })
}

/// Opens the configured store, and logs its warnings.
pub(crate) async fn open(settings: &config::Store) -> Result<SharedStore, OpenError> {
    let opened = sealed(settings)?.open().await;
    let store = opened.map_err(|error| open_error(settings, &error, advice(&error)))?;
    log_health(&*store).await;
    Ok(store)
}

/// Checks the settings and reads the sealing keys, without opening the store or its archive.
pub(crate) fn check(settings: &config::Store) -> Result<(), OpenError> {
    keys(settings)?;
    archive::check(settings)?;
    connect(settings).check().map_err(|error| open_error(settings, &error, ""))
}

/// Opens the store for a command. A gateway may have it open already.
pub(crate) async fn open_for_command(settings: &config::Store) -> Result<SharedStore, OpenError> {
    sealed(settings)?.open().await.map_err(|error| command_open_error(settings, &error))
}

/// Opens the store with its seals accessible, to change them. `None` without sealing keys.
pub(crate) async fn open_sealed(
    settings: &config::Store,
) -> Result<Option<SealedStore<dyn FullStore>>, OpenError> {
    let Some(keys) = keys(settings)? else { return Ok(None) };
    let store =
        connect(settings).open().await.map_err(|error| command_open_error(settings, &error))?;
    Ok(Some(SealedStore::new(store, keys)))
}

/// The directory of an embedded store; `None` for stores on servers.
pub(crate) fn directory(url: &StoreUrl) -> Result<Option<PathBuf>, ConnectError> {
    Ok(onceward_stores::embedded_at(url.expose())?.map(|(directory, _)| directory))
}

fn connect(settings: &config::Store) -> Connect {
    let connect = Connect::new(settings.url.expose());
    #[cfg(feature = "tiered")]
    if let Some(cache) = &settings.cache {
        return connect.cache(cache.expose());
    }
    connect
}

fn sealed(settings: &config::Store) -> Result<Connect, OpenError> {
    let connect = connect(settings);
    Ok(match keys(settings)? {
        Some(keys) => connect.sealed(keys),
        None => connect,
    })
}

fn keys(settings: &config::Store) -> Result<Option<Keys>, OpenError> {
    let error = |error: KeysError| OpenError::Keys(error.to_string());
    let variable = settings.sealing_keys_env.as_ref().map(|it| Keys::from_env(it));
    let file = || settings.sealing_keys_file.as_ref().map(Keys::from_file);
    variable.or_else(file).transpose().map_err(error)
}

fn open_error(settings: &config::Store, error: &ConnectError, advice: &'static str) -> OpenError {
    let in_use = matches!(error, ConnectError::Embedded(embedded::OpenError::Locked { .. }));
    OpenError::Store { url: settings.url.clone(), why: error_chain(error), advice, in_use }
}

fn command_open_error(settings: &config::Store, error: &ConnectError) -> OpenError {
    let advice = match error {
        ConnectError::Embedded(embedded::OpenError::Locked { .. }) => {
            "; if that is a gateway, send the command to it: --admin http://ADDRESS, with a token of its \
             [[tokens]] in ONCEWARD_TOKEN"
        }
        other => advice(other),
    };
    open_error(settings, error, advice)
}

/// Advice for a server that cannot be reached.
fn advice(error: &ConnectError) -> &'static str {
    #[cfg(any(feature = "postgres", feature = "redis"))]
    const UNREACHABLE: &str = "; check that the server runs and that host, port, login and TLS are \
        right, then try again";
    match error {
        #[cfg(feature = "postgres")]
        ConnectError::Postgres(error) => match **error {
            postgres::OpenError::Unreachable { .. } => UNREACHABLE,
            _ => "",
        },
        #[cfg(feature = "redis")]
        ConnectError::Redis(redis::OpenError::Unavailable(_)) => UNREACHABLE,
        _ => "",
    }
}
