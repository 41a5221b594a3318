//! Handlers in a transaction of PostgreSQL: rows and reply are there together, or neither is.
//! Tests are skipped where PostgreSQL is not installed, and say so.

#[path = "../common/mod.rs"]
mod common;
mod kill;
mod network;
mod outcomes;
mod shop;
mod suite;
