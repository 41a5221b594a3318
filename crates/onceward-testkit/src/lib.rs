//! Test tools for Onceward's stores, engine and servers.
//!
//! - [`conformance`]: one suite of facts for every store, decorated or not.
//! - [`model`]: random sequences of calls, compared with the core's truth table.
//! - [`faulty`]: a store that fails, delays, loses replies and loses data on demand.
//! - [`proxy`]: a TCP proxy that cuts, halves and delays messages between a store and its server.
//! - [`sim`]: several nodes and clients on simulated time, with crashes, pauses and lost
//!   messages; a seed repeats.
//! - `events` (feature `events`): the suite for sinks of events, and the checker of deliveries.
//! - `http` (feature `http`): the black-box suite for any server that claims to support the
//!   Idempotency-Key header.
//! - [`killed_process`]: child processes that are killed in the middle of their work.
//! - [`history`]: what happened in a run, and the invariants that must hold of it.
//!
//! Nothing here is ever linked into a user's build.

pub mod clock;
pub mod conformance;
pub mod dice;
#[cfg(feature = "events")]
pub mod events;
pub mod faulty;
pub mod history;
#[cfg(feature = "http")]
pub mod http;
pub mod killed_process;
pub mod model;
pub mod open_store;
pub mod proxy;
pub mod sim;
