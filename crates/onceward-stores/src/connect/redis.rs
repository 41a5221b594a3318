//! `redis://localhost`, `rediss://user:password@host:6380/0`, `redis-cluster://node-1,node-2`

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::parts::{Parts, Setting};
use super::{ConnectError, SharedStore};
use crate::redis::{Allow, OnEmpty, RedisStore, Settings, Wait};

const PEM: &str = "must name a readable file with PEM text";

pub(super) async fn open(parts: Parts) -> Result<SharedStore, ConnectError> {
    let settings = settings(&parts)?;
    let urls = urls(&parts)?;
    let opened = match parts.scheme {
        "redis-cluster" | "rediss-cluster" => {
            RedisStore::open_cluster(urls.iter().map(String::as_str), settings).await
        }
        _ => RedisStore::open(&urls[0], settings).await,
    };
    Ok(Arc::new(opened.map_err(ConnectError::Redis)?))
}

/// One URL a node, in the words of the driver. All nodes have the same user and password.
fn urls(parts: &Parts) -> Result<Vec<String>, ConnectError> {
    let wrong =
        |problem| ConnectError::Part { scheme: parts.scheme, part: "host (after `//`)", problem };
    let rest = parts.rest.strip_prefix("//").filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| wrong("is missing, as in `redis://localhost`"))?;
    let Some(scheme) = parts.scheme.strip_suffix("-cluster") else {
        if rest.contains(',') {
            return Err(wrong("is one: several are for `redis-cluster:`"));
        }
        return Ok(vec![format!("{}://{rest}", parts.scheme)]);
    };
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), rest),
    };
    if hosts.trim_end_matches('/').contains('/') {
        return Err(wrong("ends the URL: a cluster has no databases"));
    }
    let hosts = hosts.trim_end_matches('/').split(',');
    Ok(hosts.map(|host| format!("{scheme}://{login}{host}")).collect())
}

fn settings(parts: &Parts) -> Result<Settings, ConnectError> {
    let mut settings = Settings::default();
    let [mut timeout_ms, mut margin_s, mut quarantine_s] = [
        settings.timeout.as_millis(),
        settings.margin.as_secs().into(),
        settings.quarantine.as_secs().into(),
    ]
    .map(|it| u64::try_from(it).unwrap_or(u64::MAX));
    let (mut replicas, mut wait_ms) = (0, 500);
    let (mut certificate, mut key) = (None, None);
    parts.set(&mut [
        ("prefix", Setting::Text(&mut |value| Ok(value.clone_into(&mut settings.prefix)))),
        ("timeout_ms", Setting::Wide(&mut timeout_ms)),
        ("connections", Setting::Size(&mut settings.connections)),
        ("margin_s", Setting::Wide(&mut margin_s)),
        ("wait_replicas", Setting::Wide(&mut replicas)),
        ("wait_ms", Setting::Wide(&mut wait_ms)),
        ("quarantine_s", Setting::Wide(&mut quarantine_s)),
        ("empty", Setting::Text(&mut |value| on_empty(value).map(|it| settings.empty = it))),
        ("allow", Setting::Text(&mut |value| allow(value).map(|it| settings.allow = it))),
        ("ca", Setting::Text(&mut |path| pem(path).map(|it| settings.tls.ca = Some(it)))),
        ("cert", Setting::Text(&mut |path| pem(path).map(|it| certificate = Some(it)))),
        ("key", Setting::Text(&mut |path| pem(path).map(|it| key = Some(it)))),
    ])?;
    settings.timeout = Duration::from_millis(timeout_ms);
    settings.margin = Duration::from_secs(margin_s);
    settings.quarantine = Duration::from_secs(quarantine_s);
    settings.tls.client = certificate.zip(key);
    let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
    let wait = Wait { replicas, timeout: Duration::from_millis(wait_ms) };
    settings.wait = (replicas > 0).then_some(wait);
    Ok(settings)
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

fn pem(path: &str) -> Result<Vec<u8>, &'static str> {
    fs::read(path).map_err(|_| PEM)
}
