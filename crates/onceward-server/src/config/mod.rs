//! `onceward.toml`: every setting with its default.
//!
//! Each value is checked while it is parsed, so an error shows its line. Settings that are valid
//! but risky give warnings ([`lint`]).
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the sections, and settings that contradict each other |
//! | `archive`, `claims`, `cors`, `region`, `resolver`, `role`, `scope` | sections and values of one feature |
//! | `rules`, `rule_check` | the rules of operations; which of their settings is wrong |
//! | `values`, `store_url` | single values; a store's URL, shown without its password |
//! | `environment` | secrets in environment variables |
//! | `lint`, `changes` | warnings about a configuration, and about replacing one by another |
//! | `loops` | an upstream that is the gateway itself |
//! | `reference` | `reference.toml`, every setting with its default, and searching it |

mod archive;
mod changes;
mod claims;
mod cors;
mod environment;
mod lint;
mod loops;
mod reference;
mod region;
mod resolver;
mod role;
mod rule_check;
mod rules;
mod scope;
mod store_url;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use onceward_core::{OnLapse, ReplayCheck};
use serde::Deserialize;

pub use archive::ArchiveSetting;
pub use changes::changes;
pub use claims::Claims;
pub use cors::{Cors, Origin};
pub use environment::NotSet;
pub(crate) use environment::environment;
pub use lint::{Warning, lint};
pub use loops::LoopError;
pub(crate) use loops::OwnAddress;
pub use reference::{REFERENCE, explain};
pub use region::{HomeSource, Others, Region, RegionName, Separator, Unnamed};
pub use resolver::{HttpResolver, Reconciler, Resolver, SqlResolver, TemplateSetting};
pub use role::Role;
pub use rules::{Operation, RuleSettings};
pub use scope::{DimensionSource, Jwt, Scope, ScopeSource};
pub use store_url::{StoreKind, StoreUrl};
pub use values::{
    Bytes, HeaderNameSetting, MethodSetting, Peers, Seconds, Share, Time, UpstreamUrl,
};

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Conventions that apply where no setting overrides them.
    pub profile: Profile,
    /// Adds the fields that Stripe's SDKs read to refusals. Default: on with the Stripe profile.
    pub stripe_errors: Option<bool>,
    /// Addresses that clients connect to.
    pub listeners: Vec<Listener>,
    /// The protected service.
    pub upstream: Upstream,
    /// The store of the records.
    pub store: Store,
    /// The owner of a key: tenant and caller.
    pub scope: Scope,
    /// The home regions of keys.
    pub region: Option<Region>,
    /// External authorization, asked before any store access.
    pub authorization: Option<Authorization>,
    /// Rules of all operations that do not override them.
    pub defaults: RuleSettings,
    /// Named operations.
    pub operations: Vec<Operation>,
    /// Protects POST and PATCH requests with a key that match no named operation.
    pub protect_others: bool,
    /// Origins whose pages may read refusals.
    pub cors: Cors,
    /// Limits per caller, and of all callers together.
    pub quotas: Quotas,
    /// Limits that protect the gateway itself.
    pub limits: Limits,
    /// Address of metrics, health and the admin API.
    pub admin: Option<Admin>,
    /// The claims API for workers in any language.
    pub claims: Option<Claims>,
    /// Tokens of the claims API and the admin API.
    pub tokens: Vec<Token>,
    /// Path prefix of the status pages of operations: `{prefix}/operations/{id}`.
    pub operations_at: String,
    /// Source of evidence about unknown operations.
    pub resolver: Option<Resolver>,
    /// How often the resolver is asked.
    pub reconciler: Reconciler,
    /// Logs and traces.
    pub telemetry: Telemetry,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            stripe_errors: None,
            listeners: vec![Listener::default()],
            upstream: Upstream::default(),
            store: Store::default(),
            scope: Scope::default(),
            region: None,
            authorization: None,
            defaults: RuleSettings::default(),
            operations: Vec::new(),
            protect_others: true,
            cors: Cors::default(),
            quotas: Quotas::default(),
            limits: Limits::default(),
            admin: None,
            claims: None,
            tokens: Vec::new(),
            operations_at: "/onceward".into(),
            resolver: None,
            reconciler: Reconciler::default(),
            telemetry: Telemetry::default(),
        }
    }
}

/// Conventions that apply where no setting overrides them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The IETF draft, with careful outcomes.
    #[default]
    Standard,
    /// Stripe's API, for services whose clients use Stripe's SDKs or were written for them.
    Stripe,
}

/// An address that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listener {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// TLS; without it, plain HTTP.
    pub tls: Option<ServerTls>,
}

impl Default for Listener {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 8080)), tls: None }
    }
}

/// The certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Authorities (PEM) one of which must have signed the client's certificate.
    pub client_ca: Option<PathBuf>,
}

/// The protected service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// `http://` or `https://`, host and port; a path is prefixed to every request's.
    pub url: UpstreamUrl,
    /// Timeout of connecting, TLS handshake included.
    pub connect_timeout: Seconds,
    /// Timeout from sending a request to the head of its response.
    pub response_timeout: Seconds,
    /// Longest pause within a response body.
    pub body_timeout: Seconds,
    /// Idle connections are closed after this time. Keep it shorter than the upstream's
    /// keep-alive timeout: a connection that the upstream closes first can lose a request.
    pub idle: Seconds,
    /// Idle connections kept, per thread.
    pub idle_max: usize,
    /// Uses HTTP/2, with or without TLS.
    pub http2: bool,
    /// Authorities (PEM) trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// Path of the health check, requested every few seconds. While it fails, `/ready` of the
    /// admin address reports it.
    pub health: Option<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: UpstreamUrl::default(),
            connect_timeout: Seconds::new(3),
            response_timeout: Seconds::new(20),
            body_timeout: Seconds::new(20),
            idle: Seconds::new(4),
            idle_max: 64,
            http2: false,
            ca: None,
            health: None,
        }
    }
}

/// The store of the records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `file:./onceward-data`, `memory:`, `redis://host`, `postgres://user@host/database`.
    pub url: StoreUrl,
    /// `redis://host` in front of a `postgres:` store. Answers replays; may be lost.
    pub cache: Option<StoreUrl>,
    /// File with the keys that encrypt stored responses.
    pub sealing_keys_file: Option<PathBuf>,
    /// Environment variable with the keys that encrypt stored responses.
    pub sealing_keys_env: Option<String>,
    /// Environment variable with the secret that record ids are derived with. Without a secret,
    /// anyone who reads the store can test guesses of keys.
    pub identity_secret_env: Option<String>,
    /// Where expired records are kept before they are removed.
    pub archive: Option<ArchiveSetting>,
    /// Several gateways share this store.
    pub replicas: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: "file:./onceward-data".into(),
            cache: None,
            sealing_keys_file: None,
            sealing_keys_env: None,
            identity_secret_env: None,
            archive: None,
            replicas: false,
        }
    }
}

impl Store {
    fn check(&self) -> Result<(), ConfigError> {
        self.check_url()?;
        self.check_archive()?;
        let Some(cache) = &self.cache else { return Ok(()) };
        let wrong = if !cfg!(feature = "tiered") {
            "this program was built without the feature `tiered`"
        } else if self.url.kind() != Some(StoreKind::Postgres) {
            "only a postgres: store can have a cache; remove store.cache"
        } else if cache.kind() != Some(StoreKind::Redis) {
            "expected redis://HOST, rediss://HOST or redis-cluster://HOST,HOST"
        } else {
            return Ok(());
        };
        Err(ConfigError::Invalid(format!("store.cache: {wrong}")))
    }

    /// Refuses an archive that would not have every record, or that would be in the way.
    fn check_archive(&self) -> Result<(), ConfigError> {
        let Some(ArchiveSetting::Directory { path, .. }) = &self.archive else { return Ok(()) };
        let wrong = match self.url.kind() {
            Some(StoreKind::Redis) => {
                "a redis: store removes expired records by itself, before they are archived; use \
                 postgres: (with store.cache = \"redis://HOST\" in front of it), or remove \
                 store.archive"
            }
            Some(StoreKind::Memory) => {
                "a memory: store loses its records with the process, before they are archived; use \
                 file: or postgres:, or remove store.archive"
            }
            Some(StoreKind::Embedded) if self.is_within_store(path) => {
                "it is in the directory of the store, which belongs to the store alone; use another \
                 directory"
            }
            Some(StoreKind::Embedded | StoreKind::Postgres) | None => return Ok(()),
        };
        Err(ConfigError::Invalid(format!("store.archive: {wrong}")))
    }

    fn is_within_store(&self, path: &Path) -> bool {
        let store = onceward_stores::embedded_at(self.url.expose()).ok().flatten();
        store.is_some_and(|(store, _)| archive::is_within(path, &store))
    }

    fn check_url(&self) -> Result<(), ConfigError> {
        match self.url.kind() {
            Some(kind) if kind.is_built() => Ok(()),
            Some(kind) => Err(ConfigError::Invalid(format!(
                "store.url: this program was built without the feature `{}`",
                kind.name()
            ))),
            None => Err(ConfigError::Invalid(
                "store.url: expected file:DIRECTORY, memory:, redis://HOST, rediss://HOST, \
                 redis-cluster://HOST,HOST or postgres://USER@HOST/DATABASE"
                    .into(),
            )),
        }
    }
}

/// External authorization, like nginx's `auth_request`, before any store access.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Gets the request's method, path and headers, without its body. 2xx lets the request
    /// pass, 401 and 403 are returned to the client, everything else becomes 503.
    pub url: UpstreamUrl,
    /// Timeout of its response.
    #[serde(default = "Authorization::timeout")]
    pub timeout: Seconds,
}

impl Authorization {
    fn timeout() -> Seconds {
        Seconds::new(3)
    }
}

/// Limits of each caller, of all callers together, and of each key. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// New keys per second of one caller, on average.
    pub new_keys_per_second: u32,
    /// New keys of one caller at once; 0 is [`BURST_SECONDS`] of the average rate.
    pub new_keys_burst: u32,
    /// Keys of one caller within their retention.
    pub live_keys: u64,
    /// Bytes of one caller's stored responses.
    pub live_bytes: Bytes,
    /// Requests per second with one key, on average; retries of known keys too.
    pub key_requests_per_second: u32,
    /// Requests with one key at once; 0 is [`BURST_SECONDS`] of the average rate.
    pub key_requests_burst: u32,
    /// Limits of all callers together.
    pub total: QuotaLimits,
}

impl Default for Quotas {
    fn default() -> Self {
        // A gateway cannot tell a service with one token for all its users from a client that
        // floods, and a full store refuses new keys by itself.
        Self::UNLIMITED
    }
}

impl Quotas {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        new_keys_per_second: 0,
        new_keys_burst: 0,
        live_keys: 0,
        live_bytes: Bytes(0),
        key_requests_per_second: 0,
        key_requests_burst: 0,
        total: QuotaLimits::NONE,
    };

    /// Limits of one caller.
    pub fn caller(&self) -> QuotaLimits {
        let Self { new_keys_per_second, new_keys_burst, live_keys, live_bytes, .. } = *self;
        QuotaLimits { new_keys_per_second, new_keys_burst, live_keys, live_bytes }
    }

    /// The same without limits of one caller.
    pub fn without_caller(self) -> Self {
        let Self { key_requests_per_second, key_requests_burst, total, .. } = self;
        Self { key_requests_per_second, key_requests_burst, total, ..Self::UNLIMITED }
    }

    /// Requests with one key allowed at once.
    pub fn key_burst(&self) -> u32 {
        burst(self.key_requests_burst, self.key_requests_per_second)
    }
}

/// Limits of one caller or of all. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaLimits {
    /// New keys per second, on average.
    pub new_keys_per_second: u32,
    /// New keys at once; 0 is [`BURST_SECONDS`] of the average rate.
    pub new_keys_burst: u32,
    /// Keys within their retention.
    pub live_keys: u64,
    /// Bytes of stored responses.
    pub live_bytes: Bytes,
}

/// Default burst, in seconds of the average rate: what a client needs to catch up after an
/// interruption.
pub const BURST_SECONDS: u32 = 10;

impl QuotaLimits {
    /// No limits.
    pub const NONE: Self =
        Self { new_keys_per_second: 0, new_keys_burst: 0, live_keys: 0, live_bytes: Bytes(0) };

    /// New keys allowed at once.
    pub fn burst(&self) -> u32 {
        burst(self.new_keys_burst, self.new_keys_per_second)
    }
}

fn burst(configured: u32, per_second: u32) -> u32 {
    match configured {
        0 => per_second.saturating_mul(BURST_SECONDS),
        burst => burst,
    }
}

impl Default for QuotaLimits {
    fn default() -> Self {
        Self::NONE
    }
}

/// Limits that protect the gateway itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open client connections.
    pub connections: usize,
    /// Timeout of a request's head, also counted from accepting the connection.
    pub head_timeout: Seconds,
    /// Longest pause within a request body.
    pub body_timeout: Seconds,
    /// Timeout of a whole protected request body.
    pub body_total: Seconds,
    /// Longest time in which a client reads nothing of its response.
    pub write_timeout: Seconds,
    /// Memory for the bodies of all protected requests together.
    pub buffer_bytes: Bytes,
    /// Largest request head.
    pub head_bytes: Bytes,
    /// Most headers of a request.
    pub headers: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Time for running requests to finish after SIGTERM.
    pub drain: Seconds,
    /// Serving threads; 0 is one per core.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_timeout: Seconds::new(10),
            body_timeout: Seconds::new(10),
            body_total: Seconds::new(60),
            write_timeout: Seconds::new(30),
            buffer_bytes: Bytes(1 << 30),
            head_bytes: Bytes(32 * 1024),
            headers: 100,
            streams: 100,
            drain: Seconds::new(20),
            threads: 0,
        }
    }
}

/// Metrics, health and the admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address and port. Only operators should be able to reach it.
    pub address: SocketAddr,
}

/// A token of the claims API and the admin API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Name in the audit log of decisions.
    pub name: String,
    /// Permissions.
    pub role: Role,
    /// Environment variable with the token.
    pub secret_env: String,
    /// Tenants whose records the token can access; all if empty.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// Logs and traces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,onceward=debug`.
    pub log: String,
    /// Format of log lines.
    pub format: LogFormat,
    /// Collector of traces, by OTLP over HTTP.
    pub traces: Option<UpstreamUrl>,
    /// Share of requests that are traced, if the caller has not decided.
    pub traces_sampled: Share,
    /// Service name in traces.
    pub service_name: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".into(),
            format: LogFormat::Text,
            traces: None,
            traces_sampled: Share::ALL,
            service_name: "onceward".into(),
        }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An unknown setting, or an invalid value.
    #[error("{path}: {what}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The error with its line, without passwords.
        what: String,
    },
    /// Settings that contradict each other. The text begins with the setting's name.
    #[error("{0}")]
    Invalid(String),
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Parses a text; `path` is for error messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            // The error quotes the line, which may contain a password.
            let what = store_url::without_logins(&error.to_string());
            ConfigError::Parse { path: path.into(), what }
        })?;
        config.check()?;
        if config.profile == Profile::Stripe {
            config.defaults.follow_stripe();
        }
        Ok(config)
    }

    /// The path prefix of the status pages of operations of this gateway's region, which names it: a
    /// client may ask another region's gateway.
    fn own_operations_at(&self) -> String {
        match &self.region {
            Some(region) => format!("{}/{}", self.operations_at, region.name.as_str()),
            None => self.operations_at.clone(),
        }
    }

    /// Format of refusals.
    pub fn problem_format(&self) -> onceward_http::ProblemFormat {
        onceward_http::ProblemFormat {
            operations_at: self.own_operations_at(),
            stripe_errors: self.stripe_errors.unwrap_or(self.profile == Profile::Stripe),
            ..onceward_http::ProblemFormat::default()
        }
    }

    /// Checks the settings against each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listeners.is_empty() {
            return invalid("listeners: empty, so no client could connect; add a [[listeners]]");
        }
        self.store.check()?;
        if self.store.sealing_keys_file.is_some() && self.store.sealing_keys_env.is_some() {
            return invalid(
                "store.sealing_keys_file, store.sealing_keys_env: set only one of them",
            );
        }
        self.scope.check()?;
        self.check_dimensions()?;
        self.check_region()?;
        if !self.operations_at.starts_with('/') || self.operations_at.ends_with('/') {
            let at = &self.operations_at;
            return invalid(format!("operations_at: {at:?} must begin with / and not end with it"));
        }
        match (&self.resolver, self.resolving_setting()) {
            (Some(resolver), _) => resolver.check()?,
            (None, Some((setting, word, without))) => {
                return invalid(format!(
                    "{setting}: {word:?} needs a [resolver]; add one, or choose {without:?}"
                ));
            }
            (None, None) => {}
        }
        if let Some(claims) = &self.claims {
            claims.check(&self.tokens)?;
        }
        self.check_addresses()?;
        self.cors.check()?;
        self.check_routes()
    }

    /// Refuses an address that two settings listen on.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let mut seen = BTreeMap::new();
        for OwnAddress { setting, address } in self.own_addresses() {
            if let Some(first) = seen.insert(address, setting.clone()) {
                return invalid(format!(
                    "{setting}: {address} is already the address of {first}; choose another one"
                ));
            }
        }
        Ok(())
    }

    /// Refuses two operations with the same method and route.
    fn check_routes(&self) -> Result<(), ConfigError> {
        let mut seen = BTreeMap::new();
        for (number, Operation { method, route, .. }) in self.operations.iter().enumerate() {
            if let Some(first) = seen.insert((method.0.as_str(), route), number) {
                let method = &method.0;
                return invalid(format!(
                    "operations[{number}]: {method} {route} is already operations[{first}]; \
                     remove one of them"
                ));
            }
        }
        Ok(())
    }

    /// A setting that asks for a resolver, its value, and the value that does not.
    fn resolving_setting(&self) -> Option<(String, &'static str, &'static str)> {
        let asks = |section: String, on_lapse, replay_check| {
            if on_lapse == Some(OnLapse::Resolve) {
                return Some((format!("{section}.on_lapse"), "resolve", "unknown"));
            }
            let checks = replay_check == Some(ReplayCheck::Resolver);
            checks.then(|| (format!("{section}.replay_check"), "resolver", "never"))
        };
        let RuleSettings { on_lapse, replay_check, .. } = &self.defaults;
        let defaults = asks("defaults".into(), *on_lapse, *replay_check);
        let mut operations = self.operations.iter().enumerate();
        defaults.or_else(|| {
            operations.find_map(|(number, Operation { on_lapse, replay_check, .. })| {
                asks(format!("operations[{number}]"), *on_lapse, *replay_check)
            })
        })
    }
}

fn invalid(why: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Invalid(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("onceward.toml")).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_default() {
        let config = Config::parse("", Path::new("onceward.toml")).unwrap();
        assert_eq!(config.store.url.expose(), "file:./onceward-data");
        assert_eq!(config.scope.caller, Some(ScopeSource::Credentials));
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_reason() {
        for (text, line, reason) in [
            ("[upstream]\nurll = \"http://a\"", "line 2", "unknown field `urll`"),
            ("[upstream]\nurl = \"ftp://a\"", "line 2", "http:// or https://"),
            ("\n[defaults]\nttl = \"soon\"", "line 3", "soon"),
            ("[defaults]\nttl = 5", "line 2", "\"24h\""),
            ("[defaults]\nmismatch_status = 200", "line 2", "400 to 499"),
            ("[[operations]]\nroute = \"/a\"\nmethod = \"GET\"", "line 3", "changes nothing"),
            ("[limits]\nhead_bytes = \"1 elephant\"", "line 2", "elephant"),
            ("[scope]\ntrusted_peers = [\"10.0.0.0/99\"]", "line 2", "10.0.0.0/99"),
            ("[scope]\ncaller = { header = \"x y\" }", "line 2", "x y"),
        ] {
            let error = error(text);
            assert!(error.contains(line) && error.contains(reason), "{text:?} gave {error}");
        }
    }

    #[test]
    fn no_mistake_is_told_with_a_password() {
        for text in [
            "[store]\nurl = \"redis://:canary@h",
            "[store]\nurl = \"redis://:canary@h\" x",
            "[store]\nurl = \"radish://:canary@h\"",
            "[store]\nurll = \"redis://:canary@h\"",
            "[store]\nurl = [\"redis://:canary@h\"]",
        ] {
            let error = error(text);
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn values_that_do_not_fit_together_are_refused() {
        assert!(error("operations_at = \"ops/\"").contains("\"ops/\" must begin with /"));
        let resolving = error("[defaults]\non_lapse = \"resolve\"");
        assert!(resolving.starts_with("defaults.on_lapse: ") && resolving.contains("[resolver]"));
        let own = "[[operations]]\nroute = \"/a\"\non_lapse = \"resolve\"";
        assert!(error(own).starts_with("operations[0].on_lapse: "));
        let checking = error("[defaults]\nreplay_check = \"resolver\"");
        assert!(checking.starts_with("defaults.replay_check: \"resolver\" needs a [resolver]"));
        let own = "[[operations]]\nroute = \"/a\"\nreplay_check = \"resolver\"";
        assert!(error(own).starts_with("operations[0].replay_check: "));
        assert!(error("[defaults]\nreplay_check = \"always\"").contains("always"));
        assert!(error("[resolver]").contains("either [resolver.http] or [resolver.sql]"));
        let address = |url| error(&format!("[resolver.http]\nurl = \"{url}\""));
        assert!(address("payments/{operation}").contains("begins with /"));
        assert!(address("/payments/{amount}").contains("placeholder {amount} is unknown"));
        assert!(address("/payments/{tenant}").contains("names no operation"));
        let sql =
            |url, query| error(&format!("[resolver.sql]\nurl = \"{url}\"\nquery = \"{query}\""));
        assert!(sql("redis://h", "{operation}").contains("resolver.sql.url"));
        assert!(sql("postgres://h", "select 1").contains("names no operation"));
        let since = |since| error(&format!("[resolver]\nsince = {since}\n"));
        assert!(since("\"yesterday\"").contains("yesterday"));
        assert!(since("2026-11-01T00:00:00Z").contains("in quotes"));
        assert!(error("listeners = []").contains("no client could connect"));
        let claim = error("[scope]\ncaller = { claim = \"sub\" }");
        assert!(claim.starts_with("scope.caller: ") && claim.contains("[scope.jwt]"));
        assert!(error("[store]\nurl = \"radish://h\"").contains("redis://HOST"));
        let archive = |url: &str, archive: &str| {
            error(&format!("[store]\nurl = \"{url}\"\narchive = \"{archive}\""))
        };
        assert!(archive("redis://h", "file:./a").contains("store.archive: a redis: store"));
        assert!(archive("memory:", "file:./a").contains("store.archive: a memory: store"));
        assert!(archive("file:./d", "file:./d/a").contains("belongs to the store alone"));
        assert!(archive("file:./d", "file:d").contains("belongs to the store alone"));
        assert!(archive("file:./d", "s3://a").contains("line 3"));
        let taken = "[admin]\naddress = \"127.0.0.1:8080\"";
        let expected = "admin.address: 127.0.0.1:8080 is already the address of listeners[0]";
        assert!(error(taken).contains(expected));
        let every_page = "[cors]\norigins = [\"*\"]\ncredentials = true";
        assert!(error(every_page).contains("name the origins"));
        let twice = "[[operations]]\nroute = \"/a\"\n[[operations]]\nroute = \"/a\"";
        assert!(error(twice).contains("operations[1]: POST /a is already operations[0]"));
    }

    #[test]
    fn a_profile_fills_in_what_is_not_set() {
        let parse = |text| Config::parse(text, Path::new("onceward.toml")).unwrap();
        let stripe = parse("profile = \"stripe\"\n[defaults]\nmismatch_status = 409");
        let rules = stripe.defaults.rules();
        assert_eq!(rules.outcomes, onceward_http::Outcomes::StripeV1);
        assert_eq!(rules.mismatch_status, 409);
        assert!(stripe.problem_format().stripe_errors);
        assert!(
            !parse("profile = \"stripe\"\nstripe_errors = false").problem_format().stripe_errors
        );
        assert!(!parse("").problem_format().stripe_errors);
        assert!(parse("stripe_errors = true").problem_format().stripe_errors);
    }

    #[test]
    fn an_operation_takes_the_defaults_and_its_own() {
        let text = "[defaults]\nttl = \"48h\"\n[[operations]]\nroute = \"/a\"\nlease = \"1m\"";
        let config = Config::parse(text, Path::new("onceward.toml")).unwrap();
        let rules = config.operations[0].settings(&config.defaults);
        assert_eq!(rules.ttl, Some(Seconds::new(48 * 3600)));
        assert_eq!(rules.lease, Some(Seconds::new(60)));
    }
}
