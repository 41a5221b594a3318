//! A process is killed with -9 between archiving and removal.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{Archive, ArchiveError, Archiving, FullStore, Imported, Purger, Record};
use onceward_stores::file_archive::FileArchive;
use onceward_stores::postgres::{PostgresStore, Schema, Settings};

use super::files::{expired, lines, open};
use crate::calls::id;
use crate::embedded::common as embedded;
use crate::lives::KilledProcess;
use crate::postgres::common::{fresh_schema, plain, sessions_have_ended, shared, small};

const CHILD: &str = "archive::kill::child";
const RECORDS: usize = 50;

/// Archives, says so, and never returns: the process is killed here.
struct Stopping(FileArchive);

#[async_trait]
impl Archive for Stopping {
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError> {
        self.0.write(records).await?;
        // On a line of its own, behind the name of the test.
        println!("\n@ archived");
        std::future::pending().await
    }
}

/// Opens the store of a place: a directory, or a schema of a PostgreSQL.
async fn open_store(place: &str) -> Arc<dyn FullStore> {
    match place.split(' ').collect::<Vec<_>>()[..] {
        [url, schema] => {
            let schema = Schema::new(schema).unwrap();
            let settings = Settings { schema, ..small() };
            Arc::new(PostgresStore::open(url, settings).await.unwrap())
        }
        _ => Arc::new(embedded::open(Path::new(place))),
    }
}

/// Runs only in the child.
#[test]
fn child() {
    let Some((place, _)) = KilledProcess::of_this_process() else { return };
    let place = place.into_string().unwrap();
    let (archive, place) = place.split_once(' ').unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let archive = Stopping(open(Path::new(archive)));
        let purger = Purger::new(open_store(place).await, Archiving::To(Arc::new(archive)));
        let _never = purger.purge(1_000).await;
    });
}

/// Kills a process that has archived, and lets another one go on.
async fn killed_after_archiving(place: &str, ended: impl AsyncFnOnce()) {
    let directory = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..RECORDS).map(|key| expired(&key.to_string(), "done")).collect();
    let store = open_store(place).await;
    for record in &records {
        assert_eq!(store.import(record).await.unwrap(), Imported::Written);
    }
    drop(store);
    let argument = format!("{} {place}", directory.path().display());
    let child = KilledProcess::begin(CHILD, argument, 0);
    child.wait_until_it_works();
    child.kill();
    ended().await;
    let first = lines(directory.path());
    assert_eq!(first.len(), RECORDS);

    let store = open_store(place).await;
    for record in &records {
        let stored = store.get(&record.id).await.unwrap();
        assert_eq!(stored.as_ref(), Some(record), "archived and not removed");
    }
    let archive = Arc::new(open(directory.path()));
    let purger = Purger::new(Arc::clone(&store) as _, Archiving::To(archive));
    let purged = purger.purge(1_000).await.unwrap();
    assert_eq!((purged.removed, purged.more), (RECORDS, false));
    for record in &records {
        assert_eq!(store.get(&record.id).await.unwrap(), None);
    }
    // At least once, and with equal bytes.
    let all = lines(directory.path());
    assert_eq!(all.len(), 2 * RECORDS);
    for key in 0..RECORDS {
        let of_key = format!("{} done", id(&key.to_string()));
        assert_eq!(all.iter().filter(|line| **line == of_key).count(), 2);
    }
}

#[tokio::test]
async fn nothing_is_lost_when_a_process_is_killed_before_it_removes_from_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("data");
    killed_after_archiving(place.to_str().unwrap(), async || {}).await;
}

#[tokio::test]
async fn nothing_is_lost_when_a_process_is_killed_before_it_removes_from_postgresql() {
    let Some(server) = shared() else { return };
    let schema = fresh_schema();
    let client = plain(server.url()).await;
    let place = format!("{}?application_name={schema} {schema}", server.url());
    killed_after_archiving(&place, async || sessions_have_ended(&client, schema.as_str()).await)
        .await;
}
