//! Logs, metrics and traces.
//!
//! | file | contents |
//! |---|---|
//! | `logs` | the tracing subscriber: filter, format |
//! | `log_throttle` | rate limit for log lines that many requests could cause |
//! | `metrics` | Prometheus metrics |
//! | `traces` | spans, continued from callers and sent by OTLP |

mod log_throttle;
mod logs;
mod metrics;
pub(crate) mod traces;

pub(crate) use log_throttle::LogThrottle;
pub(crate) use logs::{check, start};
pub(crate) use metrics::Metrics;
