//! Settings from environment variables, checked at the start.

use std::env;
use std::str::FromStr;
use std::time::Duration;

/// Settings of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `PORT`; 0 uses a free port.
    pub port: u16,
    /// `STORE`: `memory:`, `file:./data` or `postgres://…`. The cases are stored there too.
    pub store: String,
    /// `LEASE`: how long a crash stays unnoticed, and with it how long a retry has to wait. Does not
    /// limit running requests.
    pub lease: Duration,
    /// `BULK_ITEMS_MAX`: most items in a bulk, because one response has them all.
    pub bulk_items_max: usize,
    /// `BULK_CONCURRENCY`: items of a bulk that run concurrently. In PostgreSQL each holds a
    /// connection.
    pub bulk_concurrency: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 8085,
            store: "memory:".into(),
            lease: Duration::from_secs(30),
            bulk_items_max: 1_000,
            bulk_concurrency: 4,
        }
    }
}

/// A variable with an invalid value. The value is not shown if it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {expected}")]
pub struct InvalidSetting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) expected: &'static str,
}

impl Settings {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, InvalidSetting> {
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let default = Self::default();
        Ok(Self {
            port: number(&variable, "PORT", default.port, "a number from 0 to 65535")?,
            store: variable("STORE").unwrap_or(default.store),
            lease: lease(&variable, default.lease)?,
            bulk_items_max: at_least_one(&variable, "BULK_ITEMS_MAX", default.bulk_items_max)?,
            bulk_concurrency: at_least_one(
                &variable,
                "BULK_CONCURRENCY",
                default.bulk_concurrency,
            )?,
        })
    }
}

fn number<T: FromStr>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: T,
    expected: &'static str,
) -> Result<T, InvalidSetting> {
    let Some(value) = variable(name) else { return Ok(default) };
    value.parse().map_err(|_| InvalidSetting { name, value: format!("{value:?}"), expected })
}

fn at_least_one(
    variable: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: usize,
) -> Result<usize, InvalidSetting> {
    let expected = "a number of 1 or more";
    match number(variable, name, default, expected)? {
        0 => Err(InvalidSetting { name, value: "0".into(), expected }),
        items => Ok(items),
    }
}

/// Parses a number of milliseconds or seconds. The unit is required, as a number alone is ambiguous.
fn lease(
    variable: &impl Fn(&str) -> Option<String>,
    default: Duration,
) -> Result<Duration, InvalidSetting> {
    let Some(value) = variable("LEASE") else { return Ok(default) };
    let units = [("ms", Duration::from_millis(1)), ("s", Duration::from_secs(1))];
    let read = |(unit, length): (&str, Duration)| {
        length.checked_mul(value.strip_suffix(unit)?.parse().ok()?)
    };
    let lease = units.into_iter().find_map(read);
    let expected = "a time such as 500ms or 30s";
    lease.ok_or_else(|| InvalidSetting { name: "LEASE", value: format!("{value:?}"), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        let settings = Settings::read(|known| (known == name).then(|| value.to_owned()));
        settings.map_err(|error| error.to_string())
    }

    #[test]
    fn unset_variables_keep_their_defaults() {
        assert_eq!(read("HOME", "x").unwrap(), Settings::default());
        assert_eq!(read("PORT", "0").unwrap().port, 0);
        assert_eq!(read("STORE", "file:./data").unwrap().store, "file:./data");
        assert_eq!(read("LEASE", "500ms").unwrap().lease, Duration::from_millis(500));
        assert_eq!(read("LEASE", "2s").unwrap().lease, Duration::from_secs(2));
        assert_eq!(read("BULK_ITEMS_MAX", "7").unwrap().bulk_items_max, 7);
        assert_eq!(read("BULK_CONCURRENCY", "7").unwrap().bulk_concurrency, 7);
    }

    #[test]
    fn errors_name_the_variable_the_value_and_what_is_expected() {
        for (name, value, expected) in [
            ("PORT", "65536", "a number from 0 to 65535"),
            ("LEASE", "30", "a time such as 500ms or 30s"),
            ("LEASE", "99999999999999999999s", "a time such as 500ms or 30s"),
            ("BULK_ITEMS_MAX", "many", "a number of 1 or more"),
            ("BULK_CONCURRENCY", "-1", "a number of 1 or more"),
        ] {
            let error = read(name, value).unwrap_err();
            assert_eq!(error, format!("{name} is {value:?}; it must be {expected}"));
        }
        let error = read("BULK_ITEMS_MAX", "0").unwrap_err();
        assert_eq!(error, "BULK_ITEMS_MAX is 0; it must be a number of 1 or more");
    }
}
