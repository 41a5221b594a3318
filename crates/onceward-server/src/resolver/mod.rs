//! The configured resolver: asks a URL or a query what became of an operation.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | opening the resolver, and the probe that it must pass first |
//! | `answer` | what a resolver answers, as JSON or as a row |
//! | `http` | asks a URL |
//! | `sql` | asks PostgreSQL |

mod answer;
mod http;
#[cfg(feature = "postgres")]
mod sql;

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
#[cfg(feature = "postgres")]
use onceward_core::StoreError;
use onceward_core::{BoxError, Finding, Identity, Record, Resolver, Since, Verdict};
use onceward_http::{ResponseBody, outcome_head};
#[cfg(feature = "postgres")]
use onceward_stores::postgres::SqlResolver;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::api::OutcomeRules;
use crate::config::{self, Config, NotSet};
#[cfg(feature = "postgres")]
use crate::error_chain::error_chain;
use crate::net::TlsError;

/// Why a resolver cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolverError {
    /// The environment variable of its token is not set.
    #[error("resolver.http.token_env: {0}")]
    Token(#[from] NotSet),
    /// Its token cannot be sent in a header.
    #[error("resolver.http.token_env: the token has characters that a header cannot have")]
    NotAToken,
    /// The certificate authorities cannot be loaded.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address of the database is not valid.
    #[cfg(feature = "postgres")]
    #[error("resolver.sql.url: {0}")]
    Sql(#[from] onceward_stores::postgres::OpenError),
}

/// Why the probe, a question about an operation that does not exist, did not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// No answer. The service may not be up yet.
    #[error("{0}")]
    Unreachable(String),
    /// The answer does not have the form of a resolver's. The URL may be wrong.
    #[error("{0}")]
    NoResolver(String),
    /// The answer says that the operation happened, or the query itself fails.
    #[error("{0}")]
    Untrue(String),
}

/// Pause between probes until one passes.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The configured resolver. It belongs to the runtime that opened it.
///
/// Its first question, the probe, is about an operation that does not exist. A resolver that
/// answers *happened* would do so for every operation and is not trusted.
pub(crate) struct ConfiguredResolver {
    source: Source,
    passed: OnceCell<()>,
    /// Which bodies are stored.
    outcome_rules: ArcSwap<OutcomeRules>,
}

enum Source {
    Http(Box<http::HttpResolver>),
    #[cfg(feature = "postgres")]
    Sql(Box<SqlResolver>),
}

/// Opens the configured resolver. Asks nothing yet.
pub(crate) fn open(
    config: &Config,
    identity: &Identity,
) -> Result<Option<Arc<ConfiguredResolver>>, ResolverError> {
    let Some(config::Resolver { http, sql, since }) = &config.resolver else { return Ok(None) };
    let since = since.map_or(Since::FirstUse, |it| Since::At(it.0));
    let opened = |source| {
        let (passed, outcome_rules) =
            (OnceCell::new(), ArcSwap::from_pointee(OutcomeRules::of(config)));
        Ok(Some(Arc::new(ConfiguredResolver { source, passed, outcome_rules })))
    };
    if let Some(settings) = http {
        let identity = identity.clone();
        let resolver = http::HttpResolver::new(settings, &config.upstream, since, identity)?;
        return opened(Source::Http(Box::new(resolver)));
    }
    #[cfg(feature = "postgres")]
    if let Some(settings) = sql {
        let resolver = sql::open(settings, since, identity.clone())?;
        return opened(Source::Sql(Box::new(resolver)));
    }
    #[cfg(not(feature = "postgres"))]
    let _refused_by_the_configuration = sql;
    Ok(None)
}

impl ConfiguredResolver {
    /// Replaces the rules of outcomes, from the next answer on.
    pub(crate) fn replace_outcome_rules(&self, rules: Arc<OutcomeRules>) {
        self.outcome_rules.store(rules);
    }

    fn resolver(&self) -> &dyn Resolver {
        match &self.source {
            Source::Http(resolver) => &**resolver,
            #[cfg(feature = "postgres")]
            Source::Sql(resolver) => &**resolver,
        }
    }

    /// Asks about an operation that does not exist, unless a probe passed before.
    pub(crate) async fn probe(&self) -> Result<(), ProbeError> {
        let probe = || async {
            match &self.source {
                Source::Http(resolver) => resolver.probe().await,
                #[cfg(feature = "postgres")]
                Source::Sql(resolver) => resolver.check().await.map_err(|error| sql_probe(&error)),
            }
        };
        self.passed.get_or_try_init(probe).await.copied()
    }

    /// Probes until one passes, and logs why it does not. Nothing waits for it: the service may
    /// not be up yet.
    pub(crate) async fn probe_until_passed(self: Arc<Self>) {
        let mut logged = None;
        while let Err(error) = self.probe().await {
            let kind = Some(discriminant(&error));
            if logged != kind {
                tracing::warn!("{error}; unknown operations stay unknown");
                logged = kind;
            }
            sleep(PROBE_INTERVAL).await;
        }
        tracing::debug!("the resolver answers");
    }
}

#[async_trait]
impl Resolver for ConfiguredResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        match self.probe().await {
            // A malformed answer is reported for each operation.
            Ok(()) | Err(ProbeError::NoResolver(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let Finding { verdict, evidence } = self.resolver().resolve(record).await?;
        let omit = self.outcome_rules.load().response_body(&record.scope) == ResponseBody::Omit;
        let verdict = match verdict {
            Verdict::Happened(outcome) if omit => Verdict::Happened(outcome_head(&outcome)),
            verdict => verdict,
        };
        Ok(Finding { verdict, evidence })
    }

    fn name(&self) -> &str {
        self.resolver().name()
    }

    fn address(&self) -> String {
        self.resolver().address()
    }

    fn since(&self) -> Since {
        self.resolver().since()
    }

    fn goes_by_absence(&self) -> bool {
        self.resolver().goes_by_absence()
    }
}

#[cfg(feature = "postgres")]
fn sql_probe(error: &BoxError) -> ProbeError {
    // Database drivers put the reason into the causes.
    let text = format!("resolver.sql: {}", error_chain(&**error));
    if error.is::<StoreError>() { ProbeError::Unreachable(text) } else { ProbeError::Untrue(text) }
}
