//! The resolver of a configuration: finds out what became of operations.

mod answer;
mod http;
#[cfg(feature = "postgres")]
mod sql;

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
#[cfg(feature = "postgres")]
use onceward_core::StoreError;
use onceward_core::{BoxError, Finding, Identity, Record, Resolver, Since};
#[cfg(feature = "postgres")]
use onceward_stores::postgres::SqlResolver;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::config::{self, Config, NotSet};
use crate::error_chain::error_chain;
use crate::net::TlsError;

/// Why a resolver cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolverError {
    /// Its token's variable is not there.
    #[error("resolver.http.token_env: {0}")]
    Token(#[from] NotSet),
    /// Its token is none.
    #[error("resolver.http.token_env: the token has characters that no header has")]
    NotAToken,
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The user's PostgreSQL.
    #[cfg(feature = "postgres")]
    #[error("resolver.sql.url: {0}")]
    Sql(#[from] onceward_stores::postgres::OpenError),
}

/// What is wrong with the answer about an operation that does not exist.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// There is none: perhaps the service is not up yet.
    #[error("{0}")]
    Unreachable(String),
    /// No resolver would answer so: perhaps the address is that of something else.
    #[error("{0}")]
    NoResolver(String),
    /// It is that the operation happened, or the question itself fails.
    #[error("{0}")]
    Untrue(String),
}

/// Pause between probes of a resolver that does not pass.
const PROBE_AGAIN: Duration = Duration::from_secs(10);

/// The resolver that a configuration names. It belongs to the runtime that opened it.
///
/// Its first question is about an operation that does not exist. One that says of this that it
/// happened would say so of everything, and is not believed.
pub(crate) struct ConfiguredResolver {
    source: Source,
    passed: OnceCell<()>,
}

enum Source {
    Http(Box<http::HttpResolver>),
    #[cfg(feature = "postgres")]
    Sql(Box<SqlResolver>),
}

/// Opens the resolver that a configuration names. Nothing is asked yet.
pub(crate) fn open(
    config: &Config,
    identity: &Identity,
) -> Result<Option<Arc<ConfiguredResolver>>, ResolverError> {
    let Some(config::Resolver { http, sql, since }) = &config.resolver else { return Ok(None) };
    let since = since.map_or(Since::FirstUse, |it| Since::At(it.0));
    let opened =
        |source| Ok(Some(Arc::new(ConfiguredResolver { source, passed: OnceCell::new() })));
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
    fn resolver(&self) -> &dyn Resolver {
        match &self.source {
            Source::Http(resolver) => &**resolver,
            #[cfg(feature = "postgres")]
            Source::Sql(resolver) => &**resolver,
        }
    }

    /// Asks about an operation that does not exist, unless that was answered well before.
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

    /// Probes until the answer is well, and logs what is wrong with it. Nothing is held up
    /// meanwhile: the service may not be up yet.
    pub(crate) async fn probe_until_passed(self: Arc<Self>) {
        let mut told = None;
        while let Err(error) = self.probe().await {
            let kind = Some(discriminant(&error));
            if told != kind {
                tracing::warn!("{error}; operations whose outcome is unknown stay so");
                told = kind;
            }
            sleep(PROBE_AGAIN).await;
        }
        tracing::debug!("the resolver answers");
    }
}

#[async_trait]
impl Resolver for ConfiguredResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        match self.probe().await {
            // What is no answer of a resolver is judged question by question.
            Ok(()) | Err(ProbeError::NoResolver(_)) => self.resolver().resolve(record).await,
            Err(error) => Err(error.into()),
        }
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
    // Drivers say little in the first line.
    let told = format!("resolver.sql: {}", error_chain(&**error));
    if error.is::<StoreError>() { ProbeError::Unreachable(told) } else { ProbeError::Untrue(told) }
}
