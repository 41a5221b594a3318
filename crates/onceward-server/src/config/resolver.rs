//! `[resolver]` and `[reconciler]`: the source of evidence about unknown operations, and how often
//! it is asked.

use http::Uri;
use onceward_core::{Placeholder, ReconcilerSettings, Template};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::store_url::{StoreKind, StoreUrl};
use super::values::{Seconds, Time};
use super::{ConfigError, RuleSettings, invalid};

/// Source of evidence about unknown operations: either `http` or `sql`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resolver {
    /// A URL that answers what became of an operation.
    pub http: Option<HttpResolver>,
    /// A query on PostgreSQL.
    pub sql: Option<SqlResolver>,
    /// "Did not happen" counts for operations claimed since this time; by default, since the
    /// resolver was first used with the store.
    pub since: Option<Time>,
}

/// A URL that answers JSON with an `outcome`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpResolver {
    /// `http://…`, or a path at the upstream, with placeholders such as `{operation}`.
    pub url: TemplateSetting,
    /// Environment variable with a token, sent as `Authorization: Bearer …`.
    pub token_env: Option<String>,
    /// Time after the last sign of an attempt before "did_not_happen" counts.
    #[serde(default = "grace")]
    pub grace: Seconds,
}

/// A query on PostgreSQL: a row means that the operation happened, no row that it did not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlResolver {
    /// `postgres://user:password@host/database`.
    pub url: StoreUrl,
    /// The query, with placeholders such as `{operation}`.
    pub query: TemplateSetting,
    /// Time after the last sign of an attempt before a missing row counts.
    #[serde(default = "grace")]
    pub grace: Seconds,
}

fn grace() -> Seconds {
    Seconds::new(60)
}

/// How often the resolver is asked about unknown operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reconciler {
    /// Pause between rounds.
    pub every: Seconds,
    /// Most questions per round.
    pub budget: usize,
    /// Most concurrent questions.
    pub at_once: usize,
    /// Timeout of an answer.
    pub patience: Seconds,
    /// Pause before the second question about the same operation; it grows with each question.
    pub backoff: Seconds,
    /// Longest pause between two questions about the same operation.
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
    /// Settings of the reconciler. The outcomes that it settles are kept for `defaults.ttl`.
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
        if self.http.is_some() == self.sql.is_some() {
            return invalid("resolver: set either [resolver.http] or [resolver.sql]");
        }
        if let Some(http) = &self.http
            && !http.is_address()
        {
            let url = &http.url.0;
            return invalid(format!(
                "resolver.http.url: {url:?} is neither http://… nor https://… nor a path that \
                 begins with /"
            ));
        }
        for (setting, template) in self.templates() {
            if !template.0.names_operation() {
                return invalid(format!(
                    "{setting}: {:?} names no operation, so all of them would get the same answer; \
                     put {{operation}}, {{downstream_key}} or {{reference}} into it",
                    template.0.as_str()
                ));
            }
        }
        match &self.sql {
            Some(_) if !cfg!(feature = "postgres") => {
                invalid("resolver.sql: this program was built without the feature `postgres`")
            }
            Some(sql) if sql.url.kind() != Some(StoreKind::Postgres) => {
                invalid("resolver.sql.url: expected postgres://USER@HOST/DATABASE")
            }
            _ => Ok(()),
        }
    }

    /// True if a question needs the operation's business reference.
    pub(super) fn asks_by_reference(&self) -> bool {
        let unknown = |about| (about != Placeholder::Reference).then(String::new);
        self.templates().any(|(_, template)| template.0.fill(unknown).is_none())
    }

    fn templates(&self) -> impl Iterator<Item = (&'static str, &TemplateSetting)> {
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

/// A text with placeholders for properties of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSetting(pub Template);

impl<'de> Deserialize<'de> for TemplateSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}
