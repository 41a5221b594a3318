//! Migrations of the tables. Any number of processes may run them at the same time.

use std::fmt::Write as _;

use tokio_postgres::Client;

use super::error::{OpenError, chain};
use super::schema::Schema;

/// One migration.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Its number; they are applied in this order.
    pub version: i32,
    /// Its name, for errors and for the table of versions.
    pub name: &'static str,
    /// Releases that know fewer migrations than this refuse the tables.
    pub oldest_reader: i32,
    /// The SQL; `{schema}` stands for the quoted schema.
    pub sql: &'static str,
}

/// Migrations of a set of tables that change together. A released one never changes; a new one is
/// a new entry.
#[derive(Debug, Clone, Copy)]
pub struct Migrations {
    /// Name of the table that lists the applied ones.
    pub versions: &'static str,
    /// The migrations, in order.
    pub list: &'static [Migration],
}

/// The migrations of the records.
pub(super) const RECORDS: Migrations = Migrations {
    versions: "schema_version",
    list: &[
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
        Migration {
            version: 5,
            name: "paths",
            oldest_reader: 1,
            sql: include_str!("migrations/0005_paths.sql"),
        },
    ],
};

const VERSIONS: &str = include_str!("migrations/0000_versions.sql");

/// Returns the SQL that brings an empty schema up to date, for operators who run it themselves. Run
/// as one transaction, it has the same result as the store's own migration.
pub fn migration_plan(schema: &Schema) -> String {
    RECORDS.plan(schema)
}

/// The version of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    found: i32,
    oldest_reader: i32,
}

impl Migrations {
    /// Returns the SQL of all migrations, as one transaction.
    pub fn plan(&self, schema: &Schema) -> String {
        self.plan_from(schema, 0)
    }

    fn plan_from(&self, schema: &Schema, version: i32) -> String {
        let mut plan = format!("BEGIN;\n{}\n{}", lock(schema), self.apply(schema, VERSIONS));
        for migration in self.list.iter().filter(|it| it.version > version) {
            let (sql, record) = (schema.apply(migration.sql), self.record(schema, migration));
            let _ = write!(plan, "\n{sql}\n{record}");
        }
        plan.push_str("\nCOMMIT;\n");
        plan
    }

    /// Fails if this release must not use the tables.
    pub async fn check(&self, client: &Client, schema: &Schema) -> Result<(), OpenError> {
        self.check_version(self.version(client, schema).await?, schema)
    }

    /// Returns the SQL of the missing migrations, without running it; empty if there are none.
    pub async fn pending(&self, client: &Client, schema: &Schema) -> Result<String, OpenError> {
        let version = self.version(client, schema).await?;
        match self.check_version(version, schema) {
            Ok(()) => Ok(String::new()),
            Err(OpenError::Older { .. }) => Ok(self.plan_from(schema, version.found)),
            Err(error) => Err(error),
        }
    }

    /// Applies the missing migrations in one transaction, under an advisory lock of the schema.
    /// Returns how many there were.
    pub async fn run(&self, client: &mut Client, schema: &Schema) -> Result<usize, OpenError> {
        match self.check(client, schema).await {
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
        tx.batch_execute(&self.apply(schema, VERSIONS)).await.map_err(first)?;
        let found = self.version(tx.client(), schema).await?;
        if found.oldest_reader > self.known() {
            return self.check_version(found, schema).map(|()| 0);
        }
        let mut applied = 0;
        for migration in self.list.iter().filter(|it| it.version > found.found) {
            let sql =
                format!("{}\n{}", schema.apply(migration.sql), self.record(schema, migration));
            let failed = failed(migration.version, migration.name);
            tx.batch_execute(&sql).await.map_err(failed)?;
            applied += 1;
        }
        tx.commit().await.map_err(failed(self.known(), "commit"))?;
        Ok(applied)
    }

    /// The newest version that this release knows.
    pub(super) fn known(&self) -> i32 {
        self.list.last().map_or(0, |newest| newest.version)
    }

    fn check_version(&self, version: Version, schema: &Schema) -> Result<(), OpenError> {
        let (schema, found, known) = (schema.to_string(), version.found, self.known());
        let wanted = version.oldest_reader;
        if wanted > known {
            return Err(OpenError::Newer { schema, found, wanted, known });
        }
        if found < known {
            return Err(OpenError::Older { schema, found, known });
        }
        Ok(())
    }

    fn record(&self, schema: &Schema, migration: &Migration) -> String {
        let Migration { version, name, oldest_reader, .. } = migration;
        let sql = "INSERT INTO {schema}.{versions} (version, name, oldest_reader)";
        let sql = self.apply(schema, sql);
        format!("{sql} VALUES ({version}, '{name}', {oldest_reader});")
    }

    fn apply(&self, schema: &Schema, sql: &str) -> String {
        schema.apply(sql).replace("{versions}", self.versions)
    }

    async fn version(&self, client: &Client, schema: &Schema) -> Result<Version, OpenError> {
        // Simple queries work behind PgBouncer, and these run only once.
        let table = self.versions;
        let there = format!("SELECT to_regclass('\"{schema}\".{table}') IS NOT NULL");
        if value(client, &there).await?.as_deref() != Some("t") {
            return Ok(Version { found: 0, oldest_reader: 0 });
        }
        let newest = |column: &str| {
            let sql = format!("SELECT coalesce(max({column}), 0) FROM {{schema}}.{{versions}}");
            self.apply(schema, &sql)
        };
        let number = |text: Option<String>| text.and_then(|it| it.parse().ok()).unwrap_or(i32::MAX);
        Ok(Version {
            found: number(value(client, &newest("version")).await?),
            oldest_reader: number(value(client, &newest("oldest_reader")).await?),
        })
    }
}

fn lock(schema: &Schema) -> String {
    format!("SELECT pg_advisory_xact_lock({});\n", schema.lock())
}

/// Returns the one value of a query.
pub(super) async fn value(client: &Client, sql: &str) -> Result<Option<String>, OpenError> {
    let messages = client.simple_query(sql).await.map_err(OpenError::unreachable)?;
    Ok(messages.into_iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
