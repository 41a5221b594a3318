//! Single values of the configuration, checked while they are parsed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderName, Method, Uri};
use ipnet::IpNet;
use onceward_core::Timestamp;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A duration, such as `"30s"` or `"24h"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

impl Seconds {
    /// A duration of whole seconds.
    pub const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a duration with its unit, such as \"30s\" or \"24h\"", |text| {
            let time = humantime::parse_duration(text).map_err(|why| format!("{text:?}: {why}"))?;
            if time.is_zero() { Err("must be longer than 0".into()) } else { Ok(Self(time)) }
        })
    }
}

/// A point in time, such as `"2026-11-01T00:00:00Z"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a time in quotes, such as \"2026-11-01T00:00:00Z\"", |text| {
            let wrong = || format!("{text:?} is not a time such as \"2026-11-01T00:00:00Z\"");
            let time = humantime::parse_rfc3339(text).map_err(|_| wrong())?;
            let since = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
            Ok(Self(Timestamp::from_millis(0) + since))
        })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0.as_millis());
        humantime::format_rfc3339_seconds(time).fmt(f)
    }
}

/// A share from 0.0 to 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    parts_per_million: u32,
}

impl Share {
    /// Everything.
    pub const ALL: Self = Self { parts_per_million: 1_000_000 };

    /// The share as a number from 0.0 to 1.0.
    pub fn ratio(self) -> f64 {
        f64::from(self.parts_per_million) / 1e6
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ratio = f64::deserialize(deserializer)?;
        if !(0.0..=1.0).contains(&ratio) {
            let wanted = &"a share from 0.0 to 1.0";
            return Err(Error::invalid_value(Unexpected::Float(ratio), wanted));
        }
        Ok(Self { parts_per_million: (ratio * 1e6).round() as u32 })
    }
}

/// A number of bytes, such as `1024` or `"10MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        match unit {
            Some((name, size)) => write!(f, "{}{name}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_unit = |(name, size): &(&str, u64)| Some((text.strip_suffix(name)?, *size));
        let (number, unit) = UNITS.iter().find_map(of_unit).unwrap_or((text, 1));
        let number: Option<u64> = number.trim().parse().ok();
        let bytes = number.and_then(|number| number.checked_mul(unit));
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size such as 1024, 64KiB, 10MiB or 1GiB"))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, such as 1024 or \"10MiB\"")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
                let value = u64::try_from(value);
                value.map(Bytes).map_err(|_| E::custom("must not be negative"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Size)
    }
}

/// A header name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNameSetting(pub HeaderName);

impl<'de> Deserialize<'de> for HeaderNameSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a header name", |text| {
            HeaderName::from_str(text)
                .map(Self)
                .map_err(|_| format!("{text:?} is not a header name"))
        })
    }
}

/// A method that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodSetting(pub Method);

impl Default for MethodSetting {
    fn default() -> Self {
        Self(Method::POST)
    }
}

impl<'de> Deserialize<'de> for MethodSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a method, such as \"POST\"", |text| {
            let method = Method::from_str(text).map_err(|_| format!("{text:?} is not a method"))?;
            if method.is_safe() {
                return Err(format!(
                    "{method} changes nothing and always passes; use POST, PUT, PATCH or DELETE"
                ));
            }
            Ok(Self(method))
        })
    }
}

/// The URL of an upstream: a scheme, a host, and optionally a path that is prefixed to every
/// request's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl(pub Uri);

impl Default for UpstreamUrl {
    fn default() -> Self {
        Self(Uri::from_static("http://127.0.0.1:3000"))
    }
}

impl UpstreamUrl {
    /// True if requests to it leave this machine unencrypted.
    pub(super) fn is_plain_and_remote(&self) -> bool {
        let host = self.0.host().unwrap_or_default().trim_matches(['[', ']']);
        let local = host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback());
        self.0.scheme_str() == Some("http") && !local
    }
}

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|why| format!("{text:?} is not a URL: {why}"))?;
        match (uri.scheme_str(), uri.authority(), uri.query()) {
            (Some("http" | "https"), Some(_), None) => Ok(Self(uri)),
            (Some("http" | "https"), Some(_), Some(_)) => {
                Err(format!("{text:?} must not have a query"))
            }
            _ => Err(format!("{text:?} must begin with http:// or https:// and a host")),
        }
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for UpstreamUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a URL, such as \"http://127.0.0.1:3000\"", str::parse)
    }
}

/// Trusted networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peers(pub Vec<IpNet>);

impl Peers {
    /// Returns whether a host belongs to one of them.
    pub fn contains(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        self.0.iter().any(|network| network.contains(&host))
    }
}

impl<'de> Deserialize<'de> for Peers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let network = |text: &String| {
            let host = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse().or_else(|_| host()).map_err(|_| {
                D::Error::custom(format!("{text:?} is not a network such as \"10.0.0.0/8\""))
            })
        };
        texts.iter().map(network).collect::<Result<_, _>>().map(Self)
    }
}

/// Parses a text and checks it.
pub(super) fn text<'de, D, T>(
    deserializer: D,
    expected: &'static str,
    check: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    struct Text(&'static str);
    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
            Err(E::invalid_type(Unexpected::Signed(value), &self))
        }
    }
    let text = deserializer.deserialize_any(Text(expected))?;
    check(&text).map_err(D::Error::custom)
}
