//! The URL of a store, shown without its password.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// The URL of a store. `Display` and `Debug` show neither its login nor its options, which may
/// contain passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Returns the whole URL, password included, to open the store.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The kind of store; `None` for an unknown scheme.
    pub fn kind(&self) -> Option<StoreKind> {
        StoreKind::of_scheme(self.scheme()?)
    }

    /// Timeout of one store call; `None` for stores without a network.
    pub fn call_timeout(&self) -> Option<Duration> {
        let (option, default) = match self.kind()? {
            StoreKind::Memory | StoreKind::Embedded => return None,
            StoreKind::Redis => ("timeout", Duration::from_secs(2)),
            StoreKind::Postgres => ("call_timeout", Duration::from_millis(1_900)),
        };
        let set = self.option(option).and_then(|text| humantime::parse_duration(text).ok());
        Some(set.unwrap_or(default))
    }

    fn option(&self, name: &str) -> Option<&str> {
        let (_, query) = self.0.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(option, _)| *option == name).map(|(_, value)| value)
    }

    fn scheme(&self) -> Option<&str> {
        self.0.split_once(':').map(|(scheme, _)| scheme)
    }

    /// Host, port and database; `None` if they may be part of a login.
    fn location(&self) -> Option<&str> {
        let (_, rest) = self.0.split_once("://")?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let location = match address.rsplit_once('@') {
            Some((_login, location)) => location,
            // A `?` inside a password looks like the start of the options.
            None if query.contains('@') => return None,
            None => address,
        };
        let hosts = location.split('/').next().unwrap_or_default();
        hosts.split(',').all(is_host).then_some(location)
    }
}

/// Returns whether a text is a name or an address, with or without a port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (text, ""),
    };
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let named = |it: u8| it.is_ascii_alphanumeric() || b".-_%".contains(&it);
    port.bytes().all(|it| it.is_ascii_digit())
        && match bare {
            Some(address) => {
                address.bytes().all(|it| it.is_ascii_hexdigit() || b":.".contains(&it))
            }
            None => !name.is_empty() && name.bytes().all(named),
        }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Accepts every text: an error here would make clap show the text, password included.
impl FromStr for StoreUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.scheme(), self.location()) {
            (Some(StoreKind::Memory | StoreKind::Embedded), ..) => f.write_str(&self.0),
            (Some(_), Some(scheme), Some(location)) => write!(f, "{scheme}://{location}"),
            (Some(_), Some(scheme), None) => write!(f, "{scheme}:…"),
            _ => f.write_str("…"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Memory of this process.
    Memory,
    /// A directory.
    Embedded,
    /// Redis, as one server or as a cluster.
    Redis,
    /// PostgreSQL.
    Postgres,
}

impl StoreKind {
    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// Shortest time between two counts of its records. Longer where counting reads many of them.
    pub(crate) const fn counted_every(self) -> Duration {
        match self {
            Self::Memory | Self::Embedded => Duration::ZERO,
            Self::Redis | Self::Postgres => Duration::from_secs(60),
        }
    }

    /// Returns whether this program was built with support for it.
    pub(super) const fn is_built(self) -> bool {
        match self {
            Self::Memory | Self::Embedded => true,
            Self::Redis => cfg!(feature = "redis"),
            Self::Postgres => cfg!(feature = "postgres"),
        }
    }

    fn of_scheme(scheme: &str) -> Option<Self> {
        Some(match scheme.to_ascii_lowercase().as_str() {
            "memory" => Self::Memory,
            "file" => Self::Embedded,
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => Self::Redis,
            "postgres" | "postgresql" => Self::Postgres,
            _ => return None,
        })
    }
}

/// Removes what may be a login from a text that may quote a configuration.
pub(super) fn without_logins(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(without_login).collect();
    lines.join("\n")
}

fn without_login(line: &str) -> String {
    const NESTED: &str = "listen_url=";
    if let Some(at) = line.find(NESTED) {
        let (before, url) = line.split_at(at + NESTED.len());
        let end = url.find(['&', '"', '\'', '`', ' ']).unwrap_or(url.len());
        return format!("{}…{}", without_login(before.trim_end_matches(NESTED)), &url[end..]);
    }
    let colon = line.find("://").map(|at| at + 2).or_else(|| line.find(':'));
    match (colon, line.rfind('@')) {
        (Some(colon), Some(at)) if colon < at => {
            format!("{}…{}", &line[..=colon], &line[at..])
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_login_and_options() {
        for (url, shown) in [
            ("memory:", "memory:"),
            ("file:./data?cache_bytes=1MiB", "file:./data?cache_bytes=1MiB"),
            ("redis://localhost", "redis://localhost"),
            ("redis://:canary@h:6379/0?timeout=1s", "redis://h:6379/0"),
            ("rediss-cluster://u:canary@a:1,b:2", "rediss-cluster://a:1,b:2"),
            ("postgres://u:canary@[::1]:5432/db", "postgres://[::1]:5432/db"),
            ("postgres://h/db?listen_url=postgres%3A%2F%2Fu%3Acanary%40h", "postgres://h/db"),
            // Passwords that were not escaped.
            ("postgres://u:can@ary@h/db", "postgres://h/db"),
            ("postgres://u:can/ary@h/db", "postgres://h/db"),
            ("redis://u:canary?x@h/db", "redis:…"),
            ("redis://u@x:canary?x@h/db", "redis:…"),
            ("redis://:canary", "redis:…"),
            ("redis:canary@h", "redis:…"),
            ("canary", "…"),
            ("radish://u:canary@h", "…"),
        ] {
            let url = StoreUrl::from(url);
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("canary"));
        }
    }

    #[test]
    fn the_time_for_a_call_is_the_stores_or_the_one_in_its_url() {
        let timeout = |url: &str| StoreUrl::from(url).call_timeout();
        assert_eq!(timeout("file:./data"), None);
        assert_eq!(timeout("redis://h"), Some(Duration::from_secs(2)));
        assert_eq!(timeout("redis://h?prefix=a&timeout=500ms"), Some(Duration::from_millis(500)));
        assert_eq!(timeout("postgres://h/d?call_timeout=5s"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn quoted_lines_lose_their_logins() {
        for text in [
            "3 | url = \"redis://:canary@host\"\n  |   ^",
            "invalid: postgres://u:canary@h, expected more",
            "url = \"redis:canary@h\"",
            "url = \"postgres://u:canary@h/d?listen_url=postgres%3A%2F%2Fu%3Acanary%40h&a=b\"",
        ] {
            let shown = without_logins(text);
            assert!(!shown.contains("canary"), "{shown}");
            assert_eq!(shown.lines().count(), text.lines().count());
        }
    }
}
