//! Reports about requests: events and metrics, spans for traces, log lines.

mod event;
pub(crate) mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod trace;

pub use event::{DifferingPart, Event, Observer, ShadowDecision};
pub(crate) use log::{LogLimits, LoggedIntent};
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use trace::TRACE_TARGET;
pub(crate) use trace::Trace;
