//! Waiters are notified, also of a settlement in another process, and only where there are any.

use std::time::Duration;

use onceward_core::{Fenced, Holder, Settlement, Store as _};
use onceward_services::{PgBouncer, Server, or_skip};
use onceward_stores::postgres::{Listen, PostgresStore, Settings};
use tokio::time::timeout;

use super::common::{DAY, eventually, granted, id, outcome, plain, settle, shared, small};

const LONG: Duration = Duration::from_secs(20);

async fn complete(store: &PostgresStore, key: &str, holder: Holder) {
    let done = Settlement::Complete(outcome("done"));
    assert_eq!(settle(store, key, holder, done, DAY).await.unwrap(), Fenced::Applied(()));
}

/// Returns whether the row is marked as awaited.
async fn is_awaited(server: &Server, settings: &Settings, key: &str) -> bool {
    let sql = format!("SELECT awaited FROM {}.idempotency_record WHERE id = $1", settings.schema);
    let client = plain(server.url()).await;
    let row = client.query_one(&sql, &[&id(key).as_bytes().as_slice()]).await.unwrap();
    row.get(0)
}

async fn a_waiter_is_told(server: &Server, settings: Settings, url: &str) {
    let owner = PostgresStore::open(url, settings.clone()).await.unwrap();
    let waiter = PostgresStore::open(url, settings.clone()).await.unwrap();
    let holder = granted(&owner, "key").await;
    let key = id("key");
    let (changed, mut settled) = (waiter.changed(&key), false);
    let settling = async {
        eventually("it is awaited", async || is_awaited(server, &settings, "key").await).await;
        // The first notification only says that listening began.
        tokio::time::sleep(Duration::from_millis(200)).await;
        settled = true;
        complete(&owner, "key", holder).await;
        std::future::pending::<()>().await;
    };
    let told = async {
        tokio::select! { () = changed => {}, () = settling => {} }
    };
    timeout(LONG, told).await.expect("told");
    // The start of listening wakes every waiter once; the next wait is the one under test.
    if !settled {
        let again = waiter.changed(&key);
        complete(&owner, "key", holder).await;
        timeout(LONG, again).await.expect("told");
    }
    timeout(LONG, waiter.changed(&key)).await.expect("nothing to wait for");
}

#[tokio::test]
async fn a_waiter_in_another_process_is_told() {
    let Some(server) = shared() else { return };
    a_waiter_is_told(server, small(), server.url()).await;
}

#[tokio::test]
async fn behind_pgbouncer_a_waiter_listens_past_it() {
    let Some(server) = shared() else { return };
    let Some(bouncer) = or_skip(PgBouncer::before(server).start()) else { return };
    let listen = Listen::At(server.url().to_owned());
    let settings = Settings { pgbouncer: true, listen, ..small() };
    a_waiter_is_told(server, settings, bouncer.url()).await;
}

#[tokio::test]
async fn a_settlement_that_nobody_waits_for_notifies_nobody() {
    let Some(server) = shared() else { return };
    let settings = small();
    let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    let (client, mut connection) =
        tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    let (heard, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let tokio_postgres::AsyncMessage::Notification(it) = message {
                let _ = heard.send(it.payload().to_owned());
            }
        }
    });
    let channel = format!("onceward_{}", settings.schema);
    client.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
    let holder = granted(&store, "alone").await;
    complete(&store, "alone", holder).await;
    client.batch_execute(&format!("NOTIFY {channel}, 'last'")).await.unwrap();
    assert_eq!(timeout(LONG, hearing.recv()).await.unwrap().unwrap(), "last");
}
