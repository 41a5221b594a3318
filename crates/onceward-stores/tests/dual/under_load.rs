//! Moves under load: copies, switchovers there and back, a follower that is killed. Judged by the
//! history checker, on effects that no store knows.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{FullStore, MemoryStore};
use onceward_services::{Server, or_skip};
use onceward_stores::dual::{DualStore, Settings, Side, SwitchoverError};
use onceward_stores::embedded::EmbeddedStore;
use onceward_stores::postgres::PostgresStore;
use onceward_stores::verify;

use super::common::{eventually, long};
use crate::embedded::common::small;
use crate::load::Load;
use crate::postgres::common::{shared as postgres, small as settings};

const TASKS: usize = 6;

/// Two processes on two stores.
async fn processes(old: Arc<dyn FullStore>, new: Arc<dyn FullStore>) -> [DualStore; 2] {
    // Long enough that a busy machine does not count as a failing follower.
    let lease = Duration::from_millis(150);
    let settings =
        Settings { lease, follower_timeout: Duration::from_secs(5), ..Settings::default() };
    let open =
        || DualStore::open("under load", Arc::clone(&old), Arc::clone(&new), settings.clone());
    [open().await.unwrap(), open().await.unwrap()]
}

fn load(processes: &[DualStore; 2]) -> Arc<Load> {
    let stores = processes.iter().map(|it| Arc::new(it.clone()) as Arc<dyn FullStore>);
    Load::on(stores, Duration::from_secs(30), Duration::from_millis(3))
}

/// Copies and switches over during the load, by turns in both processes.
async fn moves_under_load(old: Arc<dyn FullStore>, new: Arc<dyn FullStore>) {
    let processes = processes(Arc::clone(&old), Arc::clone(&new)).await;
    let load = load(&processes);
    let tasks = load.begin(TASKS);
    load.goes_on(30).await;
    let copied = processes[0].copy(|_| {}).await.unwrap();
    assert!(copied.is_clean(), "{copied:?}");
    for round in 0..if long() { 60 } else { 4 } {
        load.goes_on(30).await;
        let switched = processes[round % 2].switch_over().await.unwrap();
        let expected = if round % 2 == 0 { Side::New } else { Side::Old };
        assert_eq!(switched.authority, expected);
    }
    load.goes_on(30).await;
    load.stop(tasks).await;
    println!("{} keys", load.completed());
    let verified = verify(&old, &new, |_| {}).await.unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    load.assert_held(&processes[0]).await;
    load.assert_held(&*new).await;
    load.assert_held(&*old).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_to_memory() {
    moves_under_load(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_to_postgres() {
    let Some(server) = postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    let old = EmbeddedStore::open(directory.path(), small()).unwrap();
    let new = PostgresStore::open(server.url(), settings()).await.unwrap();
    moves_under_load(Arc::new(old), Arc::new(new)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_to_postgres() {
    let Some(redis) = crate::redis::common::shared() else { return };
    let Some(server) = postgres() else { return };
    let old = crate::redis::common::open(redis).await;
    let new = PostgresStore::open(server.url(), settings()).await.unwrap();
    moves_under_load(Arc::new(old), Arc::new(new)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_killed_costs_nothing_and_catches_up() {
    let start = || or_skip(onceward_services::Postgres::default().start());
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    let Some(server): Option<Arc<Server>> = server.map(Arc::new) else { return };
    let old: Arc<dyn FullStore> = Arc::new(MemoryStore::new());
    let new: Arc<dyn FullStore> =
        Arc::new(PostgresStore::open(server.url(), settings()).await.unwrap());
    let processes = processes(Arc::clone(&old), Arc::clone(&new)).await;
    let load = load(&processes);
    let tasks = load.begin(TASKS);
    assert!(processes[0].copy(|_| {}).await.unwrap().is_clean());
    load.goes_on(20).await;
    server.kill().unwrap();
    load.goes_on(200).await;
    let refused = processes[0].switch_over().await;
    assert!(refused.is_err(), "{refused:?}");
    {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.start().unwrap()).await.unwrap();
    }
    load.goes_on(20).await;
    for process in &processes {
        let caught_up = async || process.catch_up().await.is_ok_and(|it| it.left == 0);
        eventually("it has caught up", caught_up).await;
    }
    let switched = async || match processes[1].switch_over().await {
        Ok(switched) => switched.authority == Side::New,
        // Another record may lag by now.
        Err(SwitchoverError::Lagging { .. }) => {
            for process in &processes {
                process.catch_up().await.unwrap();
            }
            false
        }
        Err(other) => panic!("{other}"),
    };
    eventually("it switchovers", switched).await;
    load.goes_on(50).await;
    load.stop(tasks).await;
    let verified = verify(&new, &old, |_| {}).await.unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    load.assert_held(&*new).await;
}
