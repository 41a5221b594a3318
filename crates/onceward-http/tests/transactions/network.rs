//! The connection to the server is cut at every message, including the commit and its reply.

use std::time::Duration;

use onceward_http::Rules;
use onceward_services::Server;
use onceward_stores::postgres::Settings;
use onceward_testkit::proxy::{Proxy, Trouble, Way};

use super::shop::{Shop, eventually, settings, shared};

/// A proxy before a server, and the server's URL through it.
async fn proxied(server: &Server) -> (Proxy, String) {
    let proxy = Proxy::to(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    (proxy, url)
}

/// Orders through a network with one fault, and compares the response with the database. Returns the
/// number of lost messages, and whether the order was committed.
async fn troubled(
    server: &Server,
    direct: &Shop,
    settings: &Settings,
    plan: (usize, Way, Trouble),
) -> (usize, bool) {
    let (proxy, url) = proxied(server).await;
    let shop = Shop::with(server.url(), &url, settings.clone(), Rules::default()).await;
    let key = format!("{plan:?}").replace(|it: char| !it.is_ascii_alphanumeric(), "-");
    proxy.on_nth(plan.0, plan.1, plan.2);
    let answer = shop.order(&key, "").await;
    let committed = match (answer.status, &*answer.code()) {
        (201, _) => {
            assert!(!answer.replayed && direct.together(&key).await, "{key}");
            true
        }
        (503, "IDEMPOTENCY_ROLLED_BACK" | "IDEMPOTENCY_STORE_UNAVAILABLE") => {
            assert!(!direct.together(&key).await, "{key}: the response says that nothing happened");
            false
        }
        // The handler's own answer to a database error. As a 5xx it is unknown, so it is rolled back.
        (500, "") => {
            assert!(!direct.together(&key).await, "{key}: an unknown outcome was rolled back");
            false
        }
        other => panic!("{key}: {other:?}"),
    };
    let fired = proxy.fired();
    drop((shop, proxy));
    eventually("a retry is answered", async || direct.order(&key, "").await.status == 201).await;
    assert!(direct.together(&key).await, "{key}");
    (fired, committed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_connection_is_cut_rows_and_reply_are_there_together_or_neither_is() {
    let Some(server) = shared() else { return };
    let settings = Settings { transactions_max: 1, ..settings() };
    let direct = Shop::open(server.url(), settings.clone()).await;
    let (mut fired, mut committed, mut not) = (0, 0, 0);
    for way in [Way::Request, Way::Reply] {
        for n in 1..=22 {
            let plan = (n, way, Trouble::Cut);
            let (lost, done) = troubled(server, &direct, &settings, plan).await;
            fired += lost;
            *if done { &mut committed } else { &mut not } += 1;
        }
    }
    println!("{fired} messages lost: {committed} committed, {not} not");
    assert!(fired >= 20 && committed > 1 && not > 4);
}

/// A shop behind a proxy, with slow commits.
async fn slow_to_commit(server: &Server) -> (Proxy, Shop) {
    let (proxy, url) = proxied(server).await;
    let call_timeout = Duration::from_millis(700);
    let settings = Settings { transactions_max: 1, call_timeout, ..settings() };
    let shop = Shop::with(server.url(), &url, settings, Rules::default()).await;
    let (schema, table) = (shop.table.split('.').next().unwrap(), &shop.table);
    let slow = format!(
        "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE \
         INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.slow()"
    );
    shop.client.batch_execute(&slow).await.unwrap();
    (proxy, shop)
}

/// Waits until the server runs a commit of this shop.
async fn commits(shop: &Shop) {
    let sql = "SELECT count(*) FROM pg_stat_activity AS it JOIN pg_locks USING (pid) \
               WHERE query = 'COMMIT' AND wait_event = 'PgSleep' \
               AND relation = $1::text::regclass";
    let commits =
        async || shop.client.query_one(sql, &[&&*shop.table]).await.unwrap().get::<_, i64>(0) > 0;
    eventually("the commit is under way", commits).await;
}

/// The reply to the commit is lost or its connection ends, and the server is queried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_of_the_commit_is_settled_by_asking() {
    let Some(server) = shared() else { return };
    for trouble in [Trouble::Cut, Trouble::Swallow] {
        let (proxy, shop) = slow_to_commit(server).await;
        let spoil = async {
            commits(&shop).await;
            proxy.on_nth(1, Way::Reply, trouble);
        };
        let (answer, ()) = tokio::join!(shop.order("key", ""), spoil);
        assert_eq!((answer.status, answer.replayed, proxy.fired()), (201, false, 1));
        assert!(shop.together("key").await);
    }
}

/// The server cannot be queried: the response says neither that nothing happened nor that it succeeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_fate_cannot_be_queried_is_unknown_and_replays_later() {
    let Some(server) = shared() else { return };
    let (proxy, shop) = slow_to_commit(server).await;
    let spoil = async {
        commits(&shop).await;
        proxy.shut().await;
    };
    let (answer, ()) = tokio::join!(shop.order("key", ""), spoil);
    assert_eq!((answer.status, &*answer.code()), (500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    proxy.heal();
    eventually("a retry replays", async || shop.order("key", "").await.replayed).await;
    assert!(shop.together("key").await);
}
