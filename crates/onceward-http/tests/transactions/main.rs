//! Handlers in a PostgreSQL transaction: rows and reply exist both, or neither. The tests are skipped
//! with a message if PostgreSQL is not installed.

#[path = "../common/mod.rs"]
mod common;
mod kill;
mod network;
mod outcomes;
mod shop;
mod suite;
