//! `[claims]`: the claims API for workers in any language.

use std::net::SocketAddr;

use onceward_core::Retention;
use serde::Deserialize;

use super::values::{Bytes, Seconds};
use super::{ConfigError, Token, invalid};

/// The claims API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Default lease of a claim.
    pub lease: Seconds,
    /// Shortest lease that a worker may request. Below it, renewals are most of the traffic.
    pub lease_min: Seconds,
    /// Longest lease that a worker may request: how long a crash stays unnoticed.
    pub lease_max: Seconds,
    /// Retention of results.
    pub ttl: Seconds,
    /// How long after `ttl` a key is answered as expired; without it, the key is new.
    pub tombstone: Option<Seconds>,
    /// Largest request.
    pub request_max_bytes: Bytes,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8090)),
            lease: Seconds::new(30),
            lease_min: Seconds::new(1),
            lease_max: Seconds::new(3600),
            ttl: Seconds::new(24 * 3600),
            tombstone: None,
            request_max_bytes: Bytes(10 << 20),
        }
    }
}

impl Claims {
    /// Retention of results and tombstones.
    pub(crate) fn retention(&self) -> Retention {
        let tombstone = self.tombstone.map(|it| it.0).unwrap_or_default();
        Retention { keep: self.ttl.0, tombstone }
    }

    pub(super) fn check(&self, tokens: &[Token]) -> Result<(), ConfigError> {
        let Self { lease, lease_min, lease_max, ttl, .. } = self;
        if tokens.is_empty() {
            return invalid(
                "claims: without tokens, anyone could claim; add [[tokens]] with name, \
                 role = \"worker\" and secret_env",
            );
        }
        if !(lease_min..=lease_max).contains(&lease) {
            return invalid(format!(
                "claims.lease: {lease} is not between lease_min ({lease_min}) and lease_max \
                 ({lease_max})"
            ));
        }
        if lease_max > ttl {
            return invalid(format!(
                "claims.lease_max: {lease_max} is longer than ttl ({ttl}), so a claim could outlive \
                 its result; shorten it, or raise claims.ttl"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    const TOKEN: &str = "[[tokens]]\nname = \"w\"\nrole = \"worker\"\nsecret_env = \"T\"\n";

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("onceward.toml"))
    }

    #[test]
    fn without_tokens_nobody_could_be_kept_out() {
        let told = parse("[claims]\n").unwrap_err().to_string();
        assert!(told.contains("[[tokens]]"), "{told}");
        let config = parse(&format!("[claims]\n{TOKEN}")).unwrap();
        assert_eq!(config.claims, Some(Claims::default()));
    }

    #[test]
    fn a_lease_that_cannot_be_is_told_with_its_limits() {
        let told = parse(&format!("[claims]\nlease = \"2h\"\n{TOKEN}")).unwrap_err().to_string();
        assert!(told.contains("2h") && told.contains("lease_max (1h)"), "{told}");
        let told = parse(&format!("[claims]\nttl = \"1m\"\n{TOKEN}")).unwrap_err().to_string();
        assert!(told.contains("ttl (1m)"), "{told}");
    }

    /// The section is off by default, so it is a comment there.
    #[test]
    fn the_reference_shows_the_defaults() {
        let section = crate::config::REFERENCE.split("# [claims]\n").nth(1).unwrap();
        let shown: String = section
            .lines()
            .take_while(|line| !line.is_empty())
            .filter(|line| line.contains(" = ") && !line.contains("tombstone"))
            .map(|line| format!("{}\n", line.trim_start_matches("# ")))
            .collect();
        let config = parse(&format!("[claims]\n{shown}{TOKEN}")).unwrap();
        assert_eq!(config.claims, Some(Claims::default()), "{shown}");
    }
}
