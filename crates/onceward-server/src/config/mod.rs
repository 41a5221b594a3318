//! `onceward.toml`: everything that can be set, with its default.
//!
//! Every value is checked while it is read, so that a mistake is told with its line. What
//! is possible and unwise is a [`lint`].

mod claims;
mod cors;
mod environment;
mod lint;
mod loops;
mod reference;
mod resolver;
mod role;
mod rules;
mod store_url;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use claims::Claims;
pub use cors::{Cors, Origin};
pub use environment::NotSet;
pub(crate) use environment::environment;
pub use lint::{Warning, lint};
pub use loops::LoopError;
pub(crate) use loops::OwnAddress;
pub use reference::{REFERENCE, explain};
pub use resolver::{HttpResolver, Places, Reconciler, Resolver, SqlResolver};
pub use role::Role;
pub use rules::{Lapse, Operation, Outcomes, RuleSettings};
pub use store_url::{StoreKind, StoreUrl};
pub use values::{
    Bytes, HeaderNameSetting, MethodSetting, Peers, Seconds, Share, Time, UpstreamUrl,
};

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whose conventions hold where nothing else is set.
    pub profile: Profile,
    /// Refusals carry what Stripe's SDKs read.
    pub stripe_errors: Option<bool>,
    /// Where clients connect.
    pub listeners: Vec<Listener>,
    /// Where requests go.
    pub upstream: Upstream,
    /// Where records are kept.
    pub store: Store,
    /// Whose keys they are.
    pub scope: Scope,
    /// Who may ask at all.
    pub authorization: Option<Authorization>,
    /// Rules of every operation that does not say otherwise.
    pub defaults: RuleSettings,
    /// Named operations.
    pub operations: Vec<Operation>,
    /// Whether POST and PATCH that belong to no named operation are protected when they
    /// carry a key.
    pub protect_others: bool,
    /// Which pages in browsers may read refusals.
    pub cors: Cors,
    /// How much one caller, and all of them, may use.
    pub quotas: Quotas,
    /// What protects the gateway itself.
    pub limits: Limits,
    /// Metrics and health, on an address of their own.
    pub admin: Option<Admin>,
    /// Claims for workers in any language, on an address of their own.
    pub claims: Option<Claims>,
    /// Who may use the claims API and the admin API.
    pub tokens: Vec<Token>,
    /// The path under which callers see their operations: `{prefix}/operations/{id}`.
    pub operations_at: String,
    /// Who knows what became of operations that nobody here knows of.
    pub resolver: Option<Resolver>,
    /// How often it is asked.
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

/// Whose conventions hold where nothing else is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The IETF draft, and careful outcomes.
    #[default]
    Standard,
    /// Stripe's API, for services whose clients use Stripe's SDKs or were written for them.
    Stripe,
}

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listener {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Speaks TLS.
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
    /// The chain, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
    /// Clients must show a certificate that one of these (PEM) has signed.
    pub client_ca: Option<PathBuf>,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// `http://` or `https://`, host and port; a path is put before every request's.
    pub url: UpstreamUrl,
    /// Longest time to connect.
    pub connect_timeout: Seconds,
    /// Longest time from sending a request to the head of its response.
    pub response_timeout: Seconds,
    /// Longest pause inside a response.
    pub body_timeout: Seconds,
    /// Connections that are not used are closed after this. Keep it shorter than the
    /// upstream's own keep-alive: a connection that it closes first can lose a request.
    pub idle: Seconds,
    /// Idle connections that are kept, for each of the gateway's threads.
    pub idle_max: usize,
    /// Speaks HTTP/2 to the upstream.
    pub http2: bool,
    /// Trusts certificates that these (PEM) have signed, instead of the usual authorities.
    pub ca: Option<PathBuf>,
    /// Asked now and then; while it fails, `/ready` of the admin address says so.
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

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `file:./onceward-data`, `memory:`, `redis://host`, `postgres://user@host/database`.
    pub url: StoreUrl,
    /// `redis://host`, before a `postgres:` store: answers replays, and may be lost.
    pub cache: Option<StoreUrl>,
    /// Encrypts stored responses with the keys in this file.
    pub sealing_keys_file: Option<PathBuf>,
    /// Encrypts stored responses with the keys in this environment variable.
    pub sealing_keys_env: Option<String>,
    /// A secret under which record ids are made, from this environment variable. Without
    /// one, whoever reads the store can test guesses of keys.
    pub identity_secret_env: Option<String>,
    /// Several gateways work on this store.
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
            replicas: false,
        }
    }
}

impl Store {
    fn check(&self) -> Result<(), ConfigError> {
        self.check_url()?;
        let Some(cache) = &self.cache else { return Ok(()) };
        let wrong = if !cfg!(feature = "tiered") {
            "this program was built without the feature `tiered`"
        } else if self.url.kind() != Some(StoreKind::Postgres) {
            "only a postgres: store has a cache before it"
        } else if cache.kind() != Some(StoreKind::Redis) {
            "it is redis://HOST, rediss://HOST or redis-cluster://HOST,HOST"
        } else {
            return Ok(());
        };
        Err(ConfigError::Together(format!("store.cache: {wrong}")))
    }

    fn check_url(&self) -> Result<(), ConfigError> {
        match self.url.kind() {
            Some(kind) if kind.is_built() => Ok(()),
            Some(kind) => Err(ConfigError::Together(format!(
                "store.url: this program was built without the feature `{}`",
                kind.name()
            ))),
            None => Err(ConfigError::Together(
                "store.url: there are file:DIRECTORY, memory:, redis://HOST, rediss://HOST, \
                 redis-cluster://HOST,HOST and postgres://USER@HOST/DATABASE"
                    .into(),
            )),
        }
    }
}

/// Whose keys they are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// Whose data it is about.
    pub tenant: Option<Owner>,
    /// Who is asking.
    pub caller: Option<Owner>,
    /// Everybody who can reach the gateway is one and the same.
    pub single_tenant: bool,
    /// Who may name tenants and callers in headers, and set `X-Forwarded-*`: networks of
    /// the proxies in front of the gateway.
    pub trusted_peers: Peers,
    /// How tokens are verified.
    pub jwt: Option<Jwt>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            tenant: None,
            caller: Some(Owner::Credentials),
            single_tenant: false,
            trusted_peers: Peers::default(),
            jwt: None,
        }
    }
}

/// Where a tenant or a caller comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Callers are not told apart, and a key is bound to the credentials of its first request.
    Credentials,
    /// Every set of credentials is a caller with keys of its own.
    EachCredential,
    /// A digest of a header that holds a secret, such as an API key.
    HeaderDigest(HeaderNameSetting),
    /// A digest of a cookie.
    CookieDigest(String),
    /// The host name that the request was sent to.
    Host,
    /// A header that a trusted peer sets.
    Header(HeaderNameSetting),
    /// A claim of a verified token.
    Claim(String),
    /// The subject of the client's certificate.
    CertificateSubject,
    /// Always the same.
    Fixed(String),
}

/// How tokens are verified: by a key set or by a shared secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// A JSON Web Key Set.
    pub jwks_file: Option<PathBuf>,
    /// The environment variable that holds a shared secret (HS256).
    pub secret_env: Option<String>,
    /// Who must have issued a token.
    pub issuer: Option<String>,
    /// Whom it must be for.
    pub audience: Option<String>,
}

/// A request to somebody who knows who may do what, before anything is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Gets the request's method, path and headers, without its body. 2xx lets it pass,
    /// 401 and 403 are the answer, all else is 503.
    pub url: UpstreamUrl,
    /// Longest time for its answer.
    #[serde(default = "Authorization::timeout")]
    pub timeout: Seconds,
}

impl Authorization {
    fn timeout() -> Seconds {
        Seconds::new(3)
    }
}

/// How much one caller, and all of them, may use. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// New keys a second of one caller, on average.
    pub new_keys_per_second: u32,
    /// New keys that it may use at once; 0 is what it may use in [`BURST_SECONDS`].
    pub new_keys_burst: u32,
    /// Keys of one caller within their retention.
    pub live_keys: u64,
    /// Bytes of one caller's kept responses.
    pub live_bytes: Bytes,
    /// The same of all callers together.
    pub total: Caps,
}

impl Default for Quotas {
    fn default() -> Self {
        // None: a gateway cannot tell a service that has one token for all of its users from a
        // client that floods, and a store that is full refuses new keys by itself.
        Self::UNLIMITED
    }
}

impl Quotas {
    /// No limit at all.
    pub const UNLIMITED: Self = Self {
        new_keys_per_second: 0,
        new_keys_burst: 0,
        live_keys: 0,
        live_bytes: Bytes(0),
        total: Caps::NONE,
    };

    /// What one caller may use.
    pub fn caller(&self) -> Caps {
        let Self { new_keys_per_second, new_keys_burst, live_keys, live_bytes, total: _ } = *self;
        Caps { new_keys_per_second, new_keys_burst, live_keys, live_bytes }
    }
}

/// How much may be used. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// New keys a second, on average.
    pub new_keys_per_second: u32,
    /// New keys at once; 0 is what may be used in [`BURST_SECONDS`].
    pub new_keys_burst: u32,
    /// Keys within their retention.
    pub live_keys: u64,
    /// Bytes of kept responses.
    pub live_bytes: Bytes,
}

impl Caps {
    /// No limit at all.
    pub const NONE: Self =
        Self { new_keys_per_second: 0, new_keys_burst: 0, live_keys: 0, live_bytes: Bytes(0) };
}

/// So many seconds of new keys may be used at once where nothing else is set: as long as a client
/// that was held up needs to catch up.
pub const BURST_SECONDS: u32 = 10;

impl Caps {
    /// New keys that may be used at once.
    pub fn burst(&self) -> u32 {
        match self.new_keys_burst {
            0 => self.new_keys_per_second.saturating_mul(BURST_SECONDS),
            burst => burst,
        }
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self::NONE
    }
}

/// What protects the gateway itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections of clients.
    pub connections: usize,
    /// Longest time until a request's head is there, also from the connection on.
    pub head_timeout: Seconds,
    /// Longest pause inside a request's body.
    pub body_timeout: Seconds,
    /// Longest time for a whole request body.
    pub body_total: Seconds,
    /// Longest time in which a client takes nothing of its response.
    pub write_timeout: Seconds,
    /// Most memory that bodies of protected requests are read into, all together.
    pub buffer_bytes: Bytes,
    /// Largest head of a request.
    pub head_bytes: Bytes,
    /// Most headers of a request.
    pub headers: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// How long running requests may take after SIGTERM.
    pub drain: Seconds,
    /// Threads that serve; 0 is one for each core.
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

/// Metrics and health, on an address of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address and port. Reachable by operators only.
    pub address: SocketAddr,
}

/// Somebody who may use the claims API or the admin API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Whose it is, for the trail of decisions.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The environment variable that holds the token.
    pub secret_env: String,
    /// Whose records exist for it; everybody's if none is named.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// Logs and traces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,onceward=debug`.
    pub log: String,
    /// How log lines look.
    pub format: LogFormat,
    /// The collector that gets traces, by OTLP over HTTP.
    pub traces: Option<UpstreamUrl>,
    /// The share of requests that begin a trace, if their callers have not begun one.
    pub traces_sampled: Share,
    /// What the gateway is called in traces.
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

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A field that does not exist, or a value that cannot be.
    #[error("{path}: {what}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// What and where, without passwords.
        what: String,
    },
    /// Values that do not fit together.
    #[error("{0}")]
    Together(String),
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Reads a text; `path` is for error messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            // It quotes the line, which may hold a password.
            let what = store_url::without_logins(&error.to_string());
            ConfigError::Parse { path: path.into(), what }
        })?;
        config.check()?;
        if config.profile == Profile::Stripe {
            config.defaults.follow_stripe();
        }
        Ok(config)
    }

    /// How refusals are written.
    pub fn problem_format(&self) -> onceward_http::ProblemFormat {
        onceward_http::ProblemFormat {
            operations_at: self.operations_at.clone(),
            stripe_error: self.stripe_errors.unwrap_or(self.profile == Profile::Stripe),
            ..onceward_http::ProblemFormat::default()
        }
    }

    /// What no single value shows.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |why: &str| Err(ConfigError::Together(why.into()));
        if self.listeners.is_empty() {
            return refuse("there is no [[listeners]]: nobody could connect");
        }
        self.store.check()?;
        if self.store.sealing_keys_file.is_some() && self.store.sealing_keys_env.is_some() {
            return refuse("store.sealing_keys_file and store.sealing_keys_env are both set");
        }
        let owners = [&self.scope.tenant, &self.scope.caller];
        let by_claim = owners.iter().any(|owner| matches!(owner, Some(Owner::Claim(_))));
        if by_claim && self.scope.jwt.is_none() {
            return refuse("scope takes a claim, and there is no [scope.jwt] to verify tokens by");
        }
        if let Some(jwt) = &self.scope.jwt
            && jwt.jwks_file.is_some() == jwt.secret_env.is_some()
        {
            return refuse("[scope.jwt] needs either jwks_file or secret_env");
        }
        if owners.iter().all(|owner| owner.is_none()) && !self.scope.single_tenant {
            return refuse(
                "scope has neither tenant nor caller; if everybody is one and the same, \
                 say scope.single_tenant = true",
            );
        }
        if self.scope.tenant == Some(Owner::Credentials) {
            return refuse(
                "scope.tenant = \"credentials\": credentials are bound to the keys of a caller \
                 and name no tenant; use { claim = … }, { header = … } or \"host\"",
            );
        }
        if !self.operations_at.starts_with('/') || self.operations_at.ends_with('/') {
            let at = &self.operations_at;
            return refuse(&format!("operations_at: {at:?} must begin with / and not end with it"));
        }
        match &self.resolver {
            Some(resolver) => resolver.check()?,
            None if self.resolves() => {
                return refuse("on_lapse = \"resolve\" needs a [resolver] that can be asked");
            }
            None => {}
        }
        if let Some(claims) = &self.claims {
            claims.check(&self.tokens)?;
        }
        self.check_addresses()?;
        self.cors.check()?;
        let mut seen = BTreeMap::new();
        for operation in &self.operations {
            let id = (operation.method.0.to_string(), operation.route.clone());
            if seen.insert(id, ()).is_some() {
                let (method, route) = (&operation.method.0, &operation.route);
                return Err(ConfigError::Together(format!("{method} {route} occurs twice")));
            }
        }
        Ok(())
    }
}

impl Config {
    /// Each address is listened on once.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let listeners = self.listeners.iter().map(|it| ("[[listeners]]", it.address));
        let admin = self.admin.iter().map(|it| ("[admin]", it.address));
        let claims = self.claims.iter().map(|it| ("[claims]", it.address));
        let mut seen = BTreeMap::new();
        for (section, address) in listeners.chain(admin).chain(claims) {
            if address.port() != 0
                && let Some(before) = seen.insert(address, section)
            {
                return Err(ConfigError::Together(format!(
                    "{section}: {address} is an address of {before} already"
                )));
            }
        }
        Ok(())
    }

    /// Whether any operation is to be resolved as soon as somebody asks for it.
    fn resolves(&self) -> bool {
        let own = self.operations.iter().map(|it| it.on_lapse);
        own.chain([self.defaults.on_lapse]).any(|it| it == Some(Lapse::Resolve))
    }
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
        assert_eq!(config.scope.caller, Some(Owner::Credentials));
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
            let told = error(text);
            assert!(told.contains(line) && told.contains(reason), "{text:?} gave {told}");
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
            let told = error(text);
            assert!(!told.contains("canary"), "{told}");
        }
    }

    #[test]
    fn values_that_do_not_fit_together_are_refused() {
        assert!(error("operations_at = \"ops/\"").contains("\"ops/\" must begin with /"));
        assert!(error("[defaults]\non_lapse = \"resolve\"").contains("[resolver]"));
        assert!(error("[resolver]").contains("either [resolver.http] or [resolver.sql]"));
        let address = |url| error(&format!("[resolver.http]\nurl = \"{url}\""));
        assert!(address("payments/{operation}").contains("begins with /"));
        assert!(address("/payments/{amount}").contains("{amount} is not known"));
        assert!(address("/payments/{tenant}").contains("names no operation"));
        let sql =
            |url, query| error(&format!("[resolver.sql]\nurl = \"{url}\"\nquery = \"{query}\""));
        assert!(sql("redis://h", "{operation}").contains("resolver.sql.url"));
        assert!(sql("postgres://h", "select 1").contains("names no operation"));
        let since = |since| error(&format!("[resolver]\nsince = {since}\n"));
        assert!(since("\"yesterday\"").contains("yesterday"));
        assert!(since("2026-11-01T00:00:00Z").contains("in quotes"));
        assert!(error("listeners = []").contains("nobody could connect"));
        assert!(error("[scope]\ncaller = { claim = \"sub\" }").contains("[scope.jwt]"));
        assert!(error("[store]\nurl = \"radish://h\"").contains("redis://HOST"));
        let taken = "[admin]\naddress = \"127.0.0.1:8080\"";
        assert!(error(taken).contains("[admin]: 127.0.0.1:8080 is an address of [[listeners]]"));
        let every_page = "[cors]\norigins = [\"*\"]\ncredentials = true";
        assert!(error(every_page).contains("name the origins"));
        let twice = "[[operations]]\nroute = \"/a\"\n[[operations]]\nroute = \"/a\"";
        assert!(error(twice).contains("POST /a occurs twice"));
    }

    #[test]
    fn a_profile_fills_in_what_is_not_set() {
        let parse = |text| Config::parse(text, Path::new("onceward.toml")).unwrap();
        let stripe = parse("profile = \"stripe\"\n[defaults]\nmismatch_status = 409");
        let rules = stripe.defaults.rules();
        assert_eq!(rules.outcomes, onceward_http::Outcomes::StripeV1);
        assert_eq!(rules.mismatch_status, 409);
        assert!(stripe.problem_format().stripe_error);
        assert!(
            !parse("profile = \"stripe\"\nstripe_errors = false").problem_format().stripe_error
        );
        assert!(!parse("").problem_format().stripe_error);
        assert!(parse("stripe_errors = true").problem_format().stripe_error);
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
