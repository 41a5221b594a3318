//! Who knows what became of operations that nobody here knows of, and how often they are asked.

use http::Uri;
use onceward_core::{ReconcilerSettings, Template};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::store_url::{StoreKind, StoreUrl};
use super::values::{Seconds, Time};
use super::{ConfigError, RuleSettings};

/// Who knows: one of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resolver {
    /// An address that tells what became of an operation.
    pub http: Option<HttpResolver>,
    /// A query on PostgreSQL.
    pub sql: Option<SqlResolver>,
    /// Its "did not happen" counts for operations that were claimed since then; without it, since
    /// the resolver was first used with the store.
    pub since: Option<Time>,
}

/// An address that says in JSON whether an operation happened: `outcome`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpResolver {
    /// `http://…`, or a path at the upstream, with places such as `{operation}`.
    pub url: Places,
    /// The environment variable with a token, sent as `Authorization: Bearer …`.
    pub token_env: Option<String>,
    /// How long after the last sign of an attempt "did_not_happen" counts.
    #[serde(default = "grace")]
    pub grace: Seconds,
}

/// A query on PostgreSQL: a row says that it happened, none that it did not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlResolver {
    /// `postgres://user:password@host/database`.
    pub url: StoreUrl,
    /// The query, with places such as `{operation}`.
    pub query: Places,
    /// How long after the last sign of an attempt a missing row counts.
    #[serde(default = "grace")]
    pub grace: Seconds,
}

fn grace() -> Seconds {
    Seconds::new(60)
}

/// How often resolvers are asked about operations that nobody knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reconciler {
    /// Rest between rounds.
    pub every: Seconds,
    /// Most questions a round.
    pub budget: usize,
    /// Most questions at once.
    pub at_once: usize,
    /// How long an answer may take.
    pub patience: Seconds,
    /// How long an operation rests after the first time that nobody knew; then ever longer.
    pub backoff: Seconds,
    /// Its longest rest.
    pub backoff_max: Seconds,
}

impl Default for Reconciler {
    fn default() -> Self {
        let it = ReconcilerSettings::default();
        Self {
            every: Seconds(it.every),
            budget: it.budget,
            at_once: it.at_once,
            patience: Seconds(it.patience),
            backoff: Seconds(it.backoff),
            backoff_max: Seconds(it.backoff_max),
        }
    }
}

impl Reconciler {
    /// The reconciler's settings; what it settles is kept as long as other outcomes.
    pub fn settings(&self, defaults: &RuleSettings) -> ReconcilerSettings {
        let mut settings = ReconcilerSettings {
            every: self.every.0,
            budget: self.budget,
            at_once: self.at_once,
            patience: self.patience.0,
            backoff: self.backoff.0,
            backoff_max: self.backoff_max.0,
            ..ReconcilerSettings::default()
        };
        if let Some(ttl) = defaults.ttl {
            settings.retention.keep = ttl.0;
        }
        settings
    }
}

impl Resolver {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError::Together(why));
        if self.http.is_some() == self.sql.is_some() {
            return refuse("[resolver] needs either [resolver.http] or [resolver.sql]".into());
        }
        if let Some(http) = &self.http
            && !http.is_address()
        {
            let url = &http.url.0;
            return refuse(format!(
                "resolver.http.url: {url:?} is neither http://… nor https://… nor a path that \
                 begins with /"
            ));
        }
        for (setting, places) in self.places() {
            if !places.0.names_operation() {
                return refuse(format!(
                    "{setting}: {:?} names no operation, and would be told the same about all of \
                     them; put {{operation}}, {{downstream_key}} or {{reference}} into it",
                    places.0.as_str()
                ));
            }
        }
        match &self.sql {
            Some(_) if !cfg!(feature = "postgres") => refuse(
                "[resolver.sql]: this program was built without the feature `postgres`".into(),
            ),
            Some(sql) if sql.url.kind() != Some(StoreKind::Postgres) => {
                refuse("resolver.sql.url: it is postgres://USER@HOST/DATABASE".into())
            }
            _ => Ok(()),
        }
    }
}

impl Resolver {
    fn places(&self) -> impl Iterator<Item = (&'static str, &Places)> {
        let http = self.http.iter().map(|it| ("resolver.http.url", &it.url));
        http.chain(self.sql.iter().map(|it| ("resolver.sql.query", &it.query)))
    }
}

impl HttpResolver {
    fn is_address(&self) -> bool {
        let filled = self.url.0.fill(|_| Some("x".into())).unwrap_or_default();
        let scheme = filled.parse::<Uri>().ok().and_then(|it| it.scheme_str().map(str::to_owned));
        filled.starts_with('/') || matches!(scheme.as_deref(), Some("http" | "https"))
    }
}

/// A text with places for what is known about an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(pub Template);

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}
