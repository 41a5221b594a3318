//! Private servers for tests and benchmarks: PostgreSQL, PgBouncer, Redis with or without a
//! replica, a Redis Cluster of six nodes, NATS, Kafka with one broker or three, and Kafka Connect
//! with Debezium.
//!
//! Each runs on a loopback port and in a temporary directory of its own; servers that the
//! machine runs already are never touched. A [`Server`] can be stopped, killed, paused and
//! started again on the same port and data. Whatever happens to the process that started it,
//! a panic, Ctrl-C, `kill -9`, the server ends and its directory is removed.
//!
//! A test asks for what it needs, and is skipped where that is not installed:
//!
//! ```no_run
//! # fn test() {
//! let Some(postgres) = onceward_services::postgres() else { return };
//! assert_eq!(onceward_services::query(&postgres, "select 1").unwrap(), "1");
//! postgres.kill().unwrap();
//! postgres.start().unwrap();
//! # }
//! ```
//!
//! Under `CI` a missing server fails the test instead. `cargo xtask services install` installs
//! missing programs.
//!
//! Calls block. Signals take microseconds; a start takes up to seconds, so async code calls it
//! through `spawn_blocking`.

mod address;
mod cache;
mod error;
mod found;
mod guard;
mod home;
mod install;
mod kafka;
mod launch;
mod nats;
mod owner;
mod passing;
mod pgbouncer;
mod postgres;
mod program;
mod redis;
mod redis_cluster;
mod registry;
mod resp;
mod server;
mod skip;
mod tree;
mod wait;

pub use address::own_address;
pub use error::ServiceError;
pub use found::Found;
pub use install::{Plan, install, plan};
pub use kafka::{Access, Connect, Kafka, KafkaCluster, KafkaRecord, Topic};
pub use nats::Nats;
pub use passing::{MovedDatabase, age, is_primary};
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, query, query_in};
pub use program::Program;
pub use redis::{Redis, RedisPair};
pub use redis_cluster::RedisCluster;
pub use resp::{Reply, ask};
pub use server::Server;
pub use skip::{SKIPPED_FILE, or_skip, skips};

/// A PostgreSQL with the default settings, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn postgres() -> Option<Server> {
    or_skip(Postgres::default().start())
}

/// A PgBouncer in transaction mode before a PostgreSQL, or `None` where the test is to be
/// skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn pgbouncer(postgres: &Server) -> Option<Server> {
    or_skip(PgBouncer::before(postgres).start())
}

/// A Redis with the default settings, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn redis() -> Option<Server> {
    or_skip(Redis::default().start())
}

/// A Redis with a replica, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn redis_with_replica() -> Option<RedisPair> {
    or_skip(Redis::default().start_with_replica())
}

/// A Redis Cluster of three primaries and three replicas, or `None` where the test is to be
/// skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn redis_cluster() -> Option<RedisCluster> {
    or_skip(RedisCluster::start(&Redis::default()))
}

/// A NATS with the default settings, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn nats() -> Option<Server> {
    or_skip(Nats::default().start())
}

/// A Kafka with the default settings, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn kafka() -> Option<Server> {
    or_skip(Kafka::default().start())
}

/// A Kafka cluster of three nodes, or `None` where the test is to be skipped.
///
/// # Panics
///
/// If it does not start, or is missing under `CI`.
pub fn kafka_cluster() -> Option<KafkaCluster> {
    or_skip(Kafka::default().start_cluster())
}
