//! The HTTP client: connections to the upstream, and whether a failed request was sent.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onceward_core::BoxError;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tower_service::Service;

use super::timeout_body::TimeoutBody;
use super::tls::{self, TlsError};
use crate::config::Upstream;

/// The body of a request on its way to a service.
pub(crate) type RequestBody = onceward_http::Body<TimeoutBody<Incoming>>;

/// Whether a failed request left this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// No byte was sent.
    No,
    /// Part of it may have been sent.
    Maybe,
}

/// A request that got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) sent: Sent,
    error: legacy::Error,
}

impl SendError {
    /// Returns whether an error of this type is among the causes.
    pub(crate) fn is_caused_by<E: Error + 'static>(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&self.error);
        while let Some(error) = cause {
            if error.is::<E>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A connection pool.
#[derive(Clone)]
pub(crate) struct Client {
    pool: legacy::Client<ConnectTimeout<HttpsConnector<HttpConnector>>, RequestBody>,
}

impl Client {
    /// Creates a client with an upstream's settings. Its connections belong to the runtime that
    /// uses it.
    pub(crate) fn new(upstream: &Upstream) -> Result<Self, TlsError> {
        let https = connector(upstream.ca.as_deref(), upstream.http2)?;
        let connector = ConnectTimeout { inner: https, limit: upstream.connect_timeout.0 };
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(upstream.idle.0)
            .pool_max_idle_per_host(upstream.idle_max)
            .http2_only(upstream.http2)
            .build(connector);
        Ok(Self { pool })
    }

    /// Sends a request once.
    ///
    /// The pool takes another connection if the first one closed before sending began. This is
    /// not a retry: nothing was sent.
    pub(crate) async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        self.pool.request(request).await.map_err(|error| {
            let sent = if error.is_connect() { Sent::No } else { Sent::Maybe };
            SendError { sent, error }
        })
    }
}

/// A connector with or without TLS, by the scheme of the URL.
pub(crate) fn connector(
    ca: Option<&Path>,
    http2: bool,
) -> Result<HttpsConnector<HttpConnector>, TlsError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let roots = client_tls(tls::roots(ca)?)?;
    let https = HttpsConnectorBuilder::new().with_tls_config(roots).https_or_http();
    Ok(if http2 {
        https.enable_http2().wrap_connector(http)
    } else {
        https.enable_http1().wrap_connector(http)
    })
}

fn client_tls(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    Ok(config.with_root_certificates(Arc::new(roots)).with_no_client_auth())
}

/// A connector with a timeout, TLS handshake included.
#[derive(Clone)]
struct ConnectTimeout<C> {
    inner: C,
    limit: Duration,
}

impl<C> Service<Uri> for ConnectTimeout<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (limit, connecting) = (self.limit, self.inner.call(to));
        Box::pin(async move {
            let late = || io::Error::new(ErrorKind::TimedOut, "connect timeout");
            timeout(limit, connecting).await.unwrap_or_else(|_| Err(late().into()))
        })
    }
}
