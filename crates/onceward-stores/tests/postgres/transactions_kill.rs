//! A process is killed with -9 within `transact`. Afterwards every key has one row and a completed
//! record, or neither.
//!
//! Set `ONCEWARD_KILLS=200` for more than the usual few.

use std::collections::BTreeSet;
use std::io::Write as _;

use onceward_core::{Failure, Identity, Policy, Query, RunError, StateName, StoreAdmin as _};
use onceward_stores::postgres::tokio_postgres::types::Type;
use onceward_stores::postgres::tokio_postgres::{Client, Transaction};
use onceward_stores::postgres::{PostgresStore, Schema, Settings, Transactions};

use super::common::{fresh_schema, plain, sessions_have_ended, shared, small};
use super::transactions::intent;
use crate::calls::kills;
use crate::lives::KilledProcess;

const CHILD: &str = "postgres::transactions_kill::child";
const TASKS: u32 = 6;

/// Runs only in the child: pays until it is killed, and reports the results.
#[test]
fn child() {
    let Some((place, life)) = KilledProcess::of_this_process() else { return };
    let place = place.into_string().unwrap();
    let (url, schema) = place.split_once(' ').unwrap();
    let settings = Settings { schema: Schema::new(schema).unwrap(), ..small() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = PostgresStore::open(url, settings).await.unwrap();
        let policy = Policy::builder().keep_key(true).build().unwrap();
        let pg = store.transactions(Identity::unkeyed(), policy);
        let work = |task| {
            let (pg, schema) = (pg.clone(), schema.to_owned());
            tokio::spawn(async move { pay_for_ever(&pg, &schema, life, task).await })
        };
        for task in (0..TASKS).map(work).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

async fn pay_for_ever(pg: &Transactions, schema: &str, life: u32, task: u32) {
    for index in 0_u32.. {
        pay(pg, schema, (life, task, index)).await;
        // Retries a key of an earlier life.
        if let Some(earlier) = life.checked_sub(1 + index % 3) {
            pay(pg, schema, (earlier, task, index % 60)).await;
        }
    }
}

/// Inserts a payment; one in five fails for good after that.
async fn pay(pg: &Transactions, schema: &str, (life, task, index): (u32, u32, u32)) {
    let key = format!("{life}-{task}-{index}");
    let sql = format!("INSERT INTO {schema}.payment VALUES ($1)");
    let work = async |tx: &mut Transaction<'_>| {
        let inserted = tx.execute_typed(&sql, &[(&key as _, Type::TEXT)]).await;
        inserted.map_err(|error| Failure::Release(error.to_string()))?;
        if index % 5 == 4 { Err(Failure::Keep("no money".to_owned())) } else { Ok(()) }
    };
    let word = match pg.transact(&intent(&key), work).await {
        Ok(_) => "paid",
        Err(RunError::Failed { .. }) => "failed",
        other => panic!("{key}: {other:?}"),
    };
    std::io::stdout().lock().write_all(format!("@ {key} {word}\n").as_bytes()).unwrap();
}

#[tokio::test]
async fn rows_and_records_agree_when_our_process_is_killed() {
    let Some(server) = shared() else { return };
    let (kills, schema) = (kills(6), fresh_schema());
    let settings = Settings { schema: schema.clone(), ..small() };
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    let client = plain(server.url()).await;
    client.batch_execute(&format!("CREATE TABLE {schema}.payment (key text)")).await.unwrap();
    let name = format!("killed_{schema}");
    let place = format!("{}?application_name={name} {schema}", server.url());
    let mut said: Vec<String> = Vec::new();
    for life in 0..kills {
        KilledProcess::run_and_kill(CHILD, &place, life, &mut said);
        sessions_have_ended(&client, &name).await;
        agree(&store, &client, &schema, &said).await;
    }
    let (told, paid) = (said.len(), recorded(&store, StateName::Completed).await.len());
    println!("{kills} kills, {told} results, {paid} paid");
    assert!(told > 0 && paid > 0, "the kills hit nothing");
}

/// Checks that completed records have one row, others have none, and no record is open.
async fn agree(store: &PostgresStore, client: &Client, schema: &Schema, said: &[String]) {
    let sql = format!("SELECT key FROM {schema}.payment ORDER BY key COLLATE \"C\"");
    let rows = client.query(&sql, &[]).await.unwrap();
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let completed = recorded(store, StateName::Completed).await;
    assert_eq!(rows, Vec::from_iter(completed.iter().cloned()));
    let failed = recorded(store, StateName::Failed).await;
    for state in [StateName::Running, StateName::Unknown, StateName::Released] {
        assert_eq!(recorded(store, state).await, BTreeSet::new());
    }
    for line in said {
        let (key, word) = line[2..].split_once(' ').unwrap();
        let kept = if word == "paid" { &completed } else { &failed };
        assert!(kept.contains(key), "{key} was {word} and is not there");
    }
}

/// All keys whose record is in this state.
async fn recorded(store: &PostgresStore, standing: StateName) -> BTreeSet<String> {
    let mut query = Query { standing: Some(standing), ..Query::default() };
    let mut keys = BTreeSet::new();
    loop {
        let page = store.list(&query).await.unwrap();
        keys.extend(page.records.iter().map(|it| it.key.as_ref().unwrap().expose().to_owned()));
        query.after = page.next;
        if query.after.is_none() {
            return keys;
        }
    }
}
