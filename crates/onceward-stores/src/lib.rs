//! Where Onceward keeps its records.
//!
//! Every store here runs the core's one truth table and passes the one conformance suite.
//! Each is behind a feature named after it:
//!
//! - `embedded`: `embedded::EmbeddedStore`, durable in one directory, without a server.
//! - `postgres`: `postgres::PostgresStore`, for many processes, and for effects in the same commit.
//! - `redis`: `redis::RedisStore`, on a Redis or Valkey server, with replicas or as a cluster.
//! - `tiered`: `tiered::Tiered`, PostgreSQL with Redis before it for what is settled already.
//! - `sealed`: `sealed::Sealed`, outcomes compressed and encrypted, over any store.
//!
//! [`connect`] opens any of them by its URL. [`copy`](copy()) and [`dual::DualStore`] move from one to
//! another.

// A panic in here would make an outcome unknown that is known.
#![warn(clippy::unwrap_used, clippy::expect_used)]

#[cfg(any(feature = "embedded", feature = "tiered"))]
mod codec;
mod connect;
mod copy;
pub mod dual;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(any(feature = "sealed", feature = "tiered"))]
mod grants;
#[cfg(feature = "postgres")]
pub mod postgres;
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
pub use copy::{Copied, Difference, Differs, Verified, copy, verify};
