//! What the layer reports about requests: events for metrics, spans for traces.

mod event;
mod trace;

pub use event::{DifferingPart, Event, Observer, ShadowDecision};
pub use trace::TRACE_TARGET;
pub(crate) use trace::Trace;
