//! `redis://localhost`, `rediss://user:password@host:6380/0`, `redis-cluster://node-1,node-2`

use std::fs;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ::redis::IntoConnectionInfo as _;

use super::url_parts::{Setting, UrlParts};
use super::{ConnectError, SharedStore};
use crate::redis::{Allow, OnEmpty, OpenError, RedisStore, Settings, Tls, Wait};

const PEM: &str = "must name a readable file with PEM text";

pub(super) async fn open(parts: UrlParts) -> Result<SharedStore, ConnectError> {
    let settings = settings(&parts)?;
    let urls = urls(&parts)?;
    let opened = if is_cluster(&parts) {
        RedisStore::open_cluster(urls.iter().map(String::as_str), settings).await
    } else {
        RedisStore::open(&urls[0], settings).await
    };
    Ok(Arc::new(opened.map_err(ConnectError::Redis)?))
}

/// Checks the URL and its options, as far as that is possible without the server.
pub(super) fn check(parts: &UrlParts) -> Result<(), ConnectError> {
    settings(parts)?;
    check_urls(parts)
}

/// Checks that the driver understands the addresses.
pub(super) fn check_urls(parts: &UrlParts) -> Result<(), ConnectError> {
    let wrong = |error| ConnectError::Redis(OpenError::Address(error));
    let read = |url: String| url.into_connection_info().map(drop).map_err(wrong);
    urls(parts)?.into_iter().try_for_each(read)
}

pub(super) fn is_cluster(parts: &UrlParts) -> bool {
    parts.scheme.ends_with("-cluster")
}

/// The driver's URLs, one for each node. All nodes have the same user and password.
pub(super) fn urls(parts: &UrlParts) -> Result<Vec<String>, ConnectError> {
    let wrong =
        |problem| ConnectError::Part { scheme: parts.scheme, part: "host (after `//`)", problem };
    let rest = parts.rest.strip_prefix("//").filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| wrong("is missing, as in `redis://localhost`"))?;
    let Some(scheme) = parts.scheme.strip_suffix("-cluster") else {
        if rest.contains(',') {
            return Err(wrong("must be a single one: several are for `redis-cluster:`"));
        }
        return Ok(vec![format!("{}://{rest}", parts.scheme)]);
    };
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), rest),
    };
    if hosts.trim_end_matches('/').contains('/') {
        return Err(wrong("must be the last part: a cluster has no databases"));
    }
    let hosts = hosts.trim_end_matches('/').split(',');
    Ok(hosts.map(|host| format!("{scheme}://{login}{host}")).collect())
}

fn settings(parts: &UrlParts) -> Result<Settings, ConnectError> {
    let mut settings = Settings::default();
    let mut wait = Wait { replicas: 0, timeout: Duration::from_millis(500) };
    let mut files = TlsFiles::default();
    parts.set(&mut [
        ("prefix", Setting::Parsed(&mut |text| take(text, &mut settings.prefix))),
        ("timeout", Setting::Time(&mut settings.timeout)),
        ("connections", Setting::Size(&mut settings.connections)),
        ("margin", Setting::Time(&mut settings.margin)),
        ("wait_replicas", Setting::Parsed(&mut |text| take(text, &mut wait.replicas))),
        ("wait_timeout", Setting::Time(&mut wait.timeout)),
        ("quarantine", Setting::Time(&mut settings.quarantine)),
        ("empty", Setting::Parsed(&mut |word| on_empty(word).map(|it| settings.empty = it))),
        ("allow", Setting::Parsed(&mut |words| allow(words).map(|it| settings.allow = it))),
        ("ca", Setting::Parsed(&mut |path| pem(path, &mut files.ca))),
        ("cert", Setting::Parsed(&mut |path| pem(path, &mut files.cert))),
        ("key", Setting::Parsed(&mut |path| pem(path, &mut files.key))),
    ])?;
    settings.tls = files.read(parts.scheme)?;
    settings.wait = (wait.replicas > 0).then_some(wait);
    Ok(settings)
}

/// The PEM files that options name.
#[derive(Default)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<Vec<u8>>,
    pub(super) cert: Option<Vec<u8>>,
    pub(super) key: Option<Vec<u8>>,
}

impl TlsFiles {
    pub(super) fn read(self, scheme: &'static str) -> Result<Tls, ConnectError> {
        if self.cert.is_some() != self.key.is_some() {
            let problem = "needs `key`, and `key` needs `cert`";
            return Err(ConnectError::Option { scheme, option: "cert".to_owned(), problem });
        }
        Ok(Tls { ca: self.ca, client: self.cert.zip(self.key) })
    }
}

pub(super) fn take<T: FromStr>(text: &str, target: &mut T) -> Result<(), &'static str> {
    *target = text.parse().map_err(|_| "must be a small whole number")?;
    Ok(())
}

fn on_empty(value: &str) -> Result<OnEmpty, &'static str> {
    match value {
        "begin" => Ok(OnEmpty::Begin),
        "quarantine" => Ok(OnEmpty::Quarantine),
        "refuse" => Ok(OnEmpty::Refuse),
        _ => Err("must be `begin`, `quarantine` or `refuse`"),
    }
}

fn allow(value: &str) -> Result<Allow, &'static str> {
    let mut allow = Allow::default();
    for word in value.split(',') {
        match word {
            "eviction" => allow.eviction = true,
            "no-persistence" => allow.no_persistence = true,
            _ => return Err("must be `eviction`, `no-persistence`, or both with a comma"),
        }
    }
    Ok(allow)
}

pub(super) fn pem(path: &str, target: &mut Option<Vec<u8>>) -> Result<(), &'static str> {
    *target = Some(fs::read(path).map_err(|_| PEM)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_apply() {
        let parts = UrlParts::parse("redis", "//localhost").unwrap();
        assert_eq!(settings(&parts).unwrap(), Settings::default());
    }

    #[test]
    fn every_node_of_a_cluster_gets_the_login() {
        let parts = UrlParts::parse("rediss-cluster", "//me:p%40ss@a:1,b:2/").unwrap();
        assert_eq!(urls(&parts).unwrap(), ["rediss://me:p%40ss@a:1", "rediss://me:p%40ss@b:2"]);
    }
}
