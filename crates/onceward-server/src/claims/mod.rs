//! The claims API: the right to run for workers in any language, as JSON over HTTP.
//!
//! A request walks: `access` (whose token, and for what) → `claim`, `settle`, `look` or
//! `batch` (what is asked for, checked) → the store. Nothing is remembered between requests:
//! a worker may send each of them to another process on the same store, and send any of them
//! again.

mod access;
mod batch;
mod claim;
mod fingerprint;
mod lease;
mod lookup;
mod openapi;
mod result;
mod sending;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;
use onceward_core::{Effect, Engine, StoreError, StoreErrorKind, SystemAmbient};
use onceward_stores::SharedStore;
use tokio::time::timeout;

use crate::api::{ApiProblem, CurrentApiSettings, body_limit};
use crate::backend::Backend;
use crate::config;

/// Longest time for one call of the store: drivers were seen to hang while they reconnect.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers workers.
pub(crate) struct Claims {
    store: SharedStore,
    engine: Engine,
    settings: CurrentApiSettings,
    limits: config::Claims,
    ambient: SystemAmbient,
}

impl Claims {
    /// The API on an engine and its store.
    pub(crate) fn new(
        backend: &Backend,
        limits: config::Claims,
        settings: CurrentApiSettings,
    ) -> Self {
        let (store, engine) = (backend.store.clone(), backend.engine.clone());
        Self { store, engine, settings, limits, ambient: SystemAmbient::new() }
    }

    /// Its routes.
    pub(crate) fn router(self) -> Router {
        let limit = body_limit(self.limits.request_max_bytes.0);
        Router::new()
            .route("/v1/claims", post(claim::post).get(lookup::get_by_key))
            .route("/v1/claims/{operation_id}", get(lookup::get))
            .route("/v1/claims/renew", post(settle::renew))
            .route("/v1/claims/complete", post(settle::complete))
            .route("/v1/claims/fail", post(settle::fail))
            .route("/v1/claims/unknown", post(settle::unknown))
            .route("/v1/claims/release", post(settle::release))
            .route("/v1/claims/batch", post(batch::claims))
            .route("/v1/settlements/batch", post(batch::settlements))
            .route("/openapi.json", get(openapi::get))
            .fallback(async || ApiProblem::not_found("See /openapi.json for what there is."))
            .method_not_allowed_fallback(async || method_not_allowed())
            .layer(limit)
            .with_state(Arc::new(self))
    }
}

fn method_not_allowed() -> ApiProblem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    ApiProblem::new(status, "METHOD_NOT_ALLOWED", "There is something here, by another method")
        .detail("See Allow, and /openapi.json.")
}

/// A call of the store, which ends.
async fn with_timeout<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = StoreErrorKind::Timeout;
    timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(StoreError::new("claims", late, Effect::MayHaveBeenApplied)))
}
