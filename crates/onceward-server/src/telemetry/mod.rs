//! Logs, metrics and traces.
//!
//! | file | contents |
//! |---|---|
//! | `logs` | the tracing subscriber: filter, format |
//! | `metrics` | Prometheus metrics |
//! | `traces` | spans, continued from callers and sent by OTLP |

mod logs;
mod metrics;
pub(crate) mod traces;

pub(crate) use logs::{StartLines, check, start};
pub(crate) use metrics::{Metrics, RegionDecision};
