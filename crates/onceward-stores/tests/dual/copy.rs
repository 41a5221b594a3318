//! Copying a store into another, and comparing two stores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    FullStore, MemoryStore, RecordId, Settlement, State, StoreAdmin as _, UnknownCause,
};
use onceward_stores::embedded::EmbeddedStore;
use onceward_stores::postgres::PostgresStore;
use onceward_stores::{DifferenceKind, copy, verify};

use super::common::{DAY, complete, granted, id, kills, outcome, replay, settle};
use crate::embedded::common::small;
use crate::lives::KilledProcess;
use crate::postgres::common::{plain, shared as postgres, small as settings};

const RECORDS: usize = 600;

/// Records of every state.
async fn fill(store: &dyn FullStore) {
    for index in 0..RECORDS {
        let key = format!("key {index}");
        let holder = granted(store, &key).await;
        let settlement = match index % 6 {
            0 => continue,
            1 => Settlement::Unknown(UnknownCause::Status(502)),
            2 => Settlement::Release,
            3 => Settlement::Fail(outcome("no")),
            _ => Settlement::Complete(outcome(key.repeat(index % 40))),
        };
        let _applied = settle(store, &key, holder, settlement, DAY).await.unwrap();
    }
}

/// Copies one store into another, and checks the copy.
async fn copied(from: Arc<dyn FullStore>, to: Arc<dyn FullStore>) {
    let mut pages = Vec::new();
    let done = copy(&from, &to, |copied| pages.push(copied.written)).await.unwrap();
    assert!(pages.len() > 1 && pages.is_sorted(), "it tells how far it is: {pages:?}");
    assert_eq!((done.written, done.kept, done.is_whole()), (RECORDS as u64, 0, true));
    let unclear = to.get(&id("key 1")).await.unwrap().unwrap();
    assert_eq!(unclear.state, State::Unknown { cause: UnknownCause::Status(502) });
    let again = copy(&from, &to, |_| {}).await.unwrap();
    assert_eq!((again.written, again.kept), (0, RECORDS as u64));
    let verified = verify(&from, &to, |_| {}).await.unwrap();
    assert!(verified.is_clean() && verified.equal == RECORDS as u64, "{verified:?}");
}

#[tokio::test]
async fn a_copy_is_the_same_in_every_store() {
    let memory: Arc<dyn FullStore> = Arc::new(MemoryStore::new());
    fill(&*memory).await;
    let directory = tempfile::tempdir().unwrap();
    let embedded: Arc<dyn FullStore> =
        Arc::new(EmbeddedStore::open(directory.path(), small()).unwrap());
    copied(memory, Arc::clone(&embedded)).await;
    let Some(server) = postgres() else { return };
    let postgres: Arc<dyn FullStore> =
        Arc::new(PostgresStore::open(server.url(), settings()).await.unwrap());
    copied(embedded, Arc::clone(&postgres)).await;
    let Some(server) = crate::redis::common::shared() else { return };
    let redis: Arc<dyn FullStore> = Arc::new(crate::redis::common::open(server).await);
    copied(Arc::clone(&postgres), Arc::clone(&redis)).await;
    assert_eq!(replay(&*redis, "key 4").await, "key 4".repeat(4));
    copied(redis, Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn what_differs_is_named() {
    let from = Arc::new(MemoryStore::new());
    for key in ["same", "missing", "older", "other"] {
        complete(&*from, key, "done").await;
    }
    granted(&*from, "running").await;
    let other = Arc::new(MemoryStore::new());
    for key in ["same", "running"] {
        let record = from.get(&id(key)).await.unwrap().unwrap();
        let _ = other.import(&record).await.unwrap();
    }
    complete(&*other, "other", "something else").await;
    granted(&*other, "older").await;

    let verified = verify(&from, &other, |_| {}).await.unwrap();
    assert_eq!(verified.equal, 2);
    let found = |key: &str| {
        let it = verified.differences.iter().find(|it| it.id == id(key)).unwrap();
        it.kind.clone()
    };
    assert_eq!(found("missing"), DifferenceKind::Missing);
    let DifferenceKind::Properties(properties) = found("other") else {
        panic!("{:?}", found("other"))
    };
    for property in ["outcome", "owner", "operation"] {
        assert!(properties.contains(&property), "{properties:?}");
    }
    let DifferenceKind::Properties(properties) = found("older") else {
        panic!("{:?}", found("older"))
    };
    assert!(properties.contains(&"state") && properties.contains(&"lease"), "{properties:?}");
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_the_others_are_copied() {
    let Some(server) = postgres() else { return };
    let settings = settings();
    let schema = settings.schema.clone();
    let broken = Arc::new(PostgresStore::open(server.url(), settings).await.unwrap());
    for key in ["broken", "good"] {
        complete(&*broken, key, "done").await;
    }
    let sql = format!("UPDATE {schema}.idempotency_record SET state = 'paused' WHERE id = $1");
    let client = plain(server.url()).await;
    client.execute(&sql, &[&id("broken").as_bytes().as_slice()]).await.unwrap();

    let memory = Arc::new(MemoryStore::new());
    let one: Vec<RecordId> = vec![id("broken")];
    let copied = copy(&broken, &memory, |_| {}).await.unwrap();
    assert_eq!((copied.written, &copied.undecodable, copied.is_whole()), (1, &one, false));
    let verified = verify(&broken, &memory, |_| {}).await.unwrap();
    assert_eq!((verified.equal, &verified.undecodable, verified.is_clean()), (1, &one, false));

    // In the other direction: a record that cannot be read is not overwritten.
    complete(&*memory, "broken", "done").await;
    let copied = copy(&memory, &broken, |_| {}).await.unwrap();
    assert_eq!((copied.kept, &copied.blocked, copied.is_whole()), (1, &one, false));
    let verified = verify(&memory, &broken, |_| {}).await.unwrap();
    assert_eq!(verified.differences[0].kind, DifferenceKind::Undecodable);
}

const CHILD: &str = "dual::copy::child";

fn directories(place: &Path) -> [Arc<EmbeddedStore>; 2] {
    ["from", "to"].map(|name| Arc::new(EmbeddedStore::open(place.join(name), small()).unwrap()))
}

/// Runs only in the child: copies, and reports every page.
#[test]
fn child() {
    let Some((place, _)) = KilledProcess::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let [from, to] = directories(Path::new(&place));
        copy(&from, &to, |_| println!("\n@ page")).await.unwrap();
        std::future::pending::<()>().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_killed_is_whole_when_it_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    for name in ["from", "to"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let [from, _] = directories(place.path());
    fill(&*from).await;
    drop(from);
    let mut halves = 0;
    for life in 0..kills(3) {
        let child = KilledProcess::begin(CHILD, place.path(), life);
        child.wait_until_it_works();
        std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 3_000));
        child.kill();
        let [from, to] = directories(place.path());
        let before = to.stats().await.unwrap().records;
        halves += usize::from(before > 0 && before < RECORDS as u64);
        let again = copy(&from, &to, |_| {}).await.unwrap();
        assert!(again.is_whole(), "{again:?}");
        let verified = verify(&from, &to, |_| {}).await.unwrap();
        assert!(verified.is_clean() && verified.equal == RECORDS as u64, "{verified:?}");
        drop(to);
        std::fs::remove_dir_all(place.path().join("to")).unwrap();
        std::fs::create_dir(place.path().join("to")).unwrap();
    }
    println!("{halves} copies were killed halfway");
}
