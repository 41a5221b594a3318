//! The operator's commands and the admin API, as their users meet them.

#[allow(dead_code, reason = "the tests of the program use all of it")]
#[path = "../program/book.rs"]
mod book;
mod commands;
mod decisions;
mod interrupts;
mod matrix;
mod trouble;
mod upkeep;
mod world;
