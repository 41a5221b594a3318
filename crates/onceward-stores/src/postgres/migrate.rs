//! Migrations of the tables. Any number of processes may run them at the same time.

use std::fmt::Write as _;

use tokio_postgres::Client;

use super::error::{OpenError, chain};
use super::schema::Schema;

/// One migration.
struct Migration {
    version: i32,
    name: &'static str,
    /// Releases that know fewer migrations than this refuse the tables.
    oldest_reader: i32,
    sql: &'static str,
}

/// All migrations, in order. A released one never changes; a new one is a new entry.
const MIGRATIONS: [Migration; 4] = [
    Migration {
        version: 1,
        name: "records",
        oldest_reader: 1,
        sql: include_str!("migrations/0001_records.sql"),
    },
    Migration {
        version: 2,
        name: "cache_generation",
        oldest_reader: 1,
        sql: include_str!("migrations/0002_cache_generation.sql"),
    },
    Migration {
        version: 3,
        name: "sentinel",
        oldest_reader: 1,
        sql: include_str!("migrations/0003_sentinel.sql"),
    },
    Migration {
        version: 4,
        name: "causes",
        // Earlier releases leave the new columns alone.
        oldest_reader: 1,
        sql: include_str!("migrations/0004_causes.sql"),
    },
];

const VERSIONS: &str = include_str!("migrations/0000_versions.sql");

/// The newest version that this release knows.
pub(super) const KNOWN: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Returns the SQL that brings an empty schema up to date, for operators who run it themselves. Run
/// as one transaction, it has the same result as the store's own migration.
pub fn migration_plan(schema: &Schema) -> String {
    plan_from(schema, 0)
}

fn plan_from(schema: &Schema, version: i32) -> String {
    let mut plan = format!("BEGIN;\n{}\n{}", lock(schema), schema.apply(VERSIONS));
    for migration in MIGRATIONS.iter().filter(|it| it.version > version) {
        let _ = write!(plan, "\n{}\n{}", schema.apply(migration.sql), migration.record(schema));
    }
    plan.push_str("\nCOMMIT;\n");
    plan
}

/// The version of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) found: i32,
    oldest_reader: i32,
}

impl Version {
    /// Fails if this release must not use the tables.
    fn check(self, schema: &Schema) -> Result<(), OpenError> {
        let (schema, found, wanted) = (schema.to_string(), self.found, self.oldest_reader);
        if wanted > KNOWN {
            return Err(OpenError::Newer { schema, found, wanted, known: KNOWN });
        }
        if found < KNOWN {
            return Err(OpenError::Older { schema, found, known: KNOWN });
        }
        Ok(())
    }
}

/// Fails if this release must not use the tables.
pub(super) async fn check(client: &Client, schema: &Schema) -> Result<(), OpenError> {
    version(client, schema).await?.check(schema)
}

/// Returns the SQL of the missing migrations, without running it; empty if there are none.
pub(super) async fn plan(client: &Client, schema: &Schema) -> Result<String, OpenError> {
    let version = version(client, schema).await?;
    match version.check(schema) {
        Ok(()) => Ok(String::new()),
        Err(OpenError::Older { .. }) => Ok(plan_from(schema, version.found)),
        Err(error) => Err(error),
    }
}

/// Applies the missing migrations in one transaction, under an advisory lock of the schema. Returns
/// how many there were.
pub(super) async fn run(client: &mut Client, schema: &Schema) -> Result<usize, OpenError> {
    match version(client, schema).await?.check(schema) {
        Err(OpenError::Older { .. }) => {}
        settled => return settled.map(|()| 0),
    }
    let tx = client.transaction().await.map_err(OpenError::unreachable)?;
    let failed = |version, name| {
        move |error: tokio_postgres::Error| {
            let reason = chain(&error);
            OpenError::Migration { version, name, reason, source: Box::new(error) }
        }
    };
    let first = failed(0, "versions");
    tx.batch_execute(&lock(schema)).await.map_err(failed(0, "lock"))?;
    // Read again: another process may have migrated while this one waited for the lock.
    tx.batch_execute(&schema.apply(VERSIONS)).await.map_err(first)?;
    let found = version(tx.client(), schema).await?;
    if found.oldest_reader > KNOWN {
        return found.check(schema).map(|()| 0);
    }
    let mut applied = 0;
    for migration in MIGRATIONS.iter().filter(|it| it.version > found.found) {
        let sql = format!("{}\n{}", schema.apply(migration.sql), migration.record(schema));
        let failed = failed(migration.version, migration.name);
        tx.batch_execute(&sql).await.map_err(failed)?;
        applied += 1;
    }
    tx.commit().await.map_err(failed(KNOWN, "commit"))?;
    Ok(applied)
}

impl Migration {
    fn record(&self, schema: &Schema) -> String {
        let Self { version, name, oldest_reader, .. } = self;
        schema.apply(&format!(
            "INSERT INTO {{schema}}.schema_version (version, name, oldest_reader) \
             VALUES ({version}, '{name}', {oldest_reader});"
        ))
    }
}

fn lock(schema: &Schema) -> String {
    format!("SELECT pg_advisory_xact_lock({});\n", schema.lock())
}

async fn version(client: &Client, schema: &Schema) -> Result<Version, OpenError> {
    // Simple queries work behind PgBouncer, and these run only once.
    let there = format!("SELECT to_regclass('\"{schema}\".schema_version') IS NOT NULL");
    if value(client, &there).await?.as_deref() != Some("t") {
        return Ok(Version { found: 0, oldest_reader: 0 });
    }
    let newest = |column: &str| {
        schema.apply(&format!("SELECT coalesce(max({column}), 0) FROM {{schema}}.schema_version"))
    };
    let number = |text: Option<String>| text.and_then(|it| it.parse().ok()).unwrap_or(i32::MAX);
    Ok(Version {
        found: number(value(client, &newest("version")).await?),
        oldest_reader: number(value(client, &newest("oldest_reader")).await?),
    })
}

/// Returns the one value of a query.
pub(super) async fn value(client: &Client, sql: &str) -> Result<Option<String>, OpenError> {
    let messages = client.simple_query(sql).await.map_err(OpenError::unreachable)?;
    Ok(messages.into_iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
