#![doc = include_str!("../../../README.md")]

pub use onceward_core::*;
