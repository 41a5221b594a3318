//! The claims API: claims for workers in any language, as JSON over HTTP.
//!
//! A request passes `access` (token and role), then `claim`, `settle`, `lookup` or `batch` (parsing
//! and validation), then the store. No state is kept between requests: a worker may send each of
//! them to another process on the same store, and send any of them again.
//!
//! | file | contents |
//! |---|---|
//! | `access` | the caller of a request, and the tenants it sees |
//! | `scope` | the scope and the key that a request names |
//! | `claim`, `fingerprint`, `result` | a claim, its fingerprint, the result of one that was settled |
//! | `lease`, `settle` | leases as JSON; renewing and settling |
//! | `batch` | up to 100 claims or settlements in one request |
//! | `lookup` | operations by id or key |
//! | `report` | metrics and log lines |
//! | `openapi` | the OpenAPI document |

mod access;
mod batch;
mod claim;
mod fingerprint;
mod lease;
mod lookup;
mod openapi;
mod report;
mod result;
mod scope;
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

use report::LogLimits;

/// Time limit of one store call: drivers were seen to hang while they reconnect.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The claims API.
pub(crate) struct Claims {
    store: SharedStore,
    engine: Engine,
    settings: CurrentApiSettings,
    limits: config::Claims,
    ambient: SystemAmbient,
    metrics: Arc<onceward_http::Metrics>,
    log_limits: LogLimits,
}

impl Claims {
    /// The API on an engine and its store.
    pub(crate) fn new(
        backend: &Backend,
        limits: config::Claims,
        settings: CurrentApiSettings,
    ) -> Self {
        let (store, engine) = (backend.store.clone(), backend.engine.clone());
        Self {
            store,
            engine,
            settings,
            limits,
            ambient: SystemAmbient::new(),
            metrics: Arc::clone(&backend.metrics.requests),
            log_limits: LogLimits::default(),
        }
    }

    /// The routes.
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
            .fallback(async || ApiProblem::not_found("/openapi.json lists all paths."))
            .method_not_allowed_fallback(async || method_not_allowed())
            .layer(limit)
            .with_state(Arc::new(self))
    }
}

fn method_not_allowed() -> ApiProblem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    ApiProblem::new(status, "METHOD_NOT_ALLOWED", "Method not allowed")
        .detail("The header Allow has the methods of this path; /openapi.json describes them.")
}

/// A store call with a time limit.
async fn with_timeout<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = StoreErrorKind::Timeout;
    timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(StoreError::new("claims", late, Effect::MayHaveBeenApplied)))
}
