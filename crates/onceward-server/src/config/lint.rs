//! Warnings: settings that are valid, and probably not what was meant.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use onceward_core::{Clock as _, Disposition, OnLapse, ReplayCheck, SystemAmbient};
use onceward_http::{CompletionLost, KeyFormat, Mode, StoreDown};

use super::rule_check::RuleSection;
use super::rules::RuleSettings;
use super::{
    ArchiveSetting, Config, DimensionSource, HomeSource, Others, QuotaLimits, Region, Resolver,
    Scope, ScopeSource, Seconds, Store, StoreKind, Unnamed, Upstream,
};

/// A setting that is valid and may do harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The setting with its section, such as `defaults.ttl`.
    pub setting: String,
    /// The possible consequence, and the fix.
    pub why: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.why)
    }
}

/// How long careful clients retry, and people press the button again.
const RETRY_HORIZON: Duration = Duration::from_secs(24 * 3600);

/// Longest `Retry-After` that common client libraries heed (stripe-node, stripe-python: 60 s).
const RETRY_AFTER_HEEDED: Duration = Duration::from_secs(60);

/// A lease is renewed at a third of its length: a slower store call leaves no second try.
const RENEWALS: u32 = 3;

/// All warnings about a configuration.
pub fn lint(config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| {
        warnings.push(Warning { setting: setting.into(), why });
    };
    if let Some((setting, why)) = store_warning(&config.store) {
        warn(setting, why.into());
    }
    if keeps_plain_responses(&config.store) {
        warn(
            "store.archive",
            "responses are archived without encryption and without an end, and may contain personal \
             data; add ?outcomes=false, or seal them: store.sealing_keys_file"
                .into(),
        );
    }
    if config.scope.single_tenant {
        warn(
            "scope.single_tenant",
            "all clients share their keys, so each can get the stored responses of the others"
                .into(),
        );
    }
    for (name, owner) in [("tenant", &config.scope.tenant), ("caller", &config.scope.caller)] {
        if matches!(owner, Some(ScopeSource::Header(_))) && config.scope.trusted_peers.0.is_empty()
        {
            warn(
                &format!("scope.{name}"),
                "comes from a header, and no peer is trusted to set it, so every request will be \
                 refused; set scope.trusted_peers"
                    .into(),
            );
        }
    }
    for (name, owner) in [("tenant", &config.scope.tenant), ("caller", &config.scope.caller)] {
        if owner == &Some(ScopeSource::EachCredential) {
            warn(
                &format!("scope.{name}"),
                "a retry under a new token, signature or cookie counts as a new caller's request \
                 and runs again; use \"credentials\", which refuses it, or something that stays \
                 the same: { claim = \"sub\" }, { header_digest = \"x-api-key\" }"
                    .into(),
            );
        }
    }
    if config.scope.caller == Some(ScopeSource::Credentials)
        && !config.scope.single_tenant
        && config.listeners.iter().any(|listener| !listener.address.ip().is_loopback())
    {
        warn(
            "scope.caller",
            "callers are not told apart: a retry under a refreshed token or a new signature is \
             refused (403), and so is a key that another caller has used; if that can happen, \
             use something that stays the same: { claim = \"sub\" }, \
             { header_digest = \"x-api-key\" }, { cookie_digest = \"session\" }"
                .into(),
        );
    }
    for (setting, why) in dimension_warnings(&config.scope) {
        warn(setting, why.into());
    }
    if let Some(region) = &config.region {
        for (setting, why) in region_warnings(region, &config.upstream) {
            warn(&setting, why);
        }
    }
    for (setting, why) in quota_warnings(config) {
        warn(setting, why.into());
    }
    if let Some(since) = config.resolver.as_ref().and_then(|resolver| resolver.since)
        && since.0 > SystemAmbient::new().now()
    {
        warn("resolver.since", format!("{since} is in the future; until then, no key is freed"));
    }
    warnings.extend(all_rule_warnings(config));
    warnings
}

/// Warnings about the rules. One about a default is reported there, once, and not again for each
/// operation that inherits it.
fn all_rule_warnings(config: &Config) -> Vec<Warning> {
    let defaults = rule_warnings(&config.defaults, &config.defaults, config);
    let mut warnings: Vec<_> = defaults.iter().map(|it| it.at(RuleSection::Defaults)).collect();
    for (number, operation) in config.operations.iter().enumerate() {
        let section = RuleSection::Operation(number, operation);
        let own = operation.settings(&RuleSettings::default());
        let rules = operation.settings(&config.defaults);
        let of_operation = rule_warnings(&rules, &own, config).into_iter();
        let reported_before =
            |it: &RuleWarning| !it.own && defaults.iter().any(|one| one.why == it.why);
        warnings.extend(of_operation.filter(|it| !reported_before(it)).map(|it| it.at(section)));
    }
    for (number, operation) in config.operations.iter().enumerate() {
        if let Some(segment) = literal_parameter(&operation.route) {
            let setting = RuleSection::Operation(number, operation).setting("route");
            warnings.push(Warning { setting, why: literal_warning(&operation.route, segment) });
        }
    }
    warnings
}

/// A segment of a route that is a parameter in other routers, and literal here.
fn literal_parameter(route: &str) -> Option<&str> {
    let named = |it: &&str| it.len() > 1 && it.starts_with([':', '*']);
    route.split('/').find(named)
}

fn literal_warning(route: &str, segment: &str) -> String {
    let name = &segment[1..];
    let star = if segment.starts_with('*') { "*" } else { "" };
    format!(
        "{route:?} matches {segment:?} literally; to match any value, write \"{{{star}{name}}}\""
    )
}

/// Keys shorter than this can be guessed by trying.
const KEY_CHARS_UNGUESSABLE: usize = 16;

/// Returns whether a caller can get another's response by guessing its key.
fn guessable(rules: &RuleSettings, config: &Config) -> bool {
    let scope = &config.scope;
    let shared = scope.single_tenant || matches!(scope.caller, None | Some(ScopeSource::Fixed(_)));
    let any = rules.key_format != Some(KeyFormat::Uuid);
    shared && any && rules.key_min.unwrap_or(1) < KEY_CHARS_UNGUESSABLE
}

/// A status that frees the key although the request may have had its effect.
fn released_error(rules: &RuleSettings) -> Option<StatusCode> {
    let outcomes = rules.rules().outcomes;
    let statuses = (500..600).filter_map(|code| StatusCode::from_u16(code).ok());
    let mut released = statuses.filter(|it| outcomes.disposition(*it) == Disposition::Release);
    released.next()
}

/// Returns whether responses are archived that are not sealed.
fn keeps_plain_responses(store: &Store) -> bool {
    let sealed = store.sealing_keys_file.is_some() || store.sealing_keys_env.is_some();
    let archive = &store.archive;
    matches!(archive, Some(ArchiveSetting::Directory { outcomes: true, .. })) && !sealed
}

fn store_warning(store: &Store) -> Option<(&'static str, &'static str)> {
    match (store.url.kind()?, store.replicas) {
        (StoreKind::Memory, true) => Some((
            "store.url",
            "each replica has its own memory, so a retry that reaches another replica runs again; \
             use a store that they share",
        )),
        (StoreKind::Memory, false) => Some((
            "store.url",
            "a restart forgets all keys, and retries after it run again; use \
             file:./onceward-data",
        )),
        (StoreKind::Embedded, true) => Some((
            "store.replicas",
            "a directory belongs to one process, so a second gateway will not start on it; use a \
             store that they share, such as postgres:",
        )),
        (StoreKind::Embedded, false) | (StoreKind::Redis | StoreKind::Postgres, _) => None,
    }
}

/// Warnings about the optional parts of the scope: another value is another key, which runs.
fn dimension_warnings(scope: &Scope) -> Vec<(&'static str, &'static str)> {
    let varies = |source: &Option<DimensionSource>| {
        source.as_ref().is_some_and(|it| !matches!(it, DimensionSource::Fixed(_)))
    };
    let mut warnings = Vec::new();
    if varies(&scope.api_version) {
        warnings.push((
            "scope.api_version",
            "the same key under another version is another key and runs, so a client that is \
             upgraded between two attempts has two effects; use fingerprint_api_version, which \
             refuses such a retry",
        ));
    }
    if varies(&scope.parent) {
        warnings.push((
            "scope.parent",
            "the same key under another parent is another key and runs; right if clients number \
             their keys within a parent, else leave it out: a retry with another path is refused \
             anyway",
        ));
    }
    if scope.region.is_some() {
        warnings.push((
            "scope.region",
            "the same key in another region is another key and runs there too; to give each key \
             one region, use [region] instead",
        ));
    }
    let from_header = matches!(scope.region, Some(DimensionSource::Header { .. }));
    if from_header && scope.trusted_peers.0.is_empty() {
        warnings.push((
            "scope.region",
            "comes from a header, and no peer is trusted to set it, so no request has it; set \
             scope.trusted_peers",
        ));
    }
    warnings
}

/// Warnings about home regions.
fn region_warnings(region: &Region, upstream: &Upstream) -> Vec<(String, String)> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: String| warnings.push((setting.to_owned(), why));
    if region.unnamed == Unnamed::Here {
        let why = "a key that names no region runs in each region that it is sent to; use \
                   \"refuse\", or { home = \"…\" } with one region for all gateways";
        warn("region.unnamed", why.into());
    }
    if let HomeSource::Header(name) = &region.of_key {
        let why = format!(
            "a retry with another value of {} runs in another region, which knows nothing of the \
             first attempt; let the peer take it from something that never changes for a key, or \
             let keys begin with their region: {{ prefix_before = \"_\" }}",
            name.0
        );
        warn("region.of_key", why);
    }
    let (forwarded, own) = (region.response_timeout, upstream.response_timeout);
    if region.others == Others::Forward && forwarded <= own {
        let why = format!(
            "{forwarded} is not longer than upstream.response_timeout ({own}): if the other \
             gateways have the same, clients get a 504 before their home answers"
        );
        warn("region.response_timeout", why);
    }
    for (name, url) in &region.gateways {
        if region.others == Others::Forward && url.is_plain_and_remote() {
            let why = "http:// sends credentials unencrypted to another machine; use https://";
            warn(&format!("region.gateways.{}", name.as_str()), why.into());
        }
    }
    warnings
}

fn quota_warnings(config: &Config) -> Vec<(&'static str, &'static str)> {
    let (caller, total) = (config.quotas.caller(), config.quotas.total);
    let mut warnings = Vec::new();
    if config.scope.single_tenant && caller != QuotaLimits::NONE {
        warnings.push((
            "quotas",
            "with scope.single_tenant all clients are one caller, and only [quotas.total] and \
             key_requests_per_second apply",
        ));
    }
    for (setting, caps) in
        [("quotas.new_keys_burst", caller), ("quotas.total.new_keys_burst", total)]
    {
        if caps.new_keys_burst > 0 && caps.new_keys_per_second == 0 {
            warnings.push((setting, "has no effect without new_keys_per_second"));
        }
    }
    if config.quotas.key_requests_burst > 0 && config.quotas.key_requests_per_second == 0 {
        let why = "has no effect without key_requests_per_second";
        warnings.push(("quotas.key_requests_burst", why));
    }
    warnings
}

/// A warning about one rule.
struct RuleWarning {
    setting: &'static str,
    /// The section sets the setting itself.
    own: bool,
    why: String,
}

impl RuleWarning {
    fn at(&self, section: RuleSection<'_>) -> Warning {
        Warning { setting: section.setting(self.setting), why: self.why.clone() }
    }
}

/// Warnings about rules in force. `own` are those that the section sets itself.
fn rule_warnings(rules: &RuleSettings, own: &RuleSettings, config: &Config) -> Vec<RuleWarning> {
    let mut warnings = Vec::new();
    let mut warn = |setting, own, why: String| warnings.push(RuleWarning { setting, own, why });
    if rules.mode == Some(Mode::Shadow) {
        let why = "in shadow mode nothing is protected, so retries run again";
        warn("mode", own.mode.is_some(), why.into());
    }
    if let Some(ttl) = rules.ttl
        && ttl.0 < RETRY_HORIZON
    {
        let horizon = Seconds(RETRY_HORIZON);
        let why = format!(
            "after {ttl} a retry runs again, and clients retry for {horizon} and longer; keep \
             responses at least that long"
        );
        warn("ttl", own.ttl.is_some(), why);
    }
    let longest = config.upstream.response_timeout;
    if let Some(lease) = rules.lease
        && lease <= longest
    {
        let why = format!(
            "{lease} is not longer than upstream.response_timeout ({longest}): if the gateway \
             stalls for that long, the outcome becomes unknown"
        );
        warn("lease", own.lease.is_some(), why);
    }
    if let (Some(lease), Some(call)) = (rules.lease, config.store.url.call_timeout())
        && lease.0 < call * RENEWALS
    {
        let (call, least) = (Seconds(call), Seconds(call * RENEWALS));
        let why = format!(
            "one call to the store may take {call}, so a lease of {lease} can lapse before it is \
             renewed; make it at least {least}"
        );
        warn("lease", own.lease.is_some(), why);
    }
    if let Some(delay) = rules.retry_after
        && delay.0 > RETRY_AFTER_HEEDED
    {
        let heeded = Seconds(RETRY_AFTER_HEEDED);
        let why = format!(
            "{delay} is more than {heeded}, and client libraries such as Stripe's ignore such a \
             delay and retry sooner; shorten it"
        );
        warn("retry_after", own.retry_after.is_some(), why);
    }
    if rules.replay_check == Some(ReplayCheck::Resolver)
        && rules.reference.is_none()
        && config.resolver.as_ref().is_some_and(Resolver::asks_by_reference)
    {
        let why = "the [resolver] asks with {reference}, and there is no reference, so each retry \
                   gets 503; set reference, or let the resolver ask with {operation}";
        warn("replay_check", own.replay_check.is_some(), why.into());
    }
    if let Some(status) = released_error(rules) {
        let why = format!(
            "{status} frees the key, so a retry runs again although the first request may have \
             had its effect; let the service send `Onceward-Outcome: release` where it had none"
        );
        warn("outcomes", own.outcomes.is_some(), why);
    }
    if rules.on_lapse == Some(OnLapse::Takeover) {
        let why = "after a crash a retry runs while the first request may still be running; use it \
                   only for effects that check Onceward-Fence or are idempotent by \
                   Onceward-Operation";
        warn("on_lapse", own.on_lapse.is_some(), why.into());
    }
    if guessable(rules, config) {
        let why = format!(
            "callers are not told apart, so guessing a short key reveals its stored response; set \
             key_min = {KEY_CHARS_UNGUESSABLE} or key_format = \"uuid\""
        );
        warn("key_min", own.key_min.is_some(), why);
    }
    if rules.store_down == Some(StoreDown::Open) {
        let why = "while the store is down, retries run again";
        warn("store_down", own.store_down.is_some(), why.into());
    }
    if rules.completion_lost == Some(CompletionLost::Fail) {
        let why = "a client may get an error for a request that succeeded";
        warn("completion_lost", own.completion_lost.is_some(), why.into());
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
        for archive in ["file:./archive?outcomes=false", "off"] {
            let text = format!("[store]\narchive = \"{archive}\"");
            assert_eq!(warned(&text), [""; 0], "{archive}");
        }
        let sealed = "[store]\narchive = \"file:./archive\"\nsealing_keys_file = \"keys\"";
        assert_eq!(warned(sealed), [""; 0]);
        for url in ["redis://h", "redis-cluster://a,b", "postgres://h/d"] {
            let text = format!("[store]\nurl = \"{url}\"\nreplicas = true");
            assert_eq!(warned(&text), [""; 0], "{url}");
        }
    }

    #[test]
    fn a_warning_is_given_once_where_its_setting_is() {
        let operations = "[[operations]]\nroute = \"/a\"\n[[operations]]\nroute = \"/b\"\n";
        let inherited = format!("[defaults]\nttl = \"1h\"\nlease = \"10s\"\n{operations}");
        assert_eq!(warned(&inherited), ["defaults.ttl", "defaults.lease"]);
        let own = format!("[defaults]\nttl = \"1h\"\n{operations}name = \"pay\"\nttl = \"2h\"");
        assert_eq!(warned(&own), ["defaults.ttl", "operations[1].ttl (pay)"]);
        // The default itself is safe.
        let guessable =
            "[scope]\ncaller = { fixed = \"shop\" }\n[defaults]\nkey_format = \"uuid\"\n";
        let guessable = format!("{guessable}{operations}key_format = \"any\"");
        assert_eq!(warned(&guessable), ["operations[1].key_min (/b)"]);
    }

    #[test]
    fn a_check_before_replays_is_wise_with_what_its_resolver_asks_with() {
        let checked = "[defaults]\nreplay_check = \"resolver\"\n";
        for (more, url) in
            [("", "/p/{operation}"), ("reference = { header = \"x-ref\" }\n", "/p/{reference}")]
        {
            let text = format!("{checked}{more}[resolver.http]\nurl = \"{url}\"");
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
    fn a_constant_part_of_the_scope_is_no_trap() {
        assert_eq!(warned("[scope]\napi_version = { fixed = \"1\" }"), [""; 0]);
        let region = "[scope]\nregion = { header = \"x-region\" }";
        assert_eq!(warned(region), ["scope.region", "scope.region"]);
        let trusted = format!("{region}\ntrusted_peers = [\"10.0.0.0/8\"]");
        assert_eq!(warned(&trusted), ["scope.region"]);
    }

    #[test]
    fn unwise_regions_are_named() {
        let region = |lines: &str| {
            format!(
                "[scope]\ntrusted_peers = [\"10.0.0.0/8\"]\n[region]\nname = \"eu\"\n{lines}\n\
                 [region.gateways]\nus = \"https://us.example\""
            )
        };
        let prefix = "of_key = { prefix_before = \"_\" }\n";
        let forward = format!("{prefix}others = \"forward\"\n");
        assert_eq!(warned(&region(prefix)), [""; 0]);
        assert_eq!(warned(&region(&forward)), [""; 0]);
        let plain = region(&forward).replace("https", "http");
        assert_eq!(warned(&plain), ["region.gateways.us"]);
        assert_eq!(warned(&plain.replace("us.example", "127.0.0.1:1")), [""; 0]);
        for (lines, setting) in [
            (format!("{prefix}unnamed = \"here\""), "region.unnamed"),
            ("of_key = { header = \"x-home\" }".into(), "region.of_key"),
            (format!("{forward}response_timeout = \"20s\""), "region.response_timeout"),
        ] {
            assert_eq!(warned(&region(&lines)), [setting], "{lines}");
        }
    }

    #[test]
    fn each_unwise_setting_is_named() {
        for (text, setting) in [
            ("[store]\nurl = \"memory:\"", "store.url"),
            ("[store]\nurl = \"memory:\"\nreplicas = true", "store.url"),
            ("[store]\nreplicas = true", "store.replicas"),
            ("[store]\narchive = \"file:./archive\"", "store.archive"),
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
            ("[[operations]]\nroute = \"/orders/:id\"", "operations[0].route (/orders/:id)"),
            ("[[operations]]\nroute = \"/files/*path\"", "operations[0].route (/files/*path)"),
            (
                "[resolver]\nsince = \"2126-01-01T00:00:00Z\"\n\
                 [resolver.http]\nurl = \"/o/{operation}\"",
                "resolver.since",
            ),
            ("[scope]\ncaller = \"each_credential\"", "scope.caller"),
            ("[[listeners]]\naddress = \"0.0.0.0:8080\"", "scope.caller"),
            ("[scope]\ncaller = { header = \"x-user\" }", "scope.caller"),
            ("[scope]\napi_version = { header = \"v\" }", "scope.api_version"),
            ("[scope]\nparent = { header = \"account\" }", "scope.parent"),
            ("[scope]\nregion = { fixed = \"eu\" }", "scope.region"),
            ("[quotas]\nnew_keys_burst = 9", "quotas.new_keys_burst"),
            ("[quotas.total]\nnew_keys_burst = 9", "quotas.total.new_keys_burst"),
            ("[quotas]\nkey_requests_burst = 9", "quotas.key_requests_burst"),
            ("[defaults]\nttl = \"1h\"", "defaults.ttl"),
            ("[defaults]\nlease = \"10s\"", "defaults.lease"),
            ("[defaults]\nretry_after = \"61s\"", "defaults.retry_after"),
            (
                "[defaults]\nreplay_check = \"resolver\"\n[resolver.http]\nurl = \"/p/{reference}\"",
                "defaults.replay_check",
            ),
            ("[defaults]\nmode = \"shadow\"", "defaults.mode"),
            ("[defaults]\nstore_down = \"open\"", "defaults.store_down"),
            ("[[operations]]\nroute = \"/a\"\nttl = \"1h\"", "operations[0].ttl (/a)"),
        ] {
            assert_eq!(warned(text), [setting], "{text}");
        }
    }
}
