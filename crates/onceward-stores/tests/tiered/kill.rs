//! A process is killed with -9 under load; it is judged like those of the other stores.

use std::sync::Arc;
use std::time::Duration;

use onceward_stores::postgres::{PostgresStore, Schema, Settings};
use onceward_stores::tiered::{self, TieredStore};

use crate::calls::kills;
use crate::lives::{KilledProcess, Ledger, assert_held, look, work};
use crate::postgres::common::{fresh_name, fresh_schema, plain, sessions_have_ended, small};

const CHILD: &str = "tiered::kill::child";
/// Lapses between two lives, and hardly ever within one.
const LEASE: Duration = Duration::from_millis(700);

async fn open(place: &str) -> TieredStore {
    let [postgres, redis, schema, prefix] = place.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{place}");
    };
    let schema = Schema::new(schema).unwrap();
    let authority = PostgresStore::open(postgres, Settings { schema, ..small() }).await.unwrap();
    let settings = tiered::Settings { prefix: prefix.to_owned(), ..tiered::Settings::default() };
    TieredStore::open(Arc::new(authority), redis, settings).await.unwrap()
}

/// Runs only in the child.
#[test]
fn child() {
    let Some((place, life)) = KilledProcess::of_this_process() else { return };
    let place = place.into_string().unwrap();
    work(async { open(&place).await }, life, LEASE, Duration::from_millis(50));
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_our_process_is_killed() {
    let Some(redis) = crate::redis::common::shared() else { return };
    let Some(postgres) = crate::postgres::common::shared() else { return };
    let (kills, schema, prefix) = (kills(5), fresh_schema(), fresh_name("kill"));
    let (url, redis) = (postgres.url(), redis.url());
    let place = format!("{url}?application_name={schema} {redis} {schema} {prefix}");
    let store = open(&format!("{url} {redis} {schema} {prefix}")).await;
    let (client, mut ledger) = (plain(url).await, Ledger::default());
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, &place, life, &mut ledger);
        sessions_have_ended(&client, schema.as_str()).await;
        look(&store, life, &mut ledger).await;
        tokio::time::sleep(LEASE).await;
    }
    assert_held(&ledger, kills);
}
