//! Settings from environment variables, validated at startup.

use std::env;
use std::time::Duration;

use crate::store::{InvalidStore, StoreSetting};

/// Settings of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `PORT`; 0 uses a free port.
    pub port: u16,
    /// `ONCEWARD_STORE` and `ONCEWARD_KEY_PREFIX`.
    pub store: StoreSetting,
    /// `ONCEWARD_TTL`: how long responses are stored and replayed.
    pub ttl: Duration,
    /// `ONCEWARD_LEASE`: how long a crash stays unnoticed. Does not limit running handlers.
    pub lease: Duration,
    /// `ONCEWARD_MAX_RESPONSE_BYTES`: larger responses are not stored.
    pub response_max_bytes: usize,
    /// `ONCEWARD_DRAIN`: how long a shutdown waits for running requests.
    pub drain_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 8083,
            store: StoreSetting::default(),
            ttl: Duration::from_secs(24 * 3600),
            lease: Duration::from_secs(30),
            response_max_bytes: 10 * 1024 * 1024,
            drain_max: Duration::from_secs(10),
        }
    }
}

/// Error of an environment variable.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSetting {
    /// The value is invalid.
    #[error("{name} is {value:?}; it must be {expected}")]
    Value {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
    /// The store's URL or key prefix is invalid. The URL is not shown, as it may contain a password.
    #[error(transparent)]
    Store(#[from] InvalidStore),
    /// The variable is not a setting. An error, because a typo would otherwise leave the default in
    /// place unnoticed.
    #[error(
        "{0} is not a setting; the settings are PORT, ONCEWARD_STORE, ONCEWARD_KEY_PREFIX, \
         ONCEWARD_TTL, ONCEWARD_LEASE, ONCEWARD_MAX_RESPONSE_BYTES and ONCEWARD_DRAIN"
    )]
    Unknown(String),
}

const PORT: &str = "a number from 0 to 65535";
const BYTES: &str = "a number of bytes such as 10485760";
const DURATION: &str = "a duration such as 500ms, 30s, 15m, 24h or 7d";

impl Settings {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, InvalidSetting> {
        let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
        Self::read(env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Reads variables. Ignores those without the prefix `ONCEWARD_`, except `PORT`.
    pub fn read(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InvalidSetting> {
        let mut settings = Self::default();
        let (mut store, mut key_prefix) = (None, None);
        for (name, value) in variables {
            let expected = match name.as_str() {
                "ONCEWARD_STORE" => {
                    store = Some(value);
                    continue;
                }
                "ONCEWARD_KEY_PREFIX" => {
                    key_prefix = Some(value);
                    continue;
                }
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
        if store.is_some() || key_prefix.is_some() {
            let store = store.as_deref().unwrap_or("memory");
            settings.store = StoreSetting::new(store, key_prefix.as_deref())?;
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

/// Parses an integer with a unit. A number without a unit is invalid.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let seconds = |per_unit: u64| number.checked_mul(per_unit).map(Duration::from_secs);
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
    fn durations_need_a_unit() {
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
    fn unset_variables_keep_their_defaults() {
        let settings = read("ONCEWARD_TTL", "36h").unwrap();
        assert_eq!(settings, Settings { ttl: Duration::from_secs(129_600), ..Settings::default() });
        assert_eq!(read("PORT", "0").unwrap().port, 0);
        assert_eq!(read("ONCEWARD_MAX_RESPONSE_BYTES", "7").unwrap().response_max_bytes, 7);
        assert_eq!(read("ONCEWARD_LEASE", "1s").unwrap().lease, Duration::from_secs(1));
        assert_eq!(read("ONCEWARD_DRAIN", "1m").unwrap().drain_max, Duration::from_secs(60));
        assert_eq!(read("HOME", "24 hours").unwrap(), Settings::default());
    }

    #[test]
    fn errors_name_the_variable_and_the_value() {
        let error = read("ONCEWARD_TTL", "one day").unwrap_err();
        assert_eq!(
            error,
            "ONCEWARD_TTL is \"one day\"; it must be a duration such as 500ms, 30s, 15m, 24h or 7d"
        );
        assert!(read("PORT", "65536").unwrap_err().starts_with("PORT is \"65536\""));
        let error = read("ONCEWARD_MAX_RESPONSE_BYTES", "10MB").unwrap_err();
        assert!(error.contains("ONCEWARD_MAX_RESPONSE_BYTES is \"10MB\""), "{error}");
        let error = read("ONCEWARD_KEY_PREFIX", "order:").unwrap_err();
        assert!(error.starts_with("ONCEWARD_KEY_PREFIX is set, but"), "{error}");
        assert!(read("ONCEWARD_STORE", "").unwrap_err().starts_with("ONCEWARD_STORE: "));
        assert!(read("ONCEWARD_TLT", "1h").unwrap_err().starts_with("ONCEWARD_TLT is not"));
    }
}
