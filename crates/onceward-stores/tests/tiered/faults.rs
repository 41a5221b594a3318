//! Faults of Redis, under load on the stores of two processes: one effect for each key, judged by
//! the history checker.

use std::sync::Arc;
use std::time::Duration;

use onceward_services::{Redis, RedisPair, Server, or_skip};
use onceward_stores::tiered::Settings;

use super::common::{Tiers, raw};
use crate::load::Load;
use crate::redis::common::tell;

/// Tiers on their own Redis.
fn tiers() -> Option<(Tiers, Server)> {
    let redis = or_skip(Redis::default().start())?;
    let mut tiers = Tiers::shared()?;
    tiers.settings = Settings {
        timeout: Duration::from_millis(100),
        pause: Duration::from_millis(50),
        trust: Duration::from_millis(200),
        ..tiers.settings
    };
    Some((tiers, redis))
}

/// Load on two stores, while their Redis is disturbed again and again.
async fn under_load(tiers: &Tiers, redis: &Server, mut trouble: impl AsyncFnMut(usize)) {
    let stores = [Arc::new(tiers.open_on(redis).await), Arc::new(tiers.open_on(redis).await)];
    let last = Arc::clone(&stores[0]);
    let load =
        Load::on(stores.map(|store| store as _), Duration::from_secs(20), Duration::from_millis(2));
    let tasks = load.begin(8);
    for round in 0..10 {
        load.goes_on(20).await;
        trouble(round).await;
    }
    load.goes_on(20).await;
    load.stop(tasks).await;
    // Redis may still say *busy* about a settled key.
    tokio::time::sleep(tiers.settings.busy).await;
    load.assert_held(&*last).await;
    assert!(load.completed() > 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_flushed_costs_nothing_but_time() {
    let Some((tiers, redis)) = tiers() else { return };
    under_load(&tiers, &redis, async |_| drop(tell(&redis, &["FLUSHALL"]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_or_stands_still_costs_nothing_but_time() {
    let Some((tiers, redis)) = tiers() else { return };
    under_load(&tiers, &redis, async |round| {
        if round % 2 == 0 {
            redis.kill().unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            redis.start().unwrap();
        } else {
            redis.pause();
            tokio::time::sleep(Duration::from_millis(200)).await;
            redis.resume();
        }
    })
    .await;
}

/// Entries are swapped, cut, and set back to earlier ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lies_costs_nothing_but_time() {
    let Some((tiers, redis)) = tiers() else { return };
    let mut old: Vec<(String, Vec<u8>)> = Vec::new();
    under_load(&tiers, &redis, async |_| {
        for (name, value) in &old {
            raw::set(&redis, name, value).await;
        }
        let names = raw::names(&redis, &tiers.settings.prefix).await;
        let mut before = None;
        for (number, name) in names.into_iter().take(60).enumerate() {
            let Some(value) = raw::get(&redis, &name).await else { continue };
            let lie = match number % 3 {
                0 => before.replace(value.clone()).unwrap_or_default(),
                1 => value[..value.len() / 2].to_vec(),
                _ => value.clone(),
            };
            raw::set(&redis, &name, &lie).await;
            old.push((name, value));
        }
    })
    .await;
}

/// A replica without the last writes takes over: with Redis alone, keys would be granted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lacks_the_last_writes_grants_nothing() {
    let Some(RedisPair { primary, replica }) = or_skip(Redis::default().start_with_replica())
    else {
        return;
    };
    let Some(tiers) = Tiers::shared() else { return };
    let before = Arc::new(tiers.open_on(&primary).await);
    let after = Arc::new(tiers.open_on(&replica).await);
    let load = Load::on(
        [before as _, Arc::clone(&after) as _],
        Duration::from_secs(20),
        Duration::from_millis(2),
    );
    for key in 0..30 {
        load.bounded(0, &format!("{key}"), 1).await;
    }
    tell(&replica, &["REPLICAOF", "NO", "ONE"]);
    for key in 20..60 {
        load.bounded(0, &format!("{key}"), 1).await;
    }
    // From now on all processes use the replica, which lacks the last writes.
    for key in 0..60 {
        load.bounded(1, &format!("{key}"), 2).await;
    }
    assert_eq!(load.duplicates(), 0);
    load.assert_held(&*after).await;
}
