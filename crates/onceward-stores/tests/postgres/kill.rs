//! Processes and servers are killed with -9 under load. What they reported is compared with the
//! store afterwards, by the history checker.
//!
//! Set `ONCEWARD_KILLS=200` for more than the usual few.

use std::sync::Arc;
use std::time::Duration;

use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::{PostgresStore, Schema, Settings};

use super::common::{fresh_schema, plain, sessions_have_ended, shared, small};
use crate::calls::kills;
use crate::lives::{KilledProcess, Ledger, assert_held, look, work};
use crate::load::Load;

const CHILD: &str = "postgres::kill::child";
/// Lapses between two lives, and hardly ever within one.
const LEASE: Duration = Duration::from_millis(700);

/// Runs only in the child: claims, has its effect, completes, and reports each step.
#[test]
fn child() {
    let Some((place, life)) = KilledProcess::of_this_process() else { return };
    let place = place.into_string().unwrap();
    let (url, schema) = place.split_once(' ').unwrap();
    let settings = Settings { schema: Schema::new(schema).unwrap(), ..small() };
    let open = async { PostgresStore::open(url, settings).await.unwrap() };
    work(open, life, LEASE, Duration::from_millis(50));
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_our_process_is_killed() {
    let Some(server) = shared() else { return };
    let (kills, schema) = (kills(8), fresh_schema());
    let place = format!("{}?application_name={schema} {schema}", server.url());
    let settings = Settings { schema: schema.clone(), ..small() };
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    let (client, name) = (plain(server.url()).await, schema.to_string());
    let mut ledger = Ledger::default();
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, &place, life, &mut ledger);
        sessions_have_ended(&client, &name).await;
        look(&store, life, &mut ledger).await;
        tokio::time::sleep(LEASE).await;
    }
    assert_held(&ledger, kills);
}

/// Kills the server under load and starts it again, while the same process continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(server) = or_skip(Postgres::default().start()).map(Arc::new) else { return };
    let open = async || Arc::new(PostgresStore::open(server.url(), small()).await.unwrap());
    let store = open().await;
    let stores = [Arc::clone(&store) as _, Arc::clone(&store) as _];
    let load = Load::on(stores, Duration::from_secs(60), Duration::from_millis(2));
    let tasks = load.begin(8);
    for _ in 0..kills(3) {
        load.goes_on(20).await;
        tokio::time::sleep(Duration::from_micros(rand::random::<u64>() % 30_000)).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || kill_and_start(&server)).await.unwrap();
    }
    load.goes_on(20).await;
    load.stop(tasks).await;
    load.assert_held(&*store).await;
    println!("{} keys completed", load.completed());
}

fn kill_and_start(server: &Server) {
    server.kill().unwrap();
    server.start().unwrap();
}
