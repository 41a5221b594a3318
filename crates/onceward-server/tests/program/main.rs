//! The real program as a process: signals, files, kills, and a service that counts effects.

mod canary;
mod counting_service;
mod demo;
mod kills;
mod log_lines;
mod loops;
mod pair;
mod ports;
mod process;
mod recording_server;
mod regions;
mod runbook;
mod servers;
mod settings;
mod store_mistakes;
mod telemetry;
mod threats;
mod transcript;
mod upstream;
