//! Finding out what became of an operation, from those who know.

mod answer;
mod http;
#[cfg(feature = "postgres")]
mod sql;

use std::sync::Arc;

use onceward_core::{Identity, Resolver};

use crate::config::{self, Config};
use crate::environment::NotSet;
use crate::gateway::TlsError;

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

/// The resolver that a configuration names. It belongs to the runtime that calls this.
pub(crate) fn open(
    config: &Config,
    identity: &Identity,
) -> Result<Option<Arc<dyn Resolver>>, ResolverError> {
    let Some(config::Resolver { http, sql }) = &config.resolver else { return Ok(None) };
    if let Some(settings) = http {
        let resolver = http::HttpResolver::new(settings, &config.upstream, identity.clone())?;
        return Ok(Some(Arc::new(resolver)));
    }
    #[cfg(feature = "postgres")]
    if let Some(settings) = sql {
        let resolver = Arc::new(sql::open(settings, identity.clone())?);
        let checked = Arc::clone(&resolver);
        // A server that is down for the moment is no reason not to start.
        tokio::spawn(async move {
            if let Err(error) = checked.check().await {
                tracing::error!(%error, "resolver.sql cannot be asked");
            }
        });
        return Ok(Some(resolver));
    }
    #[cfg(not(feature = "postgres"))]
    let _refused_by_the_configuration = sql;
    Ok(None)
}
