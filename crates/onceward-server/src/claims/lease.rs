//! Leases as JSON.

use std::time::Duration;

use onceward_core::{self as core, Fence, Holder, OwnerToken, RecordId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::{ApiProblem, Rfc3339, record_id};
use crate::config;

/// The right to run, for a limited time. Send it back unchanged.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lease {
    /// The id of the record.
    #[schema(pattern = "^[0-9a-fA-F]{64}$", min_length = 64, max_length = 64)]
    record: String,
    /// The owner token of the claim. Keep it secret: it is all that is needed to settle the claim.
    owner: Uuid,
    /// The fence, which increases with every grant of a key. Store it with the data that the work
    /// changes, and refuse writes with a lower one.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    fence: u64,
    /// End of the lease by the store's clock, for display. Ignored in requests.
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Duration of the lease, counted from when the claim, or the last renewal, was first sent.
    /// Ignored in requests.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    expires_in_ms: Option<u64>,
}

/// Parses an integer in any spelling: some languages write `7` as `7.0`.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let wrong = || D::Error::custom("wrong number, expected an integer");
    whole_or_null(deserializer)?.ok_or_else(wrong)
}

fn whole_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let wrong = || D::Error::custom("wrong number, expected an integer");
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let exact = |it: &f64| (0.0..=WHOLE_MAX).contains(it) && it.fract() == 0.0;
    let written_as_fraction = || number.as_f64().filter(exact).map(|it| it as u64);
    number.as_u64().or_else(written_as_fraction).map(Some).ok_or_else(wrong)
}

/// The largest integer up to which each has a floating point number of its own.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

impl Lease {
    pub(super) fn granted(
        id: &RecordId,
        owner: OwnerToken,
        lease: core::Lease,
        duration: Duration,
    ) -> Self {
        Self {
            record: id.to_string(),
            owner: Uuid::from_bytes(*owner.expose()),
            fence: lease.fence.0,
            expires_at: Some(Rfc3339::from(lease.until).to_string()),
            expires_in_ms: Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// The record and the holder.
    pub(super) fn parse(&self) -> Result<(RecordId, Holder), ApiProblem> {
        let id = record_id(&self.record).ok_or_else(|| {
            ApiProblem::bad_request("lease.record must be the 64 hexadecimal digits of the grant")
        })?;
        let owner = OwnerToken::from_bytes(*self.owner.as_bytes());
        Ok((id, Holder { owner, fence: Fence(self.fence) }))
    }
}

/// The requested duration of a lease, if it is within the limits.
pub(super) fn duration(
    requested: Option<&str>,
    settings: &config::Claims,
) -> Result<Duration, ApiProblem> {
    let Some(text) = requested else { return Ok(settings.lease.0) };
    let (min, max) = (settings.lease_min, settings.lease_max);
    let duration = humantime::parse_duration(text).ok();
    duration.filter(|it| (min.0..=max.0).contains(it)).ok_or_else(|| {
        ApiProblem::bad_request(format!(
            "a lease must be from \"{min}\" to \"{max}\", such as \"30s\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_a_whole_number_however_it_is_written() {
        let fence = |text: &str| {
            let lease = format!(r#"{{"record":"","owner":"{}","fence":{text}}}"#, Uuid::nil());
            serde_json::from_str::<Lease>(&lease).ok().map(|lease| lease.fence)
        };
        assert_eq!((fence("7"), fence("7.0"), fence("1e3")), (Some(7), Some(7), Some(1000)));
        for wrong in ["-1", "7.5", "1e300", "null", "\"7\""] {
            assert_eq!(fence(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_lease_is_as_long_as_it_may_be() {
        let settings = config::Claims::default();
        let duration = |text| duration(text, &settings).ok();
        assert_eq!(duration(None), Some(Duration::from_secs(30)));
        assert_eq!(duration(Some("1h")), Some(Duration::from_secs(3600)));
        for wrong in ["", "30", "0s", "999ms", "61m", "soon", "-1s"] {
            assert_eq!(duration(Some(wrong)), None, "{wrong:?}");
        }
    }
}
