//! The outbox: events are rows that are committed together with the work that they report.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Outbox`, its settings and its tables |
//! | `publish` | publishing within a transaction |
//! | `sqlx_publish` | the same in transactions of sqlx |
//! | `sql/`, `migrations/` | statements and tables |

mod publish;
#[cfg(feature = "sqlx")]
mod sqlx_publish;

use std::sync::Arc;

use onceward_stores::postgres::{Migration, Migrations, OpenError, Schema, Server, Settings};
use tokio_postgres::Client;
use xxhash_rust::xxh3::xxh3_64;

pub use publish::{PublishError, Published};

/// The migrations of the outbox's tables.
pub const MIGRATIONS: Migrations = Migrations {
    versions: "outbox_version",
    list: &[Migration {
        version: 1,
        name: "outbox",
        oldest_reader: 1,
        sql: include_str!("migrations/0001_outbox.sql"),
    }],
};

/// Publishes events within transactions of PostgreSQL.
///
/// ```no_run
/// # async fn example(client: &mut onceward_stores::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use onceward_events::{Event, EventId, Outbox, OutboxSettings};
///
/// let outbox = Outbox::new(OutboxSettings::default());
/// let tx = client.transaction().await?;
/// tx.execute("UPDATE orders SET reminded = true WHERE id = 42", &[]).await?;
/// let event = Event::json("order", "42", "ReminderSent", &"2026-11")?
///     .with_id(EventId::of_name("orders/42/reminder/2026-11"));
/// outbox.publish(&tx, &event).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone. It has no connection of its own: publishing is a statement of the caller's
/// transaction.
#[derive(Debug, Clone)]
pub struct Outbox(Arc<OutboxParts>);

#[derive(Debug)]
struct OutboxParts {
    settings: OutboxSettings,
    publish: String,
    compare: String,
    channel: String,
    lock_class: i32,
}

/// Settings of an [`Outbox`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxSettings {
    /// The schema of the tables.
    pub schema: Schema,
    /// Largest payload with headers, in bytes. The default fits into the 1 MiB that Kafka and NATS
    /// accept by default.
    pub event_bytes_max: usize,
}

impl Default for OutboxSettings {
    fn default() -> Self {
        Self { schema: Schema::default(), event_bytes_max: 1_000_000 }
    }
}

impl Outbox {
    /// An outbox whose tables exist; see [`migrate`](Self::migrate).
    pub fn new(settings: OutboxSettings) -> Self {
        let schema = &settings.schema;
        let parts = OutboxParts {
            publish: schema.statement(include_str!("sql/publish.sql")),
            compare: schema.statement(include_str!("sql/compare.sql")),
            channel: channel(schema),
            lock_class: lock_class(schema),
            settings,
        };
        Self(Arc::new(parts))
    }

    /// Brings the tables up to date. Returns how many migrations that took. Any number of processes
    /// may run it at the same time.
    ///
    /// To run the SQL yourself, see [`migration_plan`](Self::migration_plan).
    pub async fn migrate(&self, client: &mut Client) -> Result<usize, OpenError> {
        MIGRATIONS.run(client, &self.0.settings.schema).await
    }

    /// Connects to a URL, and brings the tables up to date.
    pub async fn migrate_at(&self, url: &str, settings: &Settings) -> Result<usize, OpenError> {
        self.migrate(&mut Server::new(url, settings)?.connect(settings).await?).await
    }

    /// Returns the SQL that makes the tables in an empty schema, as one transaction.
    pub fn migration_plan(&self) -> String {
        MIGRATIONS.plan(&self.0.settings.schema)
    }

    /// Its settings.
    pub fn settings(&self) -> &OutboxSettings {
        &self.0.settings
    }
}

/// The channel on which publishing wakes relays.
pub(crate) fn channel(schema: &Schema) -> String {
    format!("onceward_outbox_{schema}")
}

/// The class of the advisory locks of aggregates. Locks with a class never collide with those
/// without, which the store uses.
fn lock_class(schema: &Schema) -> i32 {
    (xxh3_64(format!("onceward outbox {schema}").as_bytes()) as u32).cast_signed()
}
