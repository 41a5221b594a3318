#![doc = include_str!("../../../README.md")]

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use onceward_core::*;
#[cfg(feature = "macros")]
pub use onceward_macros::idempotent;
