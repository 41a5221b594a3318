//! Servers, stores on them, and short functions for tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use onceward_services::is_primary;
use onceward_services::{RedisCluster, Reply, Server, ask};
use onceward_stores::redis::{RedisStore, Settings};

pub(crate) use crate::calls::{
    DAY, complete, granted, id, kills, long, outcome, replay, request, settle,
};

/// A server for all tests that do not disturb it; it ends with the process.
pub(crate) fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(onceward_services::redis).as_ref()
}

/// A cluster for all tests that do not disturb it.
pub(crate) fn shared_cluster() -> Option<&'static RedisCluster> {
    static SHARED: OnceLock<Option<RedisCluster>> = OnceLock::new();
    SHARED.get_or_init(onceward_services::redis_cluster).as_ref()
}

/// Settings with a prefix of their own.
pub(crate) fn settings() -> Settings {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("test-{}", STORES.fetch_add(1, Ordering::Relaxed));
    // Long, as other tests make the machine slow.
    Settings { prefix, timeout: Duration::from_secs(10), ..Settings::default() }
}

pub(crate) async fn open(server: &Server) -> RedisStore {
    RedisStore::open(server.url(), settings()).await.unwrap()
}

/// Returns a server's reply, which must not be an error.
pub(crate) fn tell(server: &Server, words: &[&str]) -> Reply {
    match ask(server, words).unwrap() {
        Reply::Error(error) => panic!("{words:?}: {error}"),
        reply => reply,
    }
}
