//! What is asked of the desk, as the admin API takes it.

use std::time::Duration;

use onceward_core::RecordId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::reply::Reply;
use crate::api::{ApiProblem, RecordState, record_id};

/// Records on a page, unless somebody says how many.
const PAGE: u16 = 100;
/// Most records on a page: an answer that fits into memory many times.
pub(super) const PAGE_MAX: u16 = 1_000;
/// Longest reason: a paragraph, not a report.
const REASON_CHARS_MAX: usize = 1_000;
/// Longest age that can be asked for, and longest time to keep something: ten years.
const YEARS_TEN_SECONDS: u64 = 315_360_000;

/// Which records to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListRecords {
    /// Only records that stand there now; a lapsed lease stands at unknown.
    pub(crate) state: Option<RecordState>,
    /// Only this tenant's.
    pub(crate) tenant: Option<String>,
    /// Only those of the operation with this name.
    pub(crate) operation: Option<String>,
    /// Only those that have not changed for so long.
    #[param(maximum = 315_360_000)]
    pub(crate) older_than_seconds: Option<u64>,
    /// Goes on after this record: `next` of the page before.
    #[param(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// At most so many; 100 if it is not said.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
    /// Also what Onceward keeps for itself.
    pub(crate) internal: bool,
    /// Also the stored replies, which only operators may see.
    pub(crate) outcomes: bool,
}

impl ListRecords {
    pub(super) fn older_than(&self) -> Result<Duration, ApiProblem> {
        bounded("older_than_seconds", self.older_than_seconds.unwrap_or_default())
    }
}

/// How closely to look at a record.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowRecord {
    /// Also at its stored reply, which only operators may see.
    pub(crate) outcome: bool,
}

/// That an operation has happened.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRecord {
    /// The fence of the record that was looked at: once it has moved, the decision would be
    /// about something else, and is refused.
    pub(crate) fence: u64,
    /// How it is known, for the trail; no secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
    /// What retries are answered with.
    pub(crate) reply: Reply,
    /// How long it is kept; as configured for the operation if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub(crate) keep_seconds: Option<u64>,
}

impl ResolveRecord {
    pub(super) fn keep(&self) -> Result<Option<Duration>, ApiProblem> {
        match self.keep_seconds {
            Some(0) => Err(ApiProblem::bad_request("keep_seconds: nothing is kept for 0 seconds")),
            Some(seconds) => bounded("keep_seconds", seconds).map(Some),
            None => Ok(None),
        }
    }
}

/// That an operation has not happened, and cannot any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRecord {
    /// The fence of the record that was looked at.
    pub(crate) fence: u64,
    /// How it is known, for the trail; no secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

/// That the records which a store has lost are not waited for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptLoss {
    /// Why no client sends again what it sent before the loss, or why that does no harm; for the
    /// trail, no secrets.
    #[schema(min_length = 1, max_length = 1000, pattern = r"^[ -~]*[!-~][ -~]*$")]
    pub(crate) reason: String,
}

/// How much to remove at most.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PurgeRecords {
    /// At most so many records; 1000 if it is not said.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// Which decisions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListDecisions {
    /// Only those about this operation, in order.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: Option<String>,
    /// Goes on after this: `next` of the page before.
    #[param(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// At most so many; 100 if it is not said.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// Where to go on reading.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VerifyRecords {
    /// Goes on after this record: `next` of the answer before.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(crate) after: Option<String>,
    /// At most so many; 100 if it is not said.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
}

/// The page size that applies.
pub(super) fn page_size(limit: Option<u16>) -> Result<usize, ApiProblem> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=PAGE_MAX => Ok(limit.into()),
        limit => Err(ApiProblem::bad_request(format!("limit: {limit} is not 1 to {PAGE_MAX}"))),
    }
}

/// Where a page begins.
pub(super) fn cursor(after: Option<&str>) -> Result<Option<RecordId>, ApiProblem> {
    let read = |text: &str| {
        record_id(text).ok_or_else(|| {
            ApiProblem::bad_request("after: give `next` of the page before, 64 hexadecimal digits")
        })
    };
    after.map(read).transpose()
}

/// A reason that says something, and shows on a terminal what it says.
pub(super) fn reason(text: &str) -> Result<&str, ApiProblem> {
    let wrong = if text.trim().is_empty() {
        "is empty; say how it is known"
    } else if text.chars().count() > REASON_CHARS_MAX {
        "has more than 1000 characters; name a ticket that has the rest"
    } else if text.chars().any(char::is_control) {
        "has control characters; write it in one line"
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
