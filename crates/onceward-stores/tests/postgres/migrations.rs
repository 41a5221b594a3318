//! Migrations run once, however many processes start them, and never by a release that is too old.

use std::process::{Command, Stdio};

use onceward_services::{Server, query};
use onceward_stores::postgres::{OpenError, PostgresStore, Schema, Settings, migration_plan};

use super::common::{complete, fresh_schema, replay, shared, small};

const CHILD: &str = "ONCEWARD_MIGRATE_CHILD";

fn versions(server: &Server, schema: &Schema) -> String {
    let sql = format!("SELECT version, name, oldest_reader FROM {schema}.schema_version");
    query(server, &sql).unwrap()
}

#[tokio::test]
async fn migrating_twice_is_migrating_once() {
    let Some(server) = shared() else { return };
    let settings = small();
    assert_eq!(PostgresStore::migrate(server.url(), &settings).await.unwrap(), 5);
    assert_eq!(PostgresStore::migrate(server.url(), &settings).await.unwrap(), 0);
    assert_eq!(
        versions(server, &settings.schema),
        "1|records|1\n2|cache_generation|1\n3|sentinel|1\n4|causes|1\n5|paths|1"
    );
}

#[tokio::test]
async fn a_dry_run_tells_the_sql_and_changes_nothing() {
    let Some(server) = shared() else { return };
    let settings = small();
    let pending = PostgresStore::pending_migrations(server.url(), &settings).await.unwrap();
    assert_eq!(pending, migration_plan(&settings.schema));
    assert!(pending.contains("CREATE TABLE") && pending.contains("COMMENT ON COLUMN"));
    let there = format!("SELECT to_regclass('{}.schema_version') IS NULL", settings.schema);
    assert_eq!(query(server, &there).unwrap(), "t");

    // The SQL for operators is the SQL that the store runs.
    query(server, &pending).unwrap();
    assert_eq!(PostgresStore::pending_migrations(server.url(), &settings).await.unwrap(), "");
    let by_hand = Settings { migrate: false, ..settings };
    let store = PostgresStore::open(server.url(), by_hand).await.unwrap();
    complete(&store, "key", "done").await;
}

#[tokio::test]
async fn without_tables_a_store_that_must_not_migrate_says_so() {
    let Some(server) = shared() else { return };
    let settings = Settings { migrate: false, ..small() };
    let refused = PostgresStore::open(server.url(), settings).await.unwrap_err();
    assert!(matches!(refused, OpenError::Older { found: 0, .. }), "{refused}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_can_be_read() {
    let Some(server) = shared() else { return };
    let settings = small();
    let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    complete(&store, "key", "done").await;
    let newer = |oldest_reader: i32| {
        let schema = &settings.schema;
        let sql = format!(
            "INSERT INTO {schema}.schema_version VALUES (99, 'later', {oldest_reader}) \
             ON CONFLICT (version) DO UPDATE SET oldest_reader = {oldest_reader}"
        );
        query(server, &sql).unwrap();
        PostgresStore::open(server.url(), settings.clone())
    };
    assert_eq!(replay(&newer(1).await.unwrap(), "key").await, "done");
    let refused = newer(98).await.unwrap_err();
    let text = format!(
        "the schema `{}` has version 99 and needs a release that knows version 98; this one \
         knows 5: use a newer release",
        settings.schema
    );
    assert_eq!(refused.to_string(), text);
    let refused = PostgresStore::migrate(server.url(), &settings).await.unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }), "{refused}");
}

/// Runs only in children: migrates the given schema.
#[tokio::test]
async fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (url, schema) = task.split_once(' ').unwrap();
    let settings = Settings { schema: Schema::new(schema).unwrap(), ..Settings::default() };
    PostgresStore::migrate(url, &settings).await.unwrap();
}

#[tokio::test]
async fn processes_that_migrate_at_once_migrate_once() {
    let Some(server) = shared() else { return };
    let schema = fresh_schema();
    let begin = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "postgres::migrations::child"]);
        command.env(CHILD, format!("{} {schema}", server.url())).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| begin()).collect();
    let settings = Settings { schema: schema.clone(), ..Settings::default() };
    let here = (0..4).map(|_| PostgresStore::migrate(server.url(), &settings));
    let mut applied = 0;
    for one in here.collect::<Vec<_>>() {
        applied += one.await.unwrap();
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let versions = versions(server, &schema);
    // One process did all of it, this one or a child.
    assert!(applied == 0 || applied == versions.lines().count(), "{applied}");
    assert_eq!(versions, "1|records|1\n2|cache_generation|1\n3|sentinel|1\n4|causes|1\n5|paths|1");
}

#[test]
fn every_column_is_explained() {
    let Some(server) = shared() else { return };
    let schema = fresh_schema();
    query(server, &migration_plan(&schema)).unwrap();
    let unexplained = format!(
        "SELECT table_name, column_name FROM information_schema.columns \
         WHERE table_schema = '{schema}' AND col_description((table_schema || '.' || \
         table_name)::regclass, ordinal_position) IS NULL"
    );
    assert_eq!(query(server, &unexplained).unwrap(), "");
}
