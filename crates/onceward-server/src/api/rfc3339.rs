//! Times in RFC 3339.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use onceward_core::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time of the store's clock, in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rfc3339(Timestamp);

/// The last time that RFC 3339 can express. A damaged record may hold a later one.
const LAST_MS: u64 = 253_402_300_799_999;

impl Rfc3339 {
    /// Time from this one until `now`; zero if it is in the future.
    pub(crate) fn age(self, now: Timestamp) -> Duration {
        self.0.until(now)
    }
}

impl From<Timestamp> for Rfc3339 {
    fn from(time: Timestamp) -> Self {
        Self(Timestamp::from_millis(time.as_millis().min(LAST_MS)))
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0.as_millis());
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text).map_err(D::Error::custom)?;
        let since = time.duration_since(UNIX_EPOCH).map_err(D::Error::custom)?;
        let millis = u64::try_from(since.as_millis()).map_err(D::Error::custom)?;
        Ok(Timestamp::from_millis(millis).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_is_written_however_late() {
        for millis in [0, 1_700_000_000_123, LAST_MS, u64::MAX] {
            let time = Rfc3339::from(Timestamp::from_millis(millis));
            let text = serde_json::to_string(&time).unwrap();
            assert_eq!(serde_json::from_str::<Rfc3339>(&text).unwrap(), time, "{text}");
        }
    }
}
