//! The program `onceward`: a gateway that makes retries of any HTTP service safe.
//!
//! ```text
//! onceward gateway --upstream http://127.0.0.1:3000
//! ```
//!
//! Each folder uses only those below it:
//!
//! | folder | contents |
//! |---|---|
//! | `cli` | the commands: arguments, processes, signals, output |
//! | `contract` | what a configuration promises to the clients of the API |
//! | [`gateway`] | `Idempotency-Key` in front of an HTTP service |
//! | `claims`, `admin` | the claims API for workers, the admin API for operators |
//! | `api` | what the two APIs share: tokens, JSON bodies, problems, retention |
//! | `backend` | the store that a configuration names, and the engine on it |
//! | `resolver` | asks a URL or a query what became of an operation |
//! | `telemetry` | logs, metrics, traces |
//! | `net` | addresses, TLS, the HTTP client, timeouts of bodies and connections |
//! | [`config`] | `onceward.toml` |
//! | `error_chain` | an error printed with its causes |

mod admin;
mod api;
mod backend;
mod claims;
pub mod cli;
pub mod config;
mod contract;
mod error_chain;
pub mod gateway;
mod net;
mod resolver;
mod telemetry;
