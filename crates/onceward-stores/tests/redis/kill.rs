//! A process is killed with -9 at random times, and a server under load. What they reported is
//! compared with the store afterwards.
//!
//! Set `ONCEWARD_KILLS=200` for more than the usual few.

use std::sync::Arc;
use std::time::Duration;

use onceward_services::{Redis, or_skip};
use onceward_stores::redis::{RedisStore, Settings};

use super::common::{kills, settings};
use crate::lives::{KilledProcess, Ledger, assert_held, look, work};
use crate::load::Load;

const CHILD: &str = "redis::kill::child";
/// Long enough for the work, short enough to wait for after every kill.
const LEASE: Duration = Duration::from_millis(300);

fn lasting() -> Settings {
    Settings { prefix: "kill".to_owned(), ..settings() }
}

/// Runs only in the child: claims, has its effect, completes, and reports each step.
#[test]
fn child() {
    let Some((url, life)) = KilledProcess::of_this_process() else { return };
    let url = url.into_string().unwrap();
    let open = async { RedisStore::open(&url, lasting()).await.unwrap() };
    work(open, life, LEASE, Duration::from_millis(50));
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_our_process_is_killed() {
    let Some(server) = onceward_services::redis() else { return };
    let store = RedisStore::open(server.url(), lasting()).await.unwrap();
    let (mut ledger, kills) = (Ledger::default(), kills(8));
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, server.url(), life, &mut ledger);
        // All leases have lapsed when the next life begins.
        tokio::time::sleep(LEASE).await;
        if life % 4 == 2 {
            look(&store, life, &mut ledger).await;
        }
    }
    look(&store, kills, &mut ledger).await;
    assert_held(&ledger, kills);
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
        load.goes_on(20).await;
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
