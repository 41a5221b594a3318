//! Opening the store that a configuration names.

use onceward_core::Identity;
#[cfg(feature = "postgres")]
use onceward_stores::postgres;
#[cfg(feature = "redis")]
use onceward_stores::redis;
use onceward_stores::sealed::Keys;
use onceward_stores::{ConnectError, SharedStore};

use crate::config::{self, StoreUrl};
use crate::environment::{NotSet, environment};

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store itself.
    #[error("store.url: {url}: {why}{advice}")]
    Store {
        /// Which, without its login.
        url: StoreUrl,
        /// Why it does not open.
        why: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The sealing keys.
    #[error("sealing keys: {0}")]
    Keys(String),
}

/// How the configured store's record ids are made.
pub(crate) fn identity(settings: &config::Store) -> Result<Identity, NotSet> {
    Ok(match &settings.identity_secret_env {
        Some(variable) => Identity::keyed(environment(variable)?.as_bytes()),
        None => Identity::unkeyed(),
    })
}

/// Opens the store that a configuration names.
pub(crate) async fn open(settings: &config::Store) -> Result<SharedStore, OpenError> {
    let mut connect = onceward_stores::Connect::new(settings.url.expose());
    #[cfg(feature = "tiered")]
    if let Some(cache) = &settings.cache {
        connect = connect.cache(cache.expose());
    }
    let refused = |error: onceward_stores::sealed::KeysError| OpenError::Keys(error.to_string());
    if let Some(path) = &settings.sealing_keys_file {
        connect = connect.sealed(Keys::from_file(path).map_err(refused)?);
    }
    if let Some(variable) = &settings.sealing_keys_env {
        connect = connect.sealed(Keys::from_env(variable).map_err(refused)?);
    }
    connect.open().await.map_err(|error| {
        let (url, why, advice) = (settings.url.clone(), chain(&error), advice(&error));
        OpenError::Store { url, why, advice }
    })
}

/// What an operator can do about a server that does not let us in.
fn advice(error: &ConnectError) -> &'static str {
    #[cfg(any(feature = "postgres", feature = "redis"))]
    const NOBODY: &str = "; see that the server runs and that host, port, login and TLS are \
        right, then try again";
    match error {
        #[cfg(feature = "postgres")]
        ConnectError::Postgres(error) => match **error {
            postgres::OpenError::Unreachable { .. } => NOBODY,
            _ => "",
        },
        #[cfg(feature = "redis")]
        ConnectError::Redis(redis::OpenError::Unavailable(_)) => NOBODY,
        _ => "",
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
