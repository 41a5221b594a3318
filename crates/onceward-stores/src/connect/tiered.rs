//! `postgres:` with `redis:`, `rediss:`, `redis-cluster:` or `rediss-cluster:` before it.

use std::sync::Arc;

use super::redis::{TlsFiles, check_urls, is_cluster, pem, take, urls};
use super::url_parts::{Setting, UrlParts};
use super::{ConnectError, SharedStore, postgres};
use crate::tiered::{Settings, TieredStore};

pub(super) async fn open(store: UrlParts, cache: UrlParts) -> Result<SharedStore, ConnectError> {
    check_schemes(&store, &cache)?;
    let (settings, urls) = (settings(&cache)?, urls(&cache)?);
    let authority = Arc::new(postgres::open_store(&store).await?);
    let opened = if is_cluster(&cache) {
        TieredStore::open_cluster(authority, urls.iter().map(String::as_str), settings).await
    } else {
        TieredStore::open(authority, &urls[0], settings).await
    };
    Ok(Arc::new(opened.map_err(|error| ConnectError::TieredStore(Box::new(error)))?))
}

/// Checks the URLs and their options, as far as that is possible without the servers.
pub(super) fn check(store: &UrlParts, cache: &UrlParts) -> Result<(), ConnectError> {
    check_schemes(store, cache)?;
    settings(cache)?;
    check_urls(cache)?;
    postgres::check(store)
}

fn check_schemes(store: &UrlParts, cache: &UrlParts) -> Result<(), ConnectError> {
    if !matches!(store.scheme, "postgres" | "postgresql") {
        let problem = "cannot have a cache: only `postgres:` stores can";
        return Err(ConnectError::Cache { scheme: store.scheme, problem });
    }
    if !cache.scheme.starts_with("redis") {
        let problem = "cannot be a cache: use a `redis:` URL";
        return Err(ConnectError::Cache { scheme: cache.scheme, problem });
    }
    Ok(())
}

fn settings(cache: &UrlParts) -> Result<Settings, ConnectError> {
    let mut settings = Settings::default();
    let mut files = TlsFiles::default();
    cache.set(&mut [
        ("prefix", Setting::Parsed(&mut |text| take(text, &mut settings.prefix))),
        ("timeout", Setting::Time(&mut settings.timeout)),
        ("pause", Setting::Time(&mut settings.pause)),
        ("keep", Setting::Time(&mut settings.keep)),
        ("busy", Setting::Time(&mut settings.busy)),
        ("trust", Setting::Time(&mut settings.trust)),
        ("outcome_bytes_max", Setting::Size(&mut settings.outcome_bytes_max)),
        ("connections", Setting::Size(&mut settings.connections)),
        ("ca", Setting::Parsed(&mut |path| pem(path, &mut files.ca))),
        ("cert", Setting::Parsed(&mut |path| pem(path, &mut files.cert))),
        ("key", Setting::Parsed(&mut |path| pem(path, &mut files.key))),
    ])?;
    settings.tls = files.read(cache.scheme)?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_apply() {
        let parts = UrlParts::parse("redis", "//localhost").unwrap();
        assert_eq!(settings(&parts).unwrap(), Settings::default());
    }
}
