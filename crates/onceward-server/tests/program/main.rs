//! The real program, started as its user would: signals, files, kills, and a service behind
//! it that keeps a ledger.

mod book;
mod canary;
mod demo;
mod ear;
mod kills;
mod loops;
mod pair;
mod ports;
mod process;
mod servers;
mod settings;
mod store_mistakes;
mod telemetry;
mod threats;
mod upstream;
