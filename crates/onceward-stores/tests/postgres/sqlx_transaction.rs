//! Claim, business rows and outcome in one commit of sqlx.

use onceward_core::{
    Claim, Fenced, Holder, SettleRequest, Settlement, Store as _, StoreAdmin as _,
};
use onceward_services::Server;
use onceward_stores::postgres::PostgresStore;
use onceward_stores::postgres::sqlx::{self, AssertSqlSafe, Connection as _, PgConnection};

use super::common::{DAY, fresh_name, granted, id, open, outcome, request, settle, shared};

async fn connect(server: &Server) -> PgConnection {
    let url = format!("{}?sslmode=disable", server.url());
    PgConnection::connect(&url).await.unwrap()
}

/// A table of the service.
async fn table(connection: &mut PgConnection) -> String {
    let table = fresh_name("payment");
    let sql = format!("CREATE TABLE {table} (key text NOT NULL)");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
    table
}

async fn rows(connection: &mut PgConnection, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap()
}

/// Claims, inserts a payment, and completes.
async fn pay(
    store: &PostgresStore,
    tx: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    table: &str,
    key: &str,
) -> Holder {
    let request = request(key);
    let claim = store.claim_in_sqlx(tx, &request).await.unwrap();
    let Claim::Granted { lease, .. } = claim else { panic!("{claim:?}") };
    let sql = format!("INSERT INTO {table} VALUES ($1)");
    sqlx::query(AssertSqlSafe(sql)).bind(key).execute(&mut **tx).await.unwrap();
    let holder = Holder { owner: request.owner, fence: lease.fence };
    let completed = store.complete_in_sqlx(tx, id(key), holder, outcome("paid"), DAY).await;
    assert_eq!(completed.unwrap(), Fenced::Applied(()));
    holder
}

#[tokio::test]
async fn rows_and_outcome_are_committed_together() {
    let Some(server) = shared() else { return };
    let (store, mut connection) = (open(server).await, connect(server).await);
    let table = table(&mut connection).await;
    let mut tx = connection.begin().await.unwrap();
    pay(&store, &mut tx, &table, "key").await;
    // Other connections do not see it yet, and do not wait for it.
    let mut other = connect(server).await;
    let mut elsewhere = other.begin().await.unwrap();
    let claim = store.claim_in_sqlx(&mut elsewhere, &request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    elsewhere.rollback().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rows(&mut connection, &table).await, 1);
    let mut tx = connection.begin().await.unwrap();
    let again = store.claim_in_sqlx(&mut tx, &request("key")).await.unwrap();
    assert!(matches!(&again, Claim::Completed { outcome: it, .. } if *it == outcome("paid")));
    drop(tx);
    // Each driver reads what the other wrote.
    assert_eq!(store.claim(&request("key")).await.unwrap(), again);
}

#[tokio::test]
async fn a_rollback_leaves_neither_rows_nor_claim() {
    let Some(server) = shared() else { return };
    let (store, mut connection) = (open(server).await, connect(server).await);
    let table = table(&mut connection).await;
    let mut tx = connection.begin().await.unwrap();
    pay(&store, &mut tx, &table, "key").await;
    tx.rollback().await.unwrap();
    assert_eq!(rows(&mut connection, &table).await, 0);
    assert_eq!(store.get(&id("key")).await.unwrap(), None);
}

/// Both drivers read whole records and take the rare edges of the truth table.
#[tokio::test]
async fn what_the_store_has_is_met_and_a_stale_holder_is_refused() {
    let Some(server) = shared() else { return };
    let (store, mut connection) = (open(server).await, connect(server).await);
    let holder = granted(&store, "running").await;
    let mut tx = connection.begin().await.unwrap();
    let met = store.claim_in_sqlx(&mut tx, &request("running")).await.unwrap();
    assert!(matches!(met, Claim::Running { .. }), "{met:?}");
    let stale = Holder { fence: onceward_core::Fence(1), ..holder };
    let settlement = Settlement::Complete(outcome("stale"));
    let stale = SettleRequest { id: id("running"), holder: stale, settlement, retention: DAY };
    assert_eq!(store.settle_in_sqlx(&mut tx, &stale).await.unwrap(), Fenced::Stale);
    let settlement = Settlement::Fail(outcome("no money"));
    let failed = SettleRequest { settlement, holder, ..stale };
    assert_eq!(store.settle_in_sqlx(&mut tx, &failed).await.unwrap(), Fenced::Applied(()));
    tx.commit().await.unwrap();
    // Released through one driver, claimed again through the other.
    let holder = granted(&store, "released").await;
    let _ = settle(&store, "released", holder, Settlement::Release, DAY).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let again = store.claim_in_sqlx(&mut tx, &request("released")).await.unwrap();
    assert!(matches!(again, Claim::Granted { .. }), "{again:?}");
    tx.commit().await.unwrap();
    let claim = store.claim(&request("running")).await.unwrap();
    assert!(matches!(claim, Claim::Failed { .. }), "{claim:?}");
}
