//! Two tiers, and short functions for tests.

use std::sync::Arc;

use onceward_services::{Reply, Server};
use onceward_stores::postgres::PostgresStore;
use onceward_stores::tiered::{Settings, TieredStore};

use crate::postgres::common as postgres;
use crate::redis::common as redis;

/// Settings with a prefix of their own.
pub(crate) fn settings() -> Settings {
    let prefix = postgres::fresh_name("cache");
    // Long, as other tests make the machine slow.
    Settings { prefix, timeout: std::time::Duration::from_secs(5), ..Settings::default() }
}

/// A schema on the shared PostgreSQL, behind the shared Redis or another one.
pub(crate) struct Tiers {
    pub(crate) redis: &'static Server,
    pub(crate) settings: Settings,
    postgres: onceward_stores::postgres::Settings,
    server: &'static Server,
}

impl Tiers {
    pub(crate) fn shared() -> Option<Self> {
        let (redis, server) = (redis::shared()?, postgres::shared()?);
        Some(Self { redis, settings: settings(), postgres: postgres::small(), server })
    }

    pub(crate) async fn authority(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::open(self.server.url(), self.postgres.clone()).await.unwrap())
    }

    /// The store of one process.
    pub(crate) async fn open(&self) -> TieredStore {
        self.open_on(self.redis).await
    }

    pub(crate) async fn open_on(&self, redis: &Server) -> TieredStore {
        let settings = self.settings.clone();
        TieredStore::open(self.authority().await, redis.url(), settings).await.unwrap()
    }

    /// Lets calls wait this long for the transaction of another.
    pub(crate) fn wait_for_locks(&mut self, longest: std::time::Duration) {
        self.postgres.lock_timeout = longest;
        self.postgres.statement_timeout = longest;
    }

    pub(crate) fn schema(&self) -> &onceward_stores::postgres::Schema {
        &self.postgres.schema
    }

    pub(crate) fn server(&self) -> &'static Server {
        self.server
    }

    pub(crate) fn name(&self, key: &str) -> String {
        let digits = crate::calls::id(key).as_bytes().map(|it| format!("{it:02x}"));
        format!("{}:{}", self.settings.prefix, digits.concat())
    }

    /// The cache entry of a key.
    pub(crate) async fn entry(&self, key: &str) -> Option<Vec<u8>> {
        raw::get(self.redis, &self.name(key)).await.filter(|entry| entry.len() > 1)
    }

    pub(crate) async fn put_entry(&self, key: &str, entry: &[u8]) {
        raw::set(self.redis, &self.name(key), entry).await;
    }

    pub(crate) fn has_entry(&self, key: &str) -> bool {
        let length = redis::tell(self.redis, &["STRLEN", &self.name(key)]);
        matches!(length, Reply::Text(bytes) if bytes != "0" && bytes != "1")
    }
}

/// Bytes that are not text.
pub(crate) mod raw {
    use onceward_services::Server;
    use redis::AsyncCommands as _;
    use redis::aio::MultiplexedConnection;

    async fn connected(server: &Server) -> MultiplexedConnection {
        let client = redis::Client::open(server.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) async fn get(server: &Server, name: &str) -> Option<Vec<u8>> {
        connected(server).await.get(name).await.unwrap()
    }

    pub(crate) async fn set(server: &Server, name: &str, value: &[u8]) {
        connected(server).await.set::<_, _, ()>(name, value).await.unwrap();
    }

    pub(crate) async fn names(server: &Server, prefix: &str) -> Vec<String> {
        connected(server).await.keys(format!("{prefix}:*")).await.unwrap()
    }
}
