//! The trace span of a protected request.

use onceward_core::{Disposition, Settled};
use tracing::Span;
use tracing::field::Empty;

use super::Event;

/// Target of the layer's spans, for filters. Spans that a subscriber filters out cost nothing.
pub const TRACE_TARGET: &str = "onceward::trace";

/// The span of one request; disabled without a subscriber.
#[derive(Clone)]
pub(crate) struct Trace(Span);

impl Trace {
    pub(crate) fn begin(operation: &str) -> Self {
        if !tracing::span_enabled!(target: TRACE_TARGET, tracing::Level::INFO) {
            return Self(Span::none());
        }
        Self(tracing::info_span!(
            target: TRACE_TARGET,
            "idempotency.claim",
            idempotency.operation = operation,
            idempotency.status = Empty,
            idempotency.state = Empty,
            idempotency.replayed = Empty,
            http.response.status_code = Empty,
        ))
    }

    /// The span that the handler runs in; `None` if it is disabled.
    pub(crate) fn span(&self) -> Option<Span> {
        (!self.0.is_disabled()).then(|| self.0.clone())
    }

    pub(crate) fn record(&self, event: Event) {
        if self.0.is_disabled() {
            return;
        }
        if !matches!(event, Event::Settled(..)) {
            self.0.record("idempotency.status", event.name());
            self.0.record("idempotency.replayed", matches!(event, Event::Replayed(_)));
        }
        if let Some(state) = state_after(event) {
            self.0.record("idempotency.state", state);
        }
    }

    pub(crate) fn record_status(&self, status: http::StatusCode) {
        if !self.0.is_disabled() {
            self.0.record("http.response.status_code", status.as_u16());
        }
    }
}

/// The state of the record after an event. Recorded once a request, because collectors do not
/// replace attributes: a granted request waits for its settlement.
fn state_after(event: Event) -> Option<&'static str> {
    match event {
        Event::InProgress | Event::Settled(_, Settled::Pending) => Some("running"),
        Event::Replayed(ended) => Some(ended.name()),
        Event::Settled(Disposition::Keep, Settled::Durable) => Some("completed"),
        Event::Settled(Disposition::Release, Settled::Durable) => Some("released"),
        Event::Unknown | Event::Settled(Disposition::Unknown, Settled::Durable) => Some("unknown"),
        Event::Contradicted | Event::Unconfirmed => Some("completed"),
        Event::Expired => Some("expired"),
        Event::Granted | Event::Settled(_, Settled::Superseded | Settled::Missing) => None,
        Event::Mismatch
        | Event::OtherCredentials
        | Event::ReferenceTaken
        | Event::OverQuota
        | Event::StoreDown
        | Event::StoreFull
        | Event::Draining
        | Event::RebuildFailed
        | Event::Unprotected => None,
        Event::Shadow(_) => None,
    }
}
