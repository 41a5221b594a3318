//! Tools for testing outboxes, relays and sinks (feature `events`).
//!
//! - [`sink_conformance`]: the suite that every sink passes.
//! - [`delivery_history`]: what was committed and delivered, and what must hold of it.

pub mod delivery_history;
pub mod sink_conformance;
