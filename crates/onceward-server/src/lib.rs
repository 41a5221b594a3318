//! The program `onceward`: a gateway that makes retries of any HTTP service safe.
//!
//! ```text
//! onceward gateway --upstream http://127.0.0.1:3000
//! ```

mod address;
mod admin;
mod api;
mod census;
mod claims;
pub mod cli;
mod commands;
pub mod config;
mod demo;
mod desk;
mod environment;
pub mod gateway;
mod health;
mod manual;
mod metrics;
mod rarely;
mod resolver;
mod run;
mod service_manager;
mod store;
mod telemetry;
mod traces;
