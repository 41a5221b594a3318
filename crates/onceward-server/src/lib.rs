//! The program `onceward`: a gateway that makes retries of any HTTP service safe.
//!
//! ```text
//! onceward gateway --upstream http://127.0.0.1:3000
//! ```

mod admin;
mod census;
pub mod cli;
pub mod config;
mod demo;
pub mod gateway;
mod health;
mod metrics;
mod run;
mod telemetry;
mod traces;
