//! Logs, metrics and traces.

mod log_throttle;
mod logs;
mod metrics;
pub(crate) mod traces;

pub(crate) use log_throttle::LogThrottle;
pub(crate) use logs::{check, start};
pub(crate) use metrics::Metrics;
