//! The process is killed with -9 during handlers and commits. Afterwards every key has one row and a
//! completed record, or neither.
//!
//! `ONCEWARD_KILLS=200` for more than the usual few.

use std::collections::BTreeSet;
use std::io::Write as _;

use onceward_core::StateName;
use onceward_services::Server;
use onceward_stores::postgres::{Schema, Settings};
use onceward_testkit::killed_process::KilledProcess;

use super::shop::{Shop, eventually, plain, settings, shared};

const CHILD: &str = "kill::child";
const TASKS: usize = 6;

/// Runs only in the child: orders without end, and prints the responses.
#[test]
fn child() {
    let Some((place, life)) = KilledProcess::of_this_process() else { return };
    let place = place.into_string().unwrap();
    let (url, schema) = place.split_once(' ').unwrap();
    let settings = Settings { schema: Schema::new(schema).unwrap(), ..settings() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shop = Shop::open(url, settings).await;
        let work = |task| {
            let shop = shop.clone();
            tokio::spawn(async move { order_for_ever(&shop, life, task).await })
        };
        for task in (0..TASKS).map(work).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

async fn order_for_ever(shop: &Shop, life: u32, task: usize) {
    for index in 0.. {
        ask(shop, life, task, index).await;
        // A retry of the last order of the previous process.
        if let Some(earlier) = life.checked_sub(1 + index as u32 % 3) {
            ask(shop, earlier, task, index % 60).await;
        }
    }
}

async fn ask(shop: &Shop, life: u32, task: usize, index: usize) {
    let key = format!("{life}-{task}-{index}");
    let how = if index % 5 == 4 { "status=422" } else { "" };
    let answer = shop.order(&key, how).await;
    assert!(matches!(answer.status, 201 | 422), "{key}: {answer:?}");
    let line = format!("@ {key} {}\n", answer.status);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

#[tokio::test]
async fn rows_and_records_agree_when_our_process_is_killed() {
    let Some(server) = shared() else { return };
    let kills = std::env::var("ONCEWARD_KILLS").map_or(6, |it| it.parse().unwrap());
    let settings = settings();
    let name = format!("killed_{}", settings.schema);
    let place = format!("{}?application_name={name} {}", server.url(), settings.schema);
    let shop = Shop::open(server.url(), settings).await;
    let mut said = Vec::new();
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, &place, life, &mut said);
        has_noticed(server, &name).await;
        agree(&shop, &said).await;
    }
    let (answers, orders) = (said.len(), shop.ordered().await.len());
    println!("{kills} kills, {answers} answers, {orders} orders");
    assert!(answers > 0 && orders > 0, "the kills hit nothing");
}

/// Waits until the server has finished or rolled back the statements of the dead process.
async fn has_noticed(server: &Server, name: &str) {
    let client = plain(server.url()).await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let gone = async || client.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) == 0;
    eventually("the server has noticed", gone).await;
}

/// Checks that each completed record has one row, others have none, and all have ended.
async fn agree(shop: &Shop, said: &[String]) {
    let ordered = shop.ordered().await;
    assert_eq!(ordered, shop.recorded(StateName::Completed).await);
    let ordered = BTreeSet::from_iter(ordered);
    let failed = BTreeSet::from_iter(shop.recorded(StateName::Failed).await);
    for state in [StateName::Running, StateName::Unknown, StateName::Released] {
        assert_eq!(shop.recorded(state).await, [""; 0]);
    }
    for line in said {
        let (key, status) = line[2..].split_once(' ').unwrap();
        let kept = if status == "201" { &ordered } else { &failed };
        assert!(kept.contains(key), "{key} was answered {status} and is gone");
    }
}
