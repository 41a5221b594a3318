//! Tests of the outbox and its relay. Tests whose server is not installed are skipped with a
//! message.

mod common;
mod publishing;
#[cfg(feature = "sqlx")]
mod publishing_sqlx;
mod recording_sink;
mod relaying;
mod sinks;
