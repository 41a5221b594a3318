//! What is possible, and probably not meant.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use onceward_core::{Clock as _, Disposition, SystemAmbient};

use super::rules::{CompletionLost, KeyFormat, Lapse, Mode, RuleSettings, StoreDown};
use super::{Caps, Config, Owner, Seconds, Store, StoreKind};

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

/// A lease is renewed at a third of it: a call that takes longer leaves no second try.
const RENEWALS: u32 = 3;

/// All warnings about a configuration.
pub fn lint(config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| {
        warnings.push(Warning { setting: setting.into(), why });
    };
    if let Some((setting, why)) = store_of(&config.store) {
        warn(setting, why.into());
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
    for (name, owner) in [("tenant", &config.scope.tenant), ("caller", &config.scope.caller)] {
        if owner == &Some(Owner::EachCredential) {
            warn(
                &format!("scope.{name}"),
                "a retry under a new token, signature or cookie is a new caller's request and \
                 runs again; use \"credentials\", which refuses it, or name callers by something \
                 that stays: { claim = \"sub\" }, { header_digest = \"x-api-key\" }"
                    .into(),
            );
        }
    }
    if config.scope.caller == Some(Owner::Credentials)
        && !config.scope.single_tenant
        && config.listeners.iter().any(|listener| !listener.address.ip().is_loopback())
    {
        warn(
            "scope.caller",
            "callers are not told apart: a retry under a refreshed token or a new signature is \
             refused (403), and so is a key that another caller has used; if that can happen, \
             name callers by something that stays: { claim = \"sub\" }, \
             { header_digest = \"x-api-key\" }, { cookie_digest = \"session\" }"
                .into(),
        );
    }
    for (setting, why) in quotas_of(config) {
        warn(setting, why.into());
    }
    if let Some(since) = config.resolver.as_ref().and_then(|resolver| resolver.since)
        && since.0 > SystemAmbient::new().now()
    {
        warn("resolver.since", format!("{since} is to come: until then no key is freed"));
    }
    let mut rules = |place: &str, rules: &RuleSettings| {
        rules_of(place, rules, config).into_iter().for_each(|it| warn(&it.setting, it.why));
    };
    rules("defaults", &config.defaults);
    for operation in &config.operations {
        let name = operation.name.as_deref().unwrap_or(&operation.route);
        rules(&format!("operation {name}"), &operation.settings(&config.defaults));
    }
    for operation in &config.operations {
        if let Some(segment) = literal_parameter(&operation.route) {
            let (name, route) = (operation.name.as_deref(), &operation.route);
            let setting = format!("operation {}.route", name.unwrap_or(route));
            warn(&setting, told_literal(route, segment));
        }
    }
    warnings.dedup();
    warnings
}

/// A part of a route that is a parameter in other routers, and stands for itself here.
fn literal_parameter(route: &str) -> Option<&str> {
    let named = |it: &&str| it.len() > 1 && it.starts_with([':', '*']);
    route.split('/').find(named)
}

fn told_literal(route: &str, segment: &str) -> String {
    let name = &segment[1..];
    let star = if segment.starts_with('*') { "*" } else { "" };
    format!(
        "{route:?} matches {segment:?} letter by letter; for any value there, write \
         \"{{{star}{name}}}\""
    )
}

/// Shorter keys can be tried one by one.
const KEY_CHARS_UNGUESSABLE: usize = 16;

/// Whether a caller can get the response of another by guessing its key.
fn guessable(rules: &RuleSettings, config: &Config) -> bool {
    let scope = &config.scope;
    let shared = scope.single_tenant || matches!(scope.caller, None | Some(Owner::Fixed(_)));
    let any = rules.key_format != Some(KeyFormat::Uuid);
    shared && any && rules.key_min.unwrap_or(1) < KEY_CHARS_UNGUESSABLE
}

/// A status after which a request may have had its effect, and which frees its key all the same.
fn released_error(rules: &RuleSettings) -> Option<StatusCode> {
    let outcomes = rules.rules().outcomes;
    let statuses = (500..600).filter_map(|code| StatusCode::from_u16(code).ok());
    let mut released = statuses.filter(|it| outcomes.disposition(*it) == Disposition::Release);
    released.next()
}

fn store_of(store: &Store) -> Option<(&'static str, &'static str)> {
    match (store.url.kind()?, store.replicas) {
        (StoreKind::Memory, true) => Some((
            "store.url",
            "every replica has a memory of its own, so a retry that reaches another one runs \
             again; use a store that they share",
        )),
        (StoreKind::Memory, false) => Some((
            "store.url",
            "a restart forgets all keys, and retries after it run again; use \
             file:./onceward-data",
        )),
        (StoreKind::Embedded, true) => Some((
            "store.replicas",
            "a directory belongs to one process: a second gateway will not start on it; use \
             a store that they share, such as postgres:",
        )),
        (StoreKind::Embedded, false) | (StoreKind::Redis | StoreKind::Postgres, _) => None,
    }
}

fn quotas_of(config: &Config) -> Vec<(&'static str, &'static str)> {
    let (caller, total) = (config.quotas.caller(), config.quotas.total);
    let mut warnings = Vec::new();
    if config.scope.single_tenant && caller != Caps::NONE {
        warnings.push((
            "quotas",
            "with scope.single_tenant all callers are one, and only [quotas.total] counts",
        ));
    }
    for (setting, caps) in
        [("quotas.new_keys_burst", caller), ("quotas.total.new_keys_burst", total)]
    {
        if caps.new_keys_burst > 0 && caps.new_keys_per_second == 0 {
            warnings.push((setting, "it limits nothing without new_keys_per_second"));
        }
    }
    warnings
}

fn rules_of(place: &str, rules: &RuleSettings, config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| {
        warnings.push(Warning { setting: format!("{place}.{setting}"), why });
    };
    if rules.mode == Some(Mode::Shadow) {
        warn("mode", "requests are only observed: retries run again".into());
    }
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
    if let (Some(lease), Some(call)) = (rules.lease, config.store.url.call_timeout())
        && lease.0 < call * RENEWALS
    {
        let (call, least) = (Seconds(call), Seconds(call * RENEWALS));
        warn(
            "lease",
            format!(
                "one call to the store may take {call}, so a lease of {lease} can lapse before \
                 it is renewed; make it at least {least}"
            ),
        );
    }
    if let Some(status) = released_error(rules) {
        warn(
            "outcomes",
            format!(
                "{status} frees the key, and a retry runs again although the first may have had \
                 its effect; let the service say `Onceward-Outcome: release` where it had none"
            ),
        );
    }
    if rules.on_lapse == Some(Lapse::Takeover) {
        warn(
            "on_lapse",
            "after a crash a retry runs again beside what is left of the first; only for effects \
             that check Onceward-Fence or are idempotent by Onceward-Operation"
                .into(),
        );
    }
    if guessable(rules, config) {
        warn(
            "key_min",
            format!(
                "callers are not told apart, and a short key can be guessed, which gives its stored \
                 response away; set key_min = {KEY_CHARS_UNGUESSABLE} or key_format = \"uuid\""
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
        for url in ["redis://h", "redis-cluster://a,b", "postgres://h/d"] {
            let text = format!("[store]\nurl = \"{url}\"\nreplicas = true");
            assert_eq!(warned(&text), [""; 0], "{url}");
        }
    }

    #[test]
    fn colons_that_are_no_parameters_are_left_alone() {
        for route in ["/orders/{id}", "/orders/{id}:pay", "/orders:batch", "/files/{*path}"] {
            assert_eq!(warned(&format!("[[operations]]\nroute = \"{route}\"")), [""; 0], "{route}");
        }
    }

    #[test]
    fn each_unwise_setting_is_named() {
        for (text, setting) in [
            ("[store]\nurl = \"memory:\"", "store.url"),
            ("[store]\nurl = \"memory:\"\nreplicas = true", "store.url"),
            ("[store]\nreplicas = true", "store.replicas"),
            (
                "[store]\nurl = \"redis://h?timeout=9s\"\n[defaults]\nlease = \"25s\"",
                "defaults.lease",
            ),
            (
                "[store]\nurl = \"postgres://h/d?call_timeout=10s\"\n[defaults]\nlease = \"29s\"",
                "defaults.lease",
            ),
            ("[scope]\nsingle_tenant = true\n[defaults]\nkey_min = 16", "scope.single_tenant"),
            ("[scope]\ncaller = { fixed = \"shop\" }", "defaults.key_min"),
            ("[defaults]\non_lapse = \"takeover\"", "defaults.on_lapse"),
            ("[defaults]\noutcomes = { \"500\" = \"release\" }", "defaults.outcomes"),
            ("[defaults]\noutcomes = { \"5xx\" = \"release\" }", "defaults.outcomes"),
            ("[defaults]\noutcomes = \"success-only\"", "defaults.outcomes"),
            ("[[operations]]\nroute = \"/orders/:id\"", "operation /orders/:id.route"),
            ("[[operations]]\nroute = \"/files/*path\"", "operation /files/*path.route"),
            (
                "[resolver]\nsince = \"2126-01-01T00:00:00Z\"\n\
                 [resolver.http]\nurl = \"/o/{operation}\"",
                "resolver.since",
            ),
            ("[scope]\ncaller = \"each_credential\"", "scope.caller"),
            ("[[listeners]]\naddress = \"0.0.0.0:8080\"", "scope.caller"),
            ("[scope]\ncaller = { header = \"x-user\" }", "scope.caller"),
            ("[quotas]\nnew_keys_burst = 9", "quotas.new_keys_burst"),
            ("[quotas.total]\nnew_keys_burst = 9", "quotas.total.new_keys_burst"),
            ("[defaults]\nttl = \"1h\"", "defaults.ttl"),
            ("[defaults]\nlease = \"10s\"", "defaults.lease"),
            ("[defaults]\nmode = \"shadow\"", "defaults.mode"),
            ("[defaults]\nstore_down = \"open\"", "defaults.store_down"),
            ("[[operations]]\nroute = \"/a\"\nttl = \"1h\"", "operation /a.ttl"),
        ] {
            assert_eq!(warned(text), [setting], "{text}");
        }
    }
}
