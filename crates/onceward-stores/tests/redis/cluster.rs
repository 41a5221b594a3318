//! A cluster whose nodes fail and whose slots move under load.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::FullStore;
use onceward_services::{RedisCluster, Reply, Server, ask};
use onceward_stores::redis::{RedisStore, Settings};
use onceward_testkit::history::Answer;

use super::common::{complete, is_primary, replay, settings, tell};
use crate::load::Load;

async fn open(cluster: &RedisCluster, settings: &Settings) -> Arc<RedisStore> {
    Arc::new(RedisStore::open_cluster(cluster.urls(), settings.clone()).await.unwrap())
}

/// Stores of two processes, and load on them.
async fn loaded(cluster: &RedisCluster) -> ([Arc<RedisStore>; 2], Arc<Load>) {
    let settings = Settings { timeout: Duration::from_secs(5), ..settings() };
    let stores = [open(cluster, &settings).await, open(cluster, &settings).await];
    let all = stores.clone().map(|store| store as Arc<dyn FullStore>);
    let load = Load::on(all, Duration::from_secs(30), Duration::from_millis(1));
    (stores, load)
}

async fn until_completed(load: &Load, more: usize) {
    let wanted = load.completed() + more;
    while load.completed() < wanted {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_has_a_second_effect_when_slots_move_under_load() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let ([store, _], load) = loaded(&cluster).await;
    let tasks = load.begin(6);
    until_completed(&load, 50).await;
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let mut moved = 0;
    for slot in slots_with_keys(from).into_iter().take(40) {
        move_slot(&cluster, from, to, slot).await;
        moved += 1;
    }
    until_completed(&load, 50).await;
    load.stop(tasks).await;
    load.assert_held(&*store).await;
    assert_eq!(moved, 40);
}

/// Slots of a node that have keys.
fn slots_with_keys(node: &Server) -> Vec<u16> {
    let holds = |slot: &u16| {
        let count = tell(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
        count != Reply::from("0")
    };
    // The first node has the first third of the slots.
    (0..5_461).filter(holds).collect()
}

/// Moves a slot like `redis-cli --cluster reshard`, with time for claims in between.
async fn move_slot(cluster: &RedisCluster, from: &Server, to: &Server, slot: u16) {
    let slot = slot.to_string();
    let [from_id, to_id] = [from, to].map(|node| text(tell(node, &["CLUSTER", "MYID"])));
    tell(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    tell(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let port = to.port().to_string();
    loop {
        let Reply::List(keys) = tell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "3"]) else {
            panic!()
        };
        if keys.is_empty() {
            break;
        }
        let keys: Vec<_> = keys.into_iter().map(text).collect();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        tell(from, &words);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for node in [to, from].into_iter().chain(cluster.nodes.iter().filter(|it| is_primary(it))) {
        let _told_already = ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_was_asked_for_loses_nothing_under_load() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let ([store, _], load) = loaded(&cluster).await;
    let tasks = load.begin(6);
    for replica in [3, 4] {
        until_completed(&load, 50).await;
        tell(&cluster.nodes[replica], &["CLUSTER", "FAILOVER"]);
        while !is_primary(&cluster.nodes[replica]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    until_completed(&load, 50).await;
    load.stop(tasks).await;
    load.assert_held(&*store).await;
}

/// A cluster may lose writes that a replica lacked when it was promoted. They are counted; keys
/// from well before and after are intact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_under_load_is_replaced_and_what_is_lost_is_counted() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let ([store, _], load) = loaded(&cluster).await;
    for index in 0..50 {
        complete(&*store, &format!("before {index}"), "done").await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let tasks = load.begin(6);
    until_completed(&load, 100).await;
    cluster.nodes[0].kill().unwrap();
    while !is_primary(&cluster.nodes[3]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_completed(&load, 100).await;
    load.stop(tasks).await;
    for index in 0..50 {
        assert_eq!(replay(&*store, &format!("before {index}")).await, "done");
    }
    let refused = load.count(|it| *it == Answer::Unavailable);
    println!("{} keys, {refused} refusals, {} second effects", load.completed(), load.duplicates());
}

/// Calls that a dead node leaves unanswered fail as perhaps applied. After its replica has taken
/// over, calls are answered on the same connections.
#[tokio::test]
async fn a_node_that_stands_still_is_replaced() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let short = Settings { timeout: Duration::from_millis(800), ..settings() };
    let store = open(&cluster, &short).await;
    complete(&*store, "before", "done").await;
    // A replica without some markers has lost records, and closes the store.
    let keys = |node: usize| super::common::tell(&cluster.nodes[node], &["DBSIZE"]);
    while keys(1) != keys(4) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.nodes[1].pause();
    let mut late = 0;
    for index in 0..20 {
        let key = format!("key {index}");
        let request = super::common::request(&key);
        let begin = std::time::Instant::now();
        while let Err(error) = onceward_core::Store::claim(&*store, &request).await {
            late += 1;
            assert!(begin.elapsed() < Duration::from_secs(30), "{key}: {error:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(late > 0, "no call met the node that stands still");
    assert!(is_primary(&cluster.nodes[4]));
    assert_eq!(replay(&*store, "before").await, "done");
}
