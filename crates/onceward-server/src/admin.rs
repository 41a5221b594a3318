//! What operators ask: metrics, and whether the gateway is alive and ready.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::census::Census;
use crate::health::Health;
use crate::metrics::Metrics;

/// Answers operators.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) census: Census,
    pub(crate) health: Health,
}

impl Admin {
    /// Serves an address until its task is dropped; says which one it is.
    pub(crate) async fn listen(
        self,
        address: SocketAddr,
    ) -> io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((address, tokio::spawn(self.accept(listener))))
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let admin = self.clone();
            let service = service_fn(move |request| {
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(admin.answer(&request).await) }
            });
            tokio::spawn(async move {
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .serve_connection(TokioIo::new(stream), service);
                served.await.ok(); // a connection that breaks is the client's affair
            });
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        }
        match request.uri().path() {
            "/live" => text(StatusCode::OK, "alive\n"),
            "/ready" => self.ready().await,
            "/metrics" => {
                let stats = self.census.stats().await;
                let mut response = text(StatusCode::OK, self.metrics.text(stats.as_ref()));
                let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(open));
                response
            }
            _ => text(StatusCode::NOT_FOUND, "/metrics, /live and /ready are here\n"),
        }
    }

    /// Ready is who can claim and has somebody to ask.
    async fn ready(&self) -> Response<Full<Bytes>> {
        if let Some(trouble) = self.census.trouble().await {
            return text(StatusCode::SERVICE_UNAVAILABLE, format!("the store: {trouble}\n"));
        }
        match self.health.trouble() {
            None => text(StatusCode::OK, "ready\n"),
            Some(trouble) => {
                text(StatusCode::SERVICE_UNAVAILABLE, format!("the upstream: {trouble}\n"))
            }
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
