//! The stores of the shop. All tests share one server of each kind, and have a part of it each.

use std::sync::{Arc, OnceLock};

use onceward::stores::{Connect, ConnectError, SharedStore};
use onceward_services::{Reply, Server, ask};
use tempfile::TempDir;

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Embedded,
    Postgres,
    Redis,
    /// PostgreSQL behind Redis.
    Tiered,
}

/// Address of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreAddress {
    pub(crate) url: String,
    /// URL of the Redis in front of it.
    pub(crate) cache: Option<String>,
}

/// The store of a test.
pub(crate) struct ShopStore {
    pub(crate) kind: StoreKind,
    pub(crate) address: StoreAddress,
    redis: Option<Arc<Server>>,
    _directory: Option<TempDir>,
}

impl StoreAddress {
    pub(crate) async fn connect(&self) -> Result<SharedStore, ConnectError> {
        let connect = Connect::new(&self.url);
        let connect = match &self.cache {
            Some(cache) => connect.cache(cache),
            None => connect,
        };
        connect.open().await
    }
}

impl ShopStore {
    /// A store with a name of its own; `None` if a server is missing.
    pub(crate) fn new(kind: StoreKind, name: &str) -> Option<Self> {
        static REDIS: OnceLock<Option<Arc<Server>>> = OnceLock::new();
        let shared = || REDIS.get_or_init(|| onceward_services::redis().map(Arc::new)).clone();
        Self::on(kind, name, shared)
    }

    /// The same with a Redis of its own, which can be killed.
    pub(crate) fn with_own_redis(kind: StoreKind, name: &str) -> Option<Self> {
        Self::on(kind, name, || onceward_services::redis().map(Arc::new))
    }

    fn on(
        kind: StoreKind,
        name: &str,
        redis: impl FnOnce() -> Option<Arc<Server>>,
    ) -> Option<Self> {
        let (mut directory, mut server) = (None, None);
        let address = match kind {
            StoreKind::Embedded => {
                let records = directory.insert(tempfile::tempdir().unwrap()).path().join("records");
                StoreAddress { url: format!("file:{}", records.display()), cache: None }
            }
            StoreKind::Postgres => StoreAddress { url: postgres(name)?, cache: None },
            StoreKind::Redis => {
                let redis = server.insert(redis()?);
                StoreAddress { url: format!("{}?prefix={name}", redis.url()), cache: None }
            }
            StoreKind::Tiered => {
                let redis = server.insert(redis()?);
                let cache = Some(format!("{}?prefix={name}", redis.url()));
                StoreAddress { url: postgres(&format!("{name}_tiered"))?, cache }
            }
        };
        Some(Self { kind, address, redis: server, _directory: directory })
    }

    fn redis(&self) -> &Server {
        self.redis.as_ref().expect("a store with a Redis")
    }

    /// Kills Redis with SIGKILL.
    pub(crate) fn kill_redis(&self) {
        tokio::task::block_in_place(|| self.redis().kill().unwrap());
    }

    /// Starts Redis again, with its data.
    pub(crate) fn start_redis(&self) {
        tokio::task::block_in_place(|| self.redis().start().unwrap());
    }

    /// Deletes all data of Redis.
    pub(crate) fn flush_redis(&self) {
        let flushed = tokio::task::block_in_place(|| ask(self.redis(), &["FLUSHALL"]).unwrap());
        assert_eq!(flushed, Reply::from("OK"));
    }
}

/// URL of a separate schema on a server that all tests share.
fn postgres(schema: &str) -> Option<String> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(onceward_services::postgres).as_ref()?;
    Some(format!("{}?schema={schema}&connections=2", server.url()))
}
