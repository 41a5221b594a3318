//! Settings by environment variables, checked at the start.

use std::env;
use std::time::Duration;

/// What can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `PORT`; 0 takes any free one.
    pub port: u16,
    /// `ONCEWARD_TTL`: how long answers are kept and replayed.
    pub ttl: Duration,
    /// `ONCEWARD_LEASE`: how long a crash stays unnoticed. Not a limit on handlers.
    pub lease: Duration,
    /// `ONCEWARD_MAX_RESPONSE_BYTES`: larger answers are not kept.
    pub response_max_bytes: usize,
    /// `ONCEWARD_DRAIN`: how long a shutdown waits for requests that run.
    pub drain_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 8083,
            ttl: Duration::from_secs(24 * 3600),
            lease: Duration::from_secs(30),
            response_max_bytes: 10 * 1024 * 1024,
            drain_max: Duration::from_secs(10),
        }
    }
}

/// A variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// Its value makes no sense.
    #[error("{name} is {value:?}; it must be {expected}")]
    Value {
        /// The variable.
        name: String,
        /// What it is set to.
        value: String,
        /// What it could be set to.
        expected: &'static str,
    },
    /// Most likely a typing error, which would otherwise leave a default in place unnoticed.
    #[error(
        "{0} is not a setting; there are PORT, ONCEWARD_TTL, ONCEWARD_LEASE, \
         ONCEWARD_MAX_RESPONSE_BYTES and ONCEWARD_DRAIN"
    )]
    Unknown(String),
}

const PORT: &str = "a number from 0 to 65535";
const BYTES: &str = "a number of bytes such as 10485760";
const DURATION: &str = "a duration such as 500ms, 30s, 15m, 24h or 7d";

impl Settings {
    /// Reads the environment of the process.
    pub fn from_env() -> Result<Self, InvalidSetting> {
        let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
        Self::read(env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Reads variables. Those of others are none of its business.
    pub fn read(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InvalidSetting> {
        let mut settings = Self::default();
        for (name, value) in variables {
            let expected = match name.as_str() {
                "PORT" => assign(&mut settings.port, value.parse().ok(), PORT),
                "ONCEWARD_TTL" => assign(&mut settings.ttl, duration(&value), DURATION),
                "ONCEWARD_LEASE" => assign(&mut settings.lease, duration(&value), DURATION),
                "ONCEWARD_DRAIN" => assign(&mut settings.drain_max, duration(&value), DURATION),
                "ONCEWARD_MAX_RESPONSE_BYTES" => {
                    assign(&mut settings.response_max_bytes, value.parse().ok(), BYTES)
                }
                other if other.starts_with("ONCEWARD_") => {
                    return Err(InvalidSetting::Unknown(name));
                }
                _ => Ok(()),
            };
            expected.map_err(|expected| InvalidSetting::Value { name, value, expected })?;
        }
        Ok(settings)
    }
}

fn assign<T>(
    setting: &mut T,
    value: Option<T>,
    expected: &'static str,
) -> Result<(), &'static str> {
    *setting = value.ok_or(expected)?;
    Ok(())
}

/// A whole number and a unit. A bare number is refused: of what?
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let seconds = |of_unit: u64| number.checked_mul(of_unit).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(24 * 3600),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        Settings::read([(name.into(), value.into())]).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_have_a_unit() {
        let secs = Duration::from_secs;
        for (text, expected) in [
            ("500ms", Some(Duration::from_millis(500))),
            ("30s", Some(secs(30))),
            ("15m", Some(secs(900))),
            ("24h", Some(secs(86_400))),
            ("7d", Some(secs(604_800))),
            ("24", None),
            ("", None),
            ("h", None),
            ("-1h", None),
            ("1.5h", None),
            ("1 h", None),
            ("1w", None),
            ("99999999999999999999d", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_set_is_taken_and_the_rest_is_default() {
        let settings = read("ONCEWARD_TTL", "36h").unwrap();
        assert_eq!(settings, Settings { ttl: Duration::from_secs(129_600), ..Settings::default() });
        assert_eq!(read("PORT", "0").unwrap().port, 0);
        assert_eq!(read("ONCEWARD_MAX_RESPONSE_BYTES", "7").unwrap().response_max_bytes, 7);
        assert_eq!(read("ONCEWARD_LEASE", "1s").unwrap().lease, Duration::from_secs(1));
        assert_eq!(read("ONCEWARD_DRAIN", "1m").unwrap().drain_max, Duration::from_secs(60));
        assert_eq!(read("HOME", "24 hours").unwrap(), Settings::default());
    }

    #[test]
    fn a_mistake_is_told_with_the_variable_and_the_value() {
        let told = read("ONCEWARD_TTL", "one day").unwrap_err();
        assert_eq!(
            told,
            "ONCEWARD_TTL is \"one day\"; it must be a duration such as 500ms, 30s, 15m, 24h or 7d"
        );
        assert!(read("PORT", "65536").unwrap_err().starts_with("PORT is \"65536\""));
        let told = read("ONCEWARD_MAX_RESPONSE_BYTES", "10MB").unwrap_err();
        assert!(told.contains("ONCEWARD_MAX_RESPONSE_BYTES is \"10MB\""), "{told}");
        assert!(read("ONCEWARD_TLT", "1h").unwrap_err().starts_with("ONCEWARD_TLT is not"));
    }
}
