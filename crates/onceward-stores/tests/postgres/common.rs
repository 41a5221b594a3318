//! A server for tests that do not disturb it, schemas of their own on it, and short functions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};
use onceward_testkit::proxy::Proxy;
use tokio_postgres::{Client, NoTls};

pub(crate) use crate::calls::{
    DAY, complete, eventually, granted, id, long, outcome, replay, request, scope, settle,
};

/// A PostgreSQL for all tests that neither kill nor pause it. Without fsync, as its cost is not
/// under test.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| or_skip(Postgres::default().fsync(false).start())).as_ref()
}

/// A name that no other test of this process has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{prefix}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn fresh_schema() -> Schema {
    Schema::new(fresh_name("test")).unwrap()
}

/// Few connections, as many stores share one server.
pub(crate) fn small() -> Settings {
    Settings { schema: fresh_schema(), connections: 2, ..Settings::default() }
}

pub(crate) async fn open(server: &Server) -> PostgresStore {
    PostgresStore::open(server.url(), small()).await.unwrap()
}

/// A plain connection.
pub(crate) async fn plain(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A proxy in front of a server, and the server's URL through it.
pub(crate) async fn proxied(server: &Server) -> (Proxy, String) {
    let proxy = Proxy::to(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    (proxy, url)
}

/// Waits until no session of this name is left: everything that a dead process had sent is done or
/// rolled back. An idle session may not have read it yet.
pub(crate) async fn sessions_have_ended(client: &Client, name: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let gone = async || client.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) == 0;
    eventually("its sessions have ended", gone).await;
}

/// Waits until no transaction is open and nothing runs in sessions of this name.
pub(crate) async fn nothing_is_open(client: &Client, name: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 \
               AND state <> 'idle'";
    let idle = async || client.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) == 0;
    eventually("nothing is open", idle).await;
}
