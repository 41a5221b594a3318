//! Requests that are still running when the gateway's time to stop is over.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, StatusCode};

use super::listener::{Shutdown, Stop};
use super::problem::Problem;

/// Returns when running requests are to be answered without their upstream.
pub(super) async fn cut_off(mut stop: Stop) {
    if stop.wait_for(|running| *running == Shutdown::CutOff).await.is_err() {
        // The gateway is gone without a word: it ends as in a crash.
        std::future::pending::<()>().await;
    }
}

/// What is known of a running request, for its answer.
pub(super) struct RunningRequest {
    /// Shutdown it again does no harm.
    idempotent: bool,
    guarded: AtomicBool,
}

impl RunningRequest {
    pub(super) fn new(method: &Method) -> Self {
        Self { idempotent: method.is_idempotent(), guarded: AtomicBool::new(false) }
    }

    /// It has a key, by which a retry is known.
    pub(super) fn is_guarded(&self) {
        self.guarded.store(true, Ordering::Relaxed);
    }

    /// The answer.
    pub(super) fn problem(&self) -> Problem<'static> {
        let guarded = self.guarded.load(Ordering::Relaxed);
        let detail = if guarded {
            "The gateway stopped before the service had answered. The operation may have been \
             executed. Send the same request again with the same key to learn what became of it."
        } else {
            "The gateway stopped before the service had answered. The request may have been \
             executed."
        };
        Problem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "GATEWAY_STOPPING",
            title: "The gateway is stopping",
            detail,
            retryable: guarded || self.idempotent,
            same_key: guarded,
            operation: None,
        }
    }
}
