//! The operator's commands and the admin API of the real program.

mod archive;
mod commands;
mod corrections;
#[allow(dead_code, reason = "the tests in tests/program use all of it")]
#[path = "../program/counting_service.rs"]
mod counting_service;
mod decisions;
mod fixtures;
mod interrupts;
mod matrix;
mod trouble;
mod upkeep;
