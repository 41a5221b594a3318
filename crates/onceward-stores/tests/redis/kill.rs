//! Ends without warning: of our process, which is killed with -9 at random moments, and of the
//! server, under load. What was said is held against what is there afterwards.
//!
//! `ONCEWARD_KILLS=200` for more than the usual few.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::StoreAdmin as _;
use onceward_services::{Redis, or_skip};
use onceward_stores::redis::{RedisStore, Settings};

use super::common::{id, settings};
use super::load::Load;
use crate::lives::{Ledger, Life, after_life, work};

const CHILD: &str = "redis::kill::child";
/// Long enough for the work, short enough to be waited for after every kill.
const LEASE: Duration = Duration::from_millis(300);

fn lasting() -> Settings {
    Settings { prefix: "kill".to_owned(), ..settings() }
}

/// Runs only in the child: claims, has its effect, completes, and says so each time.
#[test]
fn child() {
    let Some((url, life)) = Life::of_this_process() else { return };
    let url = url.into_string().unwrap();
    let open = async { RedisStore::open(&url, lasting()).await.unwrap() };
    work(open, life, LEASE, Duration::from_millis(50));
}

fn kills(usual: u32) -> u32 {
    std::env::var("ONCEWARD_KILLS").map_or(usual, |it| it.parse().unwrap())
}

/// Holds everything that was ever said against what is there.
async fn look(store: &RedisStore, life: u32, ledger: &mut Ledger) {
    let keys: Vec<_> = ledger.keys().cloned().collect();
    for key in keys {
        let found = store.get(&id(&key)).await.unwrap();
        ledger.look(&key, found, after_life(life.into()));
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_our_process_is_killed() {
    let Some(server) = onceward_services::redis() else { return };
    let store = RedisStore::open(server.url(), lasting()).await.unwrap();
    let (mut ledger, kills) = (Ledger::default(), kills(8));
    for life in 0..kills {
        Life::live_and_die(CHILD, server.url(), life, &mut ledger);
        // Whatever it held has lapsed when the next one begins.
        tokio::time::sleep(LEASE).await;
        if life % 4 == 2 {
            look(&store, life, &mut ledger).await;
        }
    }
    look(&store, kills, &mut ledger).await;
    let violations = ledger.judge(after_life(kills.into()));
    assert!(violations.is_empty(), "{} violations, {:#?}", violations.len(), &violations[0]);
    let (keys, completed, unknown) = (ledger.keys().count(), ledger.completed(), ledger.unknown());
    println!("{kills} kills, {keys} keys, {completed} completed, {unknown} unknown");
    assert!(completed > 0 && unknown > 0, "the kills hit nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let synced = Redis::default().setting("appendfsync", "always");
    let Some(server) = or_skip(synced.start()) else { return };
    let server = Arc::new(server);
    let settings = Settings { timeout: Duration::from_secs(2), ..settings() };
    let open = || RedisStore::open(server.url(), settings.clone());
    let stores = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    let load = Load::on(
        stores.clone().map(|store| store as _),
        Duration::from_secs(20),
        Duration::from_millis(2),
    );
    let tasks = load.begin(8);
    for kill in 0..kills(5) {
        let before = load.completed();
        while load.completed() < before + 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(rand::random::<u64>() % 30_000)).await;
        let restarting = Arc::clone(&server);
        let restarted = tokio::task::spawn_blocking(move || {
            restarting.kill().unwrap();
            restarting.start().unwrap();
        });
        restarted.await.unwrap();
        if kill % 20 == 19 {
            println!("{} kills, {} keys", kill + 1, load.completed());
        }
    }
    load.stop(tasks).await;
    load.assert_held(&*stores[0]).await;
    println!("{} keys completed", load.completed());
}
