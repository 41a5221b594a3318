//! The span of a guarded request, for whoever collects traces.

use onceward_core::{Disposition, Settled};
use tracing::Span;
use tracing::field::Empty;

use crate::observe::Event;

/// The target of the spans that the layer makes, for filters. A subscriber that does not
/// want them keeps them from costing anything.
pub const TRACE_TARGET: &str = "onceward::trace";

/// What is told about one request.
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

    /// The span that the work runs in; `None` if nobody looks.
    pub(crate) fn span(&self) -> Option<Span> {
        (!self.0.is_disabled()).then(|| self.0.clone())
    }

    pub(crate) fn tell(&self, event: Event) {
        if self.0.is_disabled() {
            return;
        }
        if !matches!(event, Event::Settled(..)) {
            self.0.record("idempotency.status", event.name());
            self.0.record("idempotency.replayed", event == Event::Replayed);
        }
        if let Some(state) = state_after(event) {
            self.0.record("idempotency.state", state);
        }
    }

    pub(crate) fn answered(&self, status: http::StatusCode) {
        if !self.0.is_disabled() {
            self.0.record("http.response.status_code", status.as_u16());
        }
    }
}

/// Where the record stands, as far as the event tells. Told once a request: collectors do not
/// replace what was told before, so one that was granted waits for its settlement.
fn state_after(event: Event) -> Option<&'static str> {
    match event {
        Event::InProgress | Event::Settled(_, Settled::Pending) => Some("running"),
        Event::Replayed | Event::Settled(Disposition::Keep, Settled::Durable) => Some("completed"),
        Event::Settled(Disposition::Release, Settled::Durable) => Some("released"),
        Event::Unknown | Event::Settled(Disposition::Unknown, Settled::Durable) => Some("unknown"),
        Event::Expired => Some("expired"),
        Event::Granted | Event::Settled(_, Settled::Superseded | Settled::Missing) => None,
        Event::Mismatch
        | Event::OtherCredentials
        | Event::ReferenceTaken
        | Event::OverQuota
        | Event::StoreDown
        | Event::Unguarded => None,
        Event::Observed(_) => None,
    }
}
