//! Requests of the admin API.

use std::time::Duration;

use onceward_core::{InvalidScope, Key, RecordId, Scope};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::reply::Reply;
use crate::api::{ApiProblem, RecordRef, RecordState, record_id};

/// Default page size.
const PAGE: u16 = 100;
/// Largest page size. Memory holds many such responses at once.
pub(super) const PAGE_MAX: u16 = 1_000;
/// Longest reason: a paragraph, not a report.
const REASON_CHARS_MAX: usize = 1_000;
/// Longest age to filter by, and longest retention: ten years.
const YEARS_TEN_SECONDS: u64 = 315_360_000;

/// Which records to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListRecords {
    /// Only records in this state now. A running record whose lease has lapsed is unknown.
    pub(crate) state: Option<RecordState>,
    /// Only records of this tenant.
    pub(crate) tenant: Option<String>,
    /// Only records of this caller.
    pub(crate) caller: Option<String>,
    /// Only records of the operation with this name.
    pub(crate) operation: Option<String>,
    /// Only records that have not changed for this long.
    #[param(maximum = 315_360_000)]
    pub(crate) older_than_seconds: Option<u64>,
    /// Start after this record: `next` of the previous page.
    #[param(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// Page size; the default is 100.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
    /// Include the internal records of Onceward.
    pub(crate) internal: bool,
    /// Include the stored replies. Requires the role operator.
    pub(crate) outcomes: bool,
}

impl ListRecords {
    pub(super) fn older_than(&self) -> Result<Duration, ApiProblem> {
        bounded("older_than_seconds", self.older_than_seconds.unwrap_or_default())
    }
}

/// The scope and key of a client's request, to find its record. No `Debug`: it has the key.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindRecord {
    /// The tenant.
    pub(crate) tenant: String,
    /// The caller.
    pub(crate) caller: String,
    /// The name of the operation, such as `payments.create`.
    pub(crate) operation: String,
    /// The API version, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) api_version: Option<String>,
    /// The parent resource, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) parent: Option<String>,
    /// The region, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) region: Option<String>,
    /// The client's idempotency key. It is hashed and neither logged nor stored.
    pub(crate) key: String,
    /// Include the stored reply. Requires the role operator.
    #[serde(default)]
    pub(crate) outcome: bool,
}

impl FindRecord {
    /// The scope and the key.
    pub(super) fn parse(&self) -> Result<(Scope, Key), ApiProblem> {
        let key = Key::new(self.key.clone()).map_err(|wrong| bad("key", &wrong))?;
        let scope = || {
            let mut scope = Scope::new(&self.tenant, &self.caller, &self.operation)?;
            if let Some(version) = &self.api_version {
                scope = scope.with_api_version(version)?;
            }
            if let Some(parent) = &self.parent {
                scope = scope.with_parent(parent)?;
            }
            if let Some(region) = &self.region {
                scope = scope.with_restored_region(region)?;
            }
            Ok::<_, InvalidScope>(scope)
        };
        Ok((scope().map_err(|wrong| bad("scope", &wrong))?, key))
    }
}

fn bad(field: &str, wrong: &impl std::fmt::Display) -> ApiProblem {
    ApiProblem::bad_request(format!("{field}: {wrong}"))
}

/// Options for showing a record.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowRecord {
    /// Include the stored reply. Requires the role operator.
    pub(crate) outcome: bool,
}

/// The decision that an operation has happened.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRecord {
    /// The fence of the record that the decision is based on. If the record has another fence
    /// by now, the decision is refused.
    pub(crate) fence: u64,
    /// The evidence for the decision, for the audit log. Must not contain secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
    /// The reply that retries get.
    pub(crate) reply: Reply,
    /// Retention of the reply; the default is that of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub(crate) keep_seconds: Option<u64>,
}

impl ResolveRecord {
    pub(super) fn keep(&self) -> Result<Option<Duration>, ApiProblem> {
        match self.keep_seconds {
            Some(0) => Err(ApiProblem::bad_request(
                "keep_seconds: 0 is not allowed; leave it out for the retention of the operation",
            )),
            Some(seconds) => bounded("keep_seconds", seconds).map(Some),
            None => Ok(None),
        }
    }
}

/// The decision that an operation has not happened and cannot happen any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRecord {
    /// The fence of the record that the decision is based on. If the record has another fence
    /// by now, the decision is refused.
    pub(crate) fence: u64,
    /// The evidence for the decision, for the audit log. Must not contain secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

/// The decision that a stored response must not be replayed any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvalidateRecord {
    /// The fence of the record that the decision is based on. If the record has another fence
    /// by now, the decision is refused.
    pub(crate) fence: u64,
    /// The correction that removed the effect, for the audit log. Must not contain secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

/// The decision that copies of records in the cache do not count any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvalidateCache {
    /// The records whose copies leave the cache at once, by the ids of records or operations. They
    /// need not exist any more. Without this, all copies are invalidated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000, nullable = false)]
    pub(crate) records: Option<Vec<String>>,
    /// Why the copies are wrong, for the audit log. Must not contain secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

impl InvalidateCache {
    /// The records; `None` for all.
    pub(super) fn records(&self) -> Result<Option<Vec<RecordRef>>, ApiProblem> {
        let Some(ids) = &self.records else { return Ok(None) };
        if !(1..=usize::from(PAGE_MAX)).contains(&ids.len()) {
            let many = ids.len();
            return Err(ApiProblem::bad_request(format!("records: {many} is not 1 to {PAGE_MAX}")));
        }
        let parsed = ids.iter().map(|id| id.parse().map_err(|wrong| bad("records", &wrong)));
        parsed.collect::<Result<_, _>>().map(Some)
    }
}

/// The decision to go on without the records that the store has lost.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptLoss {
    /// Why no client retries a request from before the loss, or why such a retry does no harm.
    /// For the audit log; must not contain secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

/// A purge of expired records.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PurgeRecords {
    /// Largest number of records to remove; the default is 1000.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// Which decisions to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListDecisions {
    /// Only decisions about this operation, in order.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: Option<String>,
    /// Start after this decision: `next` of the previous page.
    #[param(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// Page size; the default is 100.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// Which records to verify.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VerifyRecords {
    /// Start after this record: `next` of the previous response.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// Page size; the default is 100.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// The page size in force.
pub(super) fn page_size(limit: Option<u16>) -> Result<usize, ApiProblem> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=PAGE_MAX => Ok(limit.into()),
        limit => Err(ApiProblem::bad_request(format!("limit: {limit} is not 1 to {PAGE_MAX}"))),
    }
}

/// The record that a page starts after.
pub(super) fn cursor(after: Option<&str>) -> Result<Option<RecordId>, ApiProblem> {
    let read = |text: &str| {
        record_id(text).ok_or_else(|| {
            ApiProblem::bad_request(
                "after: must be `next` of the previous page, 64 hexadecimal digits",
            )
        })
    };
    after.map(read).transpose()
}

/// A reason that is not empty and prints safely on a terminal.
pub(super) fn reason(text: &str) -> Result<&str, ApiProblem> {
    let wrong = if text.trim().is_empty() {
        "is empty; say how the outcome is known"
    } else if text.chars().count() > REASON_CHARS_MAX {
        "has more than 1000 characters; refer to a ticket for the rest"
    } else if text.chars().any(char::is_control) {
        "has control characters; write it on one line"
    } else {
        return Ok(text.trim());
    };
    Err(ApiProblem::bad_request(format!("reason: it {wrong}")))
}

fn bounded(what: &str, seconds: u64) -> Result<Duration, ApiProblem> {
    match seconds {
        0..=YEARS_TEN_SECONDS => Ok(Duration::from_secs(seconds)),
        _ => Err(ApiProblem::bad_request(format!("{what}: {seconds} is more than ten years"))),
    }
}
