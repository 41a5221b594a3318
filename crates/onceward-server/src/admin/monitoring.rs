//! Metrics, liveness and readiness of the gateway.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use onceward_core::Engine;

use crate::backend::{Readiness, StoreProbe};
use crate::net::UpstreamHealth;
use crate::telemetry::Metrics;

/// Serves `/metrics`, `/live` and `/ready`.
#[derive(Clone)]
pub(crate) struct Monitoring {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) engine: Engine,
    pub(crate) probe: StoreProbe,
    pub(crate) upstream: UpstreamHealth,
}

impl Monitoring {
    /// The routes.
    pub(crate) fn router(self) -> Router {
        let paths = "Not found. This address has /metrics, /live and /ready.\n";
        Router::new()
            .route("/live", get(async || text(StatusCode::OK, "alive\n")))
            .route("/ready", get(async |State(monitoring): State<Self>| monitoring.ready().await))
            .route(
                "/metrics",
                get(async |State(monitoring): State<Self>| monitoring.metrics().await),
            )
            .fallback(async move || text(StatusCode::NOT_FOUND, paths))
            .with_state(self)
    }

    async fn metrics(&self) -> Response {
        let (stats, counted) = self.probe.stats().await;
        let metrics = self.metrics.text(stats.as_ref(), counted, &self.engine);
        let mut response = text(StatusCode::OK, metrics);
        let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(open));
        response
    }

    /// Ready: the store grants claims and the upstream answers.
    async fn ready(&self) -> Response {
        let warnings = match self.probe.readiness().await {
            Readiness::Ready { warnings } => warnings,
            Readiness::NotReady(reason) => {
                return text(StatusCode::SERVICE_UNAVAILABLE, format!("the store: {reason}\n"));
            }
        };
        if let Some(trouble) = self.upstream.trouble() {
            return text(StatusCode::SERVICE_UNAVAILABLE, format!("the upstream: {trouble}\n"));
        }
        let warned = warnings.iter().map(|warning| format!("warning: the store: {warning}\n"));
        text(
            StatusCode::OK,
            std::iter::once("ready\n".to_owned()).chain(warned).collect::<String>(),
        )
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (status, body.into()).into_response()
}
