//! A PostgreSQL for tests that do not disturb it, and outboxes of their own on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_events::{Event, Outbox, OutboxSettings};
use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::tokio_postgres::{Client, NoTls, connect};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};

/// A PostgreSQL for all tests that neither kill nor pause it. Without fsync, as its cost is not
/// under test.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| or_skip(Postgres::default().fsync(false).start())).as_ref()
}

/// A schema that no other test of this process has.
pub(crate) fn fresh_schema() -> Schema {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    Schema::new(format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// A plain connection.
pub(crate) async fn plain(server: &Server) -> Client {
    let (client, connection) = connect(server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// An outbox with its tables, a connection, and the schema's name.
pub(crate) struct Fixture {
    pub(crate) outbox: Outbox,
    pub(crate) client: Client,
    pub(crate) schema: Schema,
}

impl Fixture {
    pub(crate) async fn new(server: &Server) -> Self {
        let schema = fresh_schema();
        let outbox =
            Outbox::new(OutboxSettings { schema: schema.clone(), ..OutboxSettings::default() });
        let mut client = plain(server).await;
        outbox.migrate(&mut client).await.unwrap();
        Self { outbox, client, schema }
    }

    /// A store in the same schema.
    pub(crate) async fn store(&self, server: &Server) -> PostgresStore {
        let settings =
            Settings { schema: self.schema.clone(), connections: 2, ..Settings::default() };
        PostgresStore::open(server.url(), settings).await.unwrap()
    }

    /// The types of an aggregate's events in the outbox, in the order of their positions.
    pub(crate) async fn types_of(&self, aggregate: &str) -> Vec<String> {
        let sql = format!(
            "SELECT type FROM {}.outbox_event WHERE aggregateid = $1 ORDER BY position",
            self.schema
        );
        let rows = self.client.query(&sql, &[&aggregate]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Waits until something is so. Fails after half a minute.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within half a minute: {what}");
}

/// An event about an order.
pub(crate) fn event(order: &str, event_type: &str) -> Event {
    Event::json("order", order, event_type, &serde_json::json!({ "order": order })).unwrap()
}
