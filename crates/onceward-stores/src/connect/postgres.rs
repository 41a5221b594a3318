//! `postgres://user:password@host:port/database`

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::url_parts::{Setting, UrlParts};
use super::{ConnectError, SharedStore};
use crate::postgres::{Listen, OpenError, PostgresStore, Schema, Settings, tokio_postgres};

pub(super) async fn open(parts: UrlParts) -> Result<SharedStore, ConnectError> {
    Ok(Arc::new(open_store(&parts).await?))
}

pub(super) async fn open_store(parts: &UrlParts) -> Result<PostgresStore, ConnectError> {
    let (url, settings) = read(parts)?;
    let store = PostgresStore::open(&url, settings).await;
    store.map_err(|error| ConnectError::Postgres(Box::new(error)))
}

/// Checks the URL and its options, as far as that is possible without the server.
pub(super) fn check(parts: &UrlParts) -> Result<(), ConnectError> {
    let address = read(parts)?.0.parse::<tokio_postgres::Config>();
    let wrong = |error| ConnectError::Postgres(Box::new(OpenError::Address(error)));
    address.map(drop).map_err(wrong)
}

/// Options that are passed to the driver as they are.
const DRIVERS: [&str; 4] =
    ["application_name", "options", "target_session_attrs", "channel_binding"];

/// Returns the driver's URL, and the settings of the other options.
pub(super) fn read(parts: &UrlParts) -> Result<(String, Settings), ConnectError> {
    let mut settings = Settings::default();
    let [mut schema, mut listen_url, mut mode, mut roots] = [const { None }; 4];
    let mut listen = true;
    let mut drivers = [const { None }; DRIVERS.len()];
    let mut known = vec![
        ("schema", Setting::Text(&mut schema)),
        ("migrate", Setting::Flag(&mut settings.migrate)),
        ("connections", Setting::Size(&mut settings.connections)),
        ("transactions_max", Setting::Size(&mut settings.transactions_max)),
        ("batch_calls_max", Setting::Size(&mut settings.batch_calls_max)),
        ("call_timeout", Setting::Time(&mut settings.call_timeout)),
        ("statement_timeout", Setting::Time(&mut settings.statement_timeout)),
        ("lock_timeout", Setting::Time(&mut settings.lock_timeout)),
        ("connect_timeout", Setting::Time(&mut settings.connect_timeout)),
        ("pgbouncer", Setting::Flag(&mut settings.pgbouncer)),
        ("listen", Setting::Flag(&mut listen)),
        ("listen_url", Setting::Text(&mut listen_url)),
        ("purge_slack_max", Setting::Time(&mut settings.purge_slack_max)),
        ("sslmode", Setting::Text(&mut mode)),
        ("sslrootcert", Setting::Text(&mut roots)),
    ];
    known.extend(DRIVERS.iter().copied().zip(drivers.iter_mut().map(Setting::Text)));
    parts.set(&mut known)?;
    drop(known);
    if let Some(name) = schema {
        let problem = "must be lower-case letters, digits and underscores, at most 48";
        settings.schema = Schema::new(name).map_err(|_| wrong(parts, "schema", problem))?;
    }
    settings.root_certificates =
        roots.map(|it| decoded(parts, "sslrootcert", &it)).transpose()?.map(Into::into);
    settings.listen = match (listen, listen_url) {
        (false, _) => Listen::Off,
        (true, None) => Listen::Here,
        (true, Some(url)) => Listen::At(decoded(parts, "listen_url", &url)?),
    };
    let mode = tls_mode(mode.as_deref()).map_err(|problem| wrong(parts, "sslmode", problem))?;
    let mut url = format!("postgres:{}?sslmode={mode}", parts.rest);
    for (name, value) in DRIVERS.iter().zip(drivers) {
        if let Some(value) = value {
            url.push_str(&format!("&{name}={value}"));
        }
    }
    Ok((url, settings))
}

/// Decodes the `%` escapes of a value.
fn decoded(parts: &UrlParts, option: &str, value: &str) -> Result<String, ConnectError> {
    let text = percent_decode_str(value).decode_utf8();
    let problem = "is not UTF-8 when its `%` escapes are decoded";
    text.map(Cow::into_owned).map_err(|_| wrong(parts, option, problem))
}

fn wrong(parts: &UrlParts, option: &str, problem: &'static str) -> ConnectError {
    ConnectError::Option { scheme: parts.scheme, option: option.to_owned(), problem }
}

/// With TLS the certificate is always checked, so `require` and `verify-full` are the same.
fn tls_mode(mode: Option<&str>) -> Result<&'static str, &'static str> {
    match mode {
        None | Some("prefer") => Ok("prefer"),
        Some("disable") => Ok("disable"),
        Some("require" | "verify-full") => Ok("require"),
        Some(_) => Err("must be `disable`, `prefer`, `require` or `verify-full`"),
    }
}
