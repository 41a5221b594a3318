//! What is possible, and probably not meant.

use std::fmt;
use std::time::Duration;

use super::rules::{CompletionLost, RuleSettings, StoreDown};
use super::{Config, Owner, Seconds};

/// Something that works and may do harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The setting, as it is written.
    pub setting: String,
    /// What can happen, and what to do.
    pub why: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.why)
    }
}

/// For how long careful clients go on retrying, and people press the button again.
const RETRY_HORIZON: Duration = Duration::from_secs(24 * 3600);

/// All warnings about a configuration.
pub fn lint(config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| {
        warnings.push(Warning { setting: setting.into(), why });
    };
    if config.store.url.starts_with("memory:") {
        if config.store.replicas {
            warn(
                "store.url",
                "every replica has a memory of its own, so a retry that reaches \
                another one runs again; use a store that they share"
                    .into(),
            );
        } else {
            warn(
                "store.url",
                "a restart forgets all keys, and retries after it run again; use \
                file:./onceward-data"
                    .into(),
            );
        }
    }
    if config.store.url.starts_with("file:") && config.store.replicas {
        warn(
            "store.replicas",
            "a directory belongs to one process: a second gateway will not \
            start on it"
                .into(),
        );
    }
    if config.scope.single_tenant {
        warn(
            "scope.single_tenant",
            "everybody who can reach the gateway shares one space of \
            keys, and gets the stored responses of the others for their keys"
                .into(),
        );
    }
    for (name, owner) in [("tenant", &config.scope.tenant), ("caller", &config.scope.caller)] {
        if matches!(owner, Some(Owner::Header(_))) && config.scope.trusted_peers.0.is_empty() {
            warn(
                &format!("scope.{name}"),
                "it is taken from a header, and no peer is trusted to \
                set it: all requests will be refused; set scope.trusted_peers"
                    .into(),
            );
        }
    }
    let mut rules = |place: &str, rules: &RuleSettings| {
        rules_of(place, rules, config).into_iter().for_each(|it| warn(&it.setting, it.why));
    };
    rules("defaults", &config.defaults);
    for operation in &config.operations {
        let name = operation.name.as_deref().unwrap_or(&operation.route);
        rules(&format!("operation {name}"), &operation.settings(&config.defaults));
    }
    warnings.dedup();
    warnings
}

fn rules_of(place: &str, rules: &RuleSettings, config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| {
        warnings.push(Warning { setting: format!("{place}.{setting}"), why });
    };
    if let Some(ttl) = rules.ttl
        && ttl.0 < RETRY_HORIZON
    {
        let horizon = Seconds(RETRY_HORIZON);
        warn(
            "ttl",
            format!(
                "after {ttl} a retry runs again, and clients retry for {horizon} and \
            longer; keep responses at least that long"
            ),
        );
    }
    let longest = config.upstream.response_timeout;
    if let Some(lease) = rules.lease
        && lease <= longest
    {
        warn(
            "lease",
            format!(
                "{lease} is not longer than upstream.response_timeout ({longest}): \
            if the gateway stands still meanwhile, the outcome becomes unknown"
            ),
        );
    }
    if rules.store_down == Some(StoreDown::Open) {
        warn("store_down", "while the store is down, retries run again".into());
    }
    if rules.completion_lost == Some(CompletionLost::Fail) {
        warn("completion_lost", "a client gets an error for what was done".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn warned(text: &str) -> Vec<String> {
        let config = Config::parse(text, Path::new("onceward.toml")).unwrap();
        lint(&config).into_iter().map(|warning| warning.setting).collect()
    }

    #[test]
    fn the_defaults_are_wise() {
        assert_eq!(warned(""), [""; 0]);
    }

    #[test]
    fn each_unwise_setting_is_named() {
        for (text, setting) in [
            ("[store]\nurl = \"memory:\"", "store.url"),
            ("[store]\nurl = \"memory:\"\nreplicas = true", "store.url"),
            ("[store]\nreplicas = true", "store.replicas"),
            ("[scope]\nsingle_tenant = true", "scope.single_tenant"),
            ("[scope]\ncaller = { header = \"x-user\" }", "scope.caller"),
            ("[defaults]\nttl = \"1h\"", "defaults.ttl"),
            ("[defaults]\nlease = \"10s\"", "defaults.lease"),
            ("[defaults]\nstore_down = \"open\"", "defaults.store_down"),
            ("[[operations]]\nroute = \"/a\"\nttl = \"1h\"", "operation /a.ttl"),
        ] {
            assert_eq!(warned(text), [setting], "{text}");
        }
    }
}
