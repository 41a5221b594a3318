//! Stores for Onceward's records.
//!
//! Every store runs the core's truth table and passes the same conformance suite. Each is behind a
//! feature of the same name:
//!
//! | feature | store |
//! |---|---|
//! | `embedded` | `embedded::EmbeddedStore`: durable in one directory, without a server |
//! | `postgres` | `postgres::PostgresStore`: for many processes, and for effects in the same commit |
//! | `redis` | `redis::RedisStore`: a Redis or Valkey server, with replicas or as a cluster |
//! | `tiered` | `tiered::TieredStore`: PostgreSQL decides, Redis answers what is settled |
//! | `sealed` | `sealed::SealedStore`: outcomes compressed and encrypted, over any store |
//!
//! The feature `archive` has `file_archive::FileArchive`, which keeps expired records before a store
//! removes them.
//!
//! [`connect`] opens any of them by its URL. [`copy`](copy()) and [`dual::DualStore`] move records
//! from one store to another.
//!
//! `codec` has the bytes of a record, for `embedded` and `tiered`; `recent_grants` has what this
//! process was granted, for the two decorators.

// A panic here would turn a known outcome into an unknown one.
#![warn(clippy::unwrap_used, clippy::expect_used)]

#[cfg(any(feature = "embedded", feature = "tiered"))]
mod codec;
mod connect;
mod copy;
pub mod dual;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "archive")]
pub mod file_archive;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sealed", feature = "tiered"))]
mod recent_grants;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sealed")]
pub mod sealed;
#[cfg(feature = "tiered")]
pub mod tiered;

#[cfg(feature = "embedded")]
pub use connect::embedded_at;
#[cfg(feature = "postgres")]
pub use connect::postgres_at;
pub use connect::{Connect, ConnectError, SharedStore, connect};
pub use copy::{Copied, DifferenceKind, RecordDifference, Verified, copy, verify};
