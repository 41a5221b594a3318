//! Checks the rules of operations, and names the setting that is wrong.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    BoxError, Engine, Finding, InvalidPolicy, MemoryStore, Record, Recovery, Resolver, Verdict,
};
use onceward_http::{InvalidLayer, Onceward};

use super::{Config, ConfigError, Operation, RuleSettings, Seconds};

/// A section with rules.
#[derive(Clone, Copy)]
pub(super) enum RuleSection<'c> {
    /// `[defaults]`.
    Defaults,
    /// An entry of `[[operations]]`, counted from 0.
    Operation(usize, &'c Operation),
}

impl RuleSection<'_> {
    /// A setting with its section, such as `operations[2].lease (orders.create)`.
    pub(super) fn setting(self, name: &str) -> String {
        self.path(&format!(".{name}"))
    }

    fn path(self, setting: &str) -> String {
        match self {
            Self::Defaults => format!("defaults{setting}"),
            Self::Operation(number, operation) => {
                let label = operation.name.as_deref().unwrap_or(&operation.route);
                format!("operations[{number}]{setting} ({label})")
            }
        }
    }
}

impl Config {
    /// Checks the rules of each operation as the layer does, which does not know where they are
    /// set.
    pub(crate) fn check_rules(&self) -> Result<(), ConfigError> {
        let store = Arc::new(MemoryStore::new());
        let mut engine = Engine::builder(store.clone());
        if self.resolver.is_some() {
            engine = engine.recovery(Recovery::new(store, Arc::new(NotAsked)));
        }
        let engine = engine.build();
        let layer = || Onceward::layer(engine.clone()).single_tenant();
        if self.protect_others {
            let built = layer().others(self.defaults.rules()).build();
            let defaults = Context { section: RuleSection::Defaults, own: &self.defaults };
            built.map_err(|error| defaults.explain(&error))?;
        }
        for (number, operation) in self.operations.iter().enumerate() {
            let protected = operation.protected(&self.defaults);
            let built = layer().only_named().operation(protected).build();
            let own = &operation.settings(&RuleSettings::default());
            let section = RuleSection::Operation(number, operation);
            built.map_err(|error| Context { section, own }.explain(&error))?;
        }
        Ok(())
    }
}

/// Stands for the configured resolver: the rules need one, and ask nothing while they are checked.
struct NotAsked;

#[async_trait]
impl Resolver for NotAsked {
    async fn resolve(&self, _: &Record) -> Result<Finding, BoxError> {
        Ok(Verdict::StillUnknown.into())
    }
}

/// The section whose rules are checked, and the settings that it sets itself.
struct Context<'c> {
    section: RuleSection<'c>,
    own: &'c RuleSettings,
}

impl Context<'_> {
    fn explain(&self, error: &InvalidLayer) -> ConfigError {
        ConfigError::Invalid(match error {
            InvalidLayer::Policy(policy) => self.explain_policy(policy),
            InvalidLayer::Header(_) => self.at("response_headers_keep", error),
            InvalidLayer::KeyLength { max, .. } => {
                let too_long = *max > onceward_core::KEY_CHARS_MAX;
                self.at(if too_long { "key_max" } else { "key_min" }, error)
            }
            InvalidLayer::RetryAfter { delay, ttl } => self.explain_retry_after(*delay, *ttl),
            InvalidLayer::Name { .. } => self.at("name", error),
            InvalidLayer::Route { .. } => self.at("route", error),
            other => format!("{}: {other}", self.section.path("")),
        })
    }

    fn explain_policy(&self, error: &InvalidPolicy) -> String {
        match *error {
            InvalidPolicy::OutOfRange { setting, value, min, max } => {
                let [value, min, max] = [value, min, max].map(Seconds);
                self.at(setting_of(setting), format!("{value} is not between {min} and {max}"))
            }
            InvalidPolicy::LeaseLongerThanRetention { lease, retention } => {
                let [lease, ttl] = [lease, retention].map(Seconds);
                if self.own.ttl.is_some() && self.own.lease.is_none() {
                    self.at("ttl", format!("{ttl} is shorter than the lease ({lease}); raise it"))
                } else {
                    self.at("lease", format!("{lease} is longer than ttl ({ttl}); shorten it"))
                }
            }
            _ => self.at("ttl", error),
        }
    }

    fn explain_retry_after(&self, delay: Duration, ttl: Duration) -> String {
        let (delay, ttl) = (Seconds(delay), Seconds(ttl));
        if delay <= ttl {
            return self.at("retry_after", format!("{delay} is shorter than 1s; raise it"));
        }
        if self.own.ttl.is_some() && self.own.retry_after.is_none() {
            return self
                .at("ttl", format!("{ttl} is shorter than retry_after ({delay}); raise it"));
        }
        let why = "a retry that waits this long runs again; shorten it";
        self.at("retry_after", format!("{delay} is longer than ttl ({ttl}): {why}"))
    }

    /// An error with its setting: in `[defaults]` if the operation does not set it itself.
    fn at(&self, setting: &str, why: impl std::fmt::Display) -> String {
        let section = if self.sets(setting) { self.section } else { RuleSection::Defaults };
        format!("{}: {why}", section.setting(setting))
    }

    fn sets(&self, setting: &str) -> bool {
        match setting {
            "lease" => self.own.lease.is_some(),
            "ttl" => self.own.ttl.is_some(),
            "retry_after" => self.own.retry_after.is_some(),
            "wait_max" => self.own.wait_max.is_some(),
            "tombstone" => self.own.tombstone.is_some(),
            "reference_ttl" => self.own.reference_ttl.is_some(),
            "key_min" => self.own.key_min.is_some(),
            "key_max" => self.own.key_max.is_some(),
            "response_headers_keep" => self.own.response_headers_keep.is_some(),
            // Only operations have it.
            _ => true,
        }
    }
}

/// The setting that a duration of the engine's policy comes from.
fn setting_of(policy: &str) -> &str {
    match policy {
        "retention" => "ttl",
        "wait" => "wait_max",
        "reference_retention" => "reference_ttl",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn error(text: &str) -> String {
        let config = Config::parse(text, Path::new("onceward.toml")).unwrap();
        config.check_rules().unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_setting_where_it_is_set() {
        for (text, expected) in [
            ("lease = \"2days\"", "defaults.lease: 2days is not between 10ms and 1day"),
            ("lease = \"2h\"\nttl = \"1h\"", "defaults.lease: 2h is longer than ttl (1h)"),
            ("ttl = \"20years\"", "defaults.ttl: 20years is not between"),
            ("retry_after = \"999ms\"", "defaults.retry_after: 999ms is shorter than 1s"),
            (
                "retry_after = \"2days\"\nttl = \"7days\"",
                "defaults.retry_after: 2days is not between",
            ),
            (
                "retry_after = \"2h\"\nttl = \"1h\"",
                "defaults.retry_after: 2h is longer than ttl (1h): a retry that waits this long runs",
            ),
            ("key_min = 9\nkey_max = 3", "defaults.key_min: "),
            ("key_max = 300", "defaults.key_max: "),
            ("response_headers_keep = [\"Set-Cookie\"]", "defaults.response_headers_keep: "),
            ("in_progress = \"wait\"\nwait_max = \"1h\"", "defaults.wait_max: 1h is not between"),
        ] {
            let error = error(&format!("[defaults]\n{text}"));
            assert!(error.starts_with(expected), "{text} gave {error}");
        }
        let operation = "[[operations]]\nroute = \"/a\"\n[[operations]]\nroute = \"/b\"\n";
        let own = error(&format!("{operation}name = \"pay\"\nlease = \"2days\""));
        assert!(own.starts_with("operations[1].lease (pay): 2days"), "{own}");
        let inherited = "protect_others = false\n[defaults]\nlease = \"2days\"\n";
        let inherited = error(&format!("{inherited}{operation}"));
        assert!(inherited.starts_with("defaults.lease: 2days"), "{inherited}");
        let own = error(&format!("{operation}ttl = \"10s\""));
        assert!(own.starts_with("operations[1].ttl (/b): 10s is shorter than the lease"), "{own}");
        let inherited = "protect_others = false\n[defaults]\nretry_after = \"2h\"\n";
        let own = error(&format!("{inherited}{operation}ttl = \"1h\""));
        assert!(
            own.starts_with("operations[1].ttl (/b): 1h is shorter than retry_after (2h)"),
            "{own}"
        );
        let pointer = error(&format!("{operation}fingerprint_include = [\"a\"]"));
        assert!(pointer.starts_with("operations[1] (/b): "), "{pointer}");
        let route = error("[[operations]]\nroute = \"/a/{b\"");
        assert!(route.starts_with("operations[0].route (/a/{b): "), "{route}");
    }
}
