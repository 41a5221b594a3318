//! Responses to requests that are still running when the drain time is over.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use onceward_http::ProblemDetails;

use super::listener::{Shutdown, Stop};
use super::problem::GatewayCode;

/// Returns when running requests must be answered without their upstream.
pub(super) async fn cut_off(mut stop: Stop) {
    if stop.wait_for(|running| *running == Shutdown::CutOff).await.is_err() {
        // The gateway was dropped: it ends as in a crash.
        std::future::pending::<()>().await;
    }
}

/// The properties of a running request that decide its response.
pub(super) struct RunningRequest {
    /// The method is idempotent, so the request may be sent again without a key.
    idempotent: bool,
    protected: AtomicBool,
}

impl RunningRequest {
    pub(super) fn new(method: &Method) -> Self {
        Self { idempotent: method.is_idempotent(), protected: AtomicBool::new(false) }
    }

    /// Marks the request as protected: a retry is recognised by its key.
    pub(super) fn is_protected(&self) {
        self.protected.store(true, Ordering::Relaxed);
    }

    /// The response.
    pub(super) fn problem(&self) -> ProblemDetails<'static> {
        let protected = GatewayCode::Stopping.details();
        if self.protected.load(Ordering::Relaxed) {
            return protected;
        }
        ProblemDetails {
            retryable: self.idempotent,
            same_key: false,
            detail: "The gateway stopped before the service had answered. The request may have \
                     been executed.",
            ..protected
        }
    }
}
