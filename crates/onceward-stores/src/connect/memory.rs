//! `memory:`

use std::sync::Arc;

use onceward_core::{MemoryLimits, MemoryStore, SystemAmbient};

use super::url_parts::{Setting, UrlParts};
use super::{ConnectError, SharedStore};

pub(super) async fn open(parts: UrlParts) -> Result<SharedStore, ConnectError> {
    Ok(Arc::new(MemoryStore::with(limits(&parts)?, Arc::new(SystemAmbient::new()))))
}

pub(super) fn limits(parts: &UrlParts) -> Result<MemoryLimits, ConnectError> {
    if !parts.rest.is_empty() {
        let problem = "must be empty: all of it is in this process";
        return Err(ConnectError::Part { scheme: parts.scheme, part: "path", problem });
    }
    let mut limits = MemoryLimits::default();
    parts.set(&mut [
        ("records_max", Setting::Wide(&mut limits.records_max)),
        ("bytes_max", Setting::Wide(&mut limits.bytes_max)),
    ])?;
    Ok(limits)
}
