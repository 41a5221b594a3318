//! `file:./data`, `file:/var/lib/data`, `file:///var/lib/data`

use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::url_parts::{Setting, UrlParts};
use super::{ConnectError, SharedStore};
use crate::embedded::{EmbeddedStore, Settings};

pub(super) async fn open(parts: UrlParts) -> Result<SharedStore, ConnectError> {
    let (directory, settings) = read(&parts)?;
    let opening = tokio::task::spawn_blocking(move || EmbeddedStore::open(directory, settings));
    let store = opening.await.map_err(|_| ConnectError::Interrupted)?;
    Ok(Arc::new(store.map_err(ConnectError::Embedded)?))
}

/// Reads the directory and the settings.
pub(super) fn read(parts: &UrlParts) -> Result<(PathBuf, Settings), ConnectError> {
    let mut settings = Settings::default();
    parts.set(&mut [
        ("cache_bytes", Setting::Wide(&mut settings.cache_bytes)),
        ("memtable_bytes", Setting::Wide(&mut settings.memtable_bytes)),
        ("segment_bytes", Setting::Wide(&mut settings.segment_bytes)),
        ("reserve_bytes", Setting::Wide(&mut settings.reserve_bytes)),
        ("batch_calls_max", Setting::Size(&mut settings.batch_calls_max)),
        ("batch_bytes_max", Setting::Size(&mut settings.batch_bytes_max)),
    ])?;
    Ok((directory(parts)?, settings))
}

fn directory(parts: &UrlParts) -> Result<PathBuf, ConnectError> {
    let wrong = |part, problem| ConnectError::Part { scheme: parts.scheme, part, problem };
    let path = match parts.rest.strip_prefix("//") {
        Some(local) if local.starts_with('/') => local,
        Some(_) => {
            let problem = "must be empty: write `file:./data` or `file:///var/lib/data`";
            return Err(wrong("host (after `//`)", problem));
        }
        None => &parts.rest,
    };
    if path.is_empty() {
        return Err(wrong("path", "is missing: name a directory, as in `file:./data`"));
    }
    if !escapes_are_whole(path) {
        return Err(wrong("path", "has a `%` without two hexadecimal digits: write `%25` for it"));
    }
    let path = percent_decode_str(path).decode_utf8();
    Ok(path
        .map_err(|_| wrong("path", "is not UTF-8 when its `%` escapes are decoded"))?
        .as_ref()
        .into())
}

fn escapes_are_whole(path: &str) -> bool {
    path.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}
