//! Claim, business rows and outcome in one commit: all of it, or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_core::{
    BusinessReference, Claim, Done, Failure, Fenced, Fingerprint, Holder, Identity, Intent, Key,
    KnownReference, Policy, RecordId, Rejection, RunError, StateName, Store as _, StoreAdmin as _,
};
use onceward_services::{PgBouncer, Server, or_skip};
use onceward_stores::postgres::tokio_postgres::types::Type;
use onceward_stores::postgres::tokio_postgres::{Client, Transaction};
use onceward_stores::postgres::{PostgresStore, Settings, Transactions};
use onceward_testkit::proxy::{Trouble, Way};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::common::{
    DAY, eventually, nothing_is_open, outcome, plain, proxied, request, scope, shared, small,
};

/// A store, and a table of the service beside its own.
struct Shop {
    store: PostgresStore,
    pg: Transactions,
    client: Client,
    table: String,
}

impl Shop {
    async fn open(server: &Server, url: &str, settings: Settings) -> Self {
        let client = plain(server.url()).await;
        let table = format!("{}.payment", settings.schema);
        let store = PostgresStore::open(url, settings).await.unwrap();
        let sql = format!("CREATE TABLE IF NOT EXISTS {table} (key text NOT NULL)");
        client.batch_execute(&sql).await.unwrap();
        let pg = store.transactions(Identity::unkeyed(), Policy::default());
        Self { store, pg, client, table }
    }

    async fn fresh(server: &Server) -> Self {
        Self::open(server, server.url(), small()).await
    }

    /// Pays once, by inserting a row.
    async fn pay(&self, key: &str) -> Result<Done<String>, RunError<String>> {
        self.pg.transact(&intent(key), async |tx| self.insert(tx, key).await).await
    }

    async fn insert(&self, tx: &Transaction<'_>, key: &str) -> Result<String, Failure<String>> {
        let sql = format!("INSERT INTO {} VALUES ($1)", self.table);
        let values = [(&key as _, Type::TEXT)];
        let inserted = timeout(Duration::from_secs(1), tx.execute_typed(&sql, &values)).await;
        let inserted = inserted.map_err(|late| Failure::Release(late.to_string()))?;
        inserted.map_err(|error| Failure::Release(error.to_string()))?;
        Ok(format!("paid {key}"))
    }

    async fn rows(&self, key: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {} WHERE key = $1", self.table);
        self.client.query_one(&sql, &[&key]).await.unwrap().get(0)
    }

    /// Compares the rows of the service with the state of the record, which must fit.
    async fn together(&self, key: &str) -> bool {
        let record = self.store.get(&record(key)).await.unwrap();
        let state = record.map(|record| record.state.name());
        match (self.rows(key).await, state) {
            (1, Some(StateName::Completed)) => true,
            (0, None) => false,
            other => panic!("{key}: {other:?}"),
        }
    }
}

pub(super) fn intent(key: &str) -> Intent {
    Intent::new(scope(), Key::new(key).unwrap(), Fingerprint::of_parts(&[b"pay"]))
}

fn record(key: &str) -> RecordId {
    Identity::unkeyed().record_id(&scope(), &Key::new(key).unwrap())
}

#[tokio::test]
async fn rows_and_reply_are_committed_together_and_replayed() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let first = shop.pay("a").await.unwrap();
    let again = shop.pay("a").await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!((first.operation, &*first.value), (again.operation, &*again.value));
    assert!(shop.together("a").await);
    let other = Intent { fingerprint: Fingerprint::of_parts(&[b"other"]), ..intent("a") };
    let refused = shop.pg.transact(&other, async |_| Ok::<_, Failure<String>>(())).await;
    assert!(matches!(refused, Err(RunError::Rejected(Rejection::Mismatch { .. }))));
}

#[tokio::test]
async fn through_pgbouncer_it_is_one_commit_too() {
    let Some(server) = shared() else { return };
    let Some(bouncer) = or_skip(PgBouncer::before(server).start()) else { return };
    let settings = Settings { pgbouncer: true, ..small() };
    let shop = Shop::open(server, bouncer.url(), settings).await;
    for index in 0..20 {
        let key = format!("k{index}");
        assert!(!shop.pay(&key).await.unwrap().replayed);
        assert!(shop.pay(&key).await.unwrap().replayed);
        assert!(shop.together(&key).await);
    }
}

#[tokio::test]
async fn a_kept_failure_is_replayed_without_its_rows_and_a_released_one_never_was() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let fail = async |key: &str, how: fn(String) -> Failure<String>| {
        let work = async |tx: &mut Transaction<'_>| {
            shop.insert(tx, key).await?;
            Err::<(), _>(how("no money".to_owned()))
        };
        shop.pg.transact(&intent(key), work).await
    };
    for replays in [false, true] {
        match fail("kept", Failure::Keep).await {
            Err(RunError::Failed { error, replayed, .. }) => {
                assert_eq!((&*error, replayed), ("no money", replays));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shop.rows("kept").await, 0);
    for how in [Failure::Release, Failure::Unknown] {
        assert!(matches!(fail("released", how).await, Err(RunError::Released { .. })));
        assert!(!shop.together("released").await);
    }
    assert!(!shop.pay("released").await.unwrap().replayed);
}

/// The rows may be committed, and there is no outcome: the answer must not be that nothing
/// happened.
#[tokio::test]
async fn work_that_commits_by_itself_is_unknown_and_not_done_again() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for (key, result) in [("done", Ok(())), ("undone", Err(Failure::Release("no".to_owned())))] {
        let work = async |tx: &mut Transaction<'_>| {
            shop.insert(tx, key).await?;
            tx.batch_execute("COMMIT").await.unwrap();
            result
        };
        let ended = shop.pg.transact(&intent(key), work).await;
        assert!(matches!(ended, Err(RunError::Unknown { .. })), "{ended:?}");
        let retry = shop.pay(key).await;
        assert!(matches!(retry, Err(RunError::Rejected(Rejection::Running { .. }))), "{retry:?}");
        assert_eq!(shop.rows(key).await, 1);
    }
}

/// As servers do with every request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_in_a_task_of_its_own() {
    let Some(server) = shared() else { return };
    let shop = Arc::new(Shop::fresh(server).await);
    let here = Arc::clone(&shop);
    let task = tokio::spawn(async move {
        let (shop, key) = (&here, "spawned".to_owned());
        let work = async |tx: &mut Transaction<'_>| shop.insert(tx, &key).await;
        shop.pg.transact(&intent(&key), work).await
    });
    assert!(!task.await.unwrap().unwrap().replayed);
    assert!(shop.together("spawned").await);
}

/// The slow transaction holds its connection; its retries hold none.
#[tokio::test]
async fn retries_of_a_slow_key_are_turned_away_at_once_and_keep_nobody_waiting() {
    let Some(server) = shared() else { return };
    let settings = Settings { transactions_max: 2, ..small() };
    let shop = Arc::new(Shop::open(server, server.url(), settings).await);
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel::<()>();
    let slow = Arc::clone(&shop);
    let slow = async move {
        let work = async |tx: &mut Transaction<'_>| {
            begun.send(()).unwrap();
            may_go_on.await.unwrap();
            slow.insert(tx, "slow").await
        };
        slow.pg.transact(&intent("slow"), work).await
    };
    let others = async {
        has_begun.await.unwrap();
        for _ in 0..20 {
            let retry = timeout(Duration::from_millis(900), shop.pay("slow")).await.unwrap();
            assert!(matches!(retry, Err(RunError::Rejected(Rejection::Running { .. }))));
        }
        assert!(!shop.pay("quick").await.unwrap().replayed);
        go_on.send(()).unwrap();
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert!(!slow.unwrap().replayed);
    assert!(shop.pay("slow").await.unwrap().replayed);
}

/// Pays through a network that fails once, and compares the answer with the database. Returns how
/// many messages were lost, and whether it was committed.
async fn troubled(
    server: &Server,
    direct: &Shop,
    settings: &Settings,
    plan: (usize, Way, Trouble),
) -> (usize, bool) {
    let (proxy, url) = proxied(server).await;
    let shop = Shop::open(server, &url, settings.clone()).await;
    let key = format!("{plan:?}");
    proxy.on_nth(plan.0, plan.1, plan.2);
    let committed = match shop.pay(&key).await {
        Ok(done) => {
            assert!(!done.replayed && direct.together(&key).await, "{key}");
            true
        }
        Err(RunError::Begin(_) | RunError::Released { .. }) => {
            assert!(!direct.together(&key).await, "{key}: it was said to be nothing");
            false
        }
        other => panic!("{key}: {other:?}"),
    };
    let fired = proxy.fired();
    // A server that receives nothing waits for `idle_in_transaction_session_timeout`.
    drop((shop, proxy));
    eventually("a retry is answered", async || direct.pay(&key).await.is_ok()).await;
    assert!(direct.together(&key).await, "{key}");
    (fired, committed)
}

/// Each message of a transaction is lost once, including the commit and its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_connection_is_cut_rows_and_reply_are_there_together_or_neither_is() {
    let Some(server) = shared() else { return };
    let settings = Settings { transactions_max: 1, ..small() };
    let direct = Shop::open(server, server.url(), settings.clone()).await;
    let (mut fired, mut committed, mut not) = (0, 0, 0);
    for way in [Way::Request, Way::Reply] {
        for trouble in [Trouble::Cut, Trouble::Halve] {
            for n in 1..=16 {
                let (lost, done) = troubled(server, &direct, &settings, (n, way, trouble)).await;
                fired += lost;
                *if done { &mut committed } else { &mut not } += 1;
            }
        }
    }
    println!("{fired} messages lost: {committed} committed, {not} not");
    assert!(fired >= 20 && committed > 4 && not > 4);
}

/// The same with a silent network: neither side learns that the other is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_network_falls_silent_rows_and_reply_are_there_together_or_neither_is() {
    let Some(server) = shared() else { return };
    let call_timeout = Duration::from_millis(250);
    let settings = Settings { transactions_max: 1, call_timeout, ..small() };
    let direct = Shop::open(server, server.url(), settings.clone()).await;
    let (mut fired, mut committed) = (0, 0);
    for way in [Way::Request, Way::Reply] {
        for n in 1..=13 {
            let plan = (n, way, Trouble::Swallow);
            let (lost, done) = troubled(server, &direct, &settings, plan).await;
            fired += lost;
            committed += usize::from(done);
        }
    }
    println!("{fired} messages lost: {committed} committed");
    assert!(fired >= 10 && committed > 0);
}

/// While the commit is in progress at the server, its reply is lost or its connection ends, and the
/// server is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_of_the_commit_is_settled_by_asking() {
    let Some(server) = shared() else { return };
    for trouble in [Trouble::Cut, Trouble::Swallow] {
        let (proxy, url) = proxied(server).await;
        let call_timeout = Duration::from_millis(700);
        let settings = Settings { transactions_max: 1, call_timeout, ..small() };
        let shop = Shop::open(server, &url, settings).await;
        let (schema, table) = (shop.table.split('.').next().unwrap(), &shop.table);
        let slow = format!(
            "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE \
             INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.slow()"
        );
        shop.client.batch_execute(&slow).await.unwrap();
        let spoil = async {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' \
                       AND wait_event = 'PgSleep'";
            let commits =
                async || shop.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1;
            eventually("the commit is under way", commits).await;
            proxy.on_nth(1, Way::Reply, trouble);
        };
        let (done, ()) = tokio::join!(shop.pay("key"), spoil);
        assert!(!done.unwrap().replayed && proxy.fired() == 1);
        assert!(shop.together("key").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_point_it_is_committed_or_rolled_back_and_nothing_stays_open() {
    let Some(server) = shared() else { return };
    let settings = Settings { transactions_max: 1, ..small() };
    let name = settings.schema.to_string();
    let url = format!("{}?application_name={name}", server.url());
    let shop = Shop::open(server, &url, settings).await;
    let (mut committed, mut not) = (0, 0);
    for micros in (0..60).map(|step| step * 150) {
        let key = format!("k{micros}");
        let _ = timeout(Duration::from_micros(micros), shop.pay(&key)).await;
        nothing_is_open(&shop.client, &name).await;
        match shop.together(&key).await {
            true => committed += 1,
            false => not += 1,
        }
        shop.pay(&key).await.unwrap();
        assert!(shop.together(&key).await);
    }
    println!("{committed} committed, {not} not");
    assert!(committed > 0 && not > 0);
}

#[tokio::test]
async fn a_claim_in_a_users_own_transaction_counts_with_its_commit() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let mut client = plain(server.url()).await;
    for commits in [false, true] {
        let claim = request("mine");
        let tx = client.transaction().await.unwrap();
        let Claim::Granted { lease, .. } = shop.store.claim_in(&tx, &claim).await.unwrap() else {
            panic!()
        };
        shop.insert(&tx, "mine").await.unwrap();
        let holder = Holder { owner: claim.owner, fence: lease.fence };
        let done = outcome("done");
        let completed = shop.store.complete_in(&tx, claim.id, holder, done, DAY).await.unwrap();
        assert_eq!(completed, Fenced::Applied(()));
        assert_eq!(shop.store.get(&claim.id).await.unwrap(), None, "not before the commit");
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(shop.rows("mine").await, i64::from(commits));
    }
    let claim = shop.store.claim(&request("mine")).await.unwrap();
    assert!(matches!(claim, Claim::Completed { .. }), "{claim:?}");
}

/// Work that panics is like work whose process dies: nothing of it is committed.
#[tokio::test]
async fn work_that_panics_never_was() {
    let Some(server) = shared() else { return };
    let shop = Arc::new(Shop::fresh(server).await);
    let runs = Arc::new(AtomicUsize::new(0));
    let (panicking, counted) = (Arc::clone(&shop), Arc::clone(&runs));
    let panicked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = async |tx: &mut Transaction<'_>| {
                panicking.insert(tx, "key").await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                panic!("of the test");
                #[expect(unreachable_code, reason = "says the type")]
                Ok::<(), Failure<String>>(())
            };
            let _ = panicking.pg.transact(&intent("key"), work).await;
        });
    });
    assert!(panicked.join().is_err() && runs.load(Ordering::SeqCst) == 1);
    eventually("a retry pays", async || shop.pay("key").await.is_ok()).await;
    assert!(shop.together("key").await);
}

fn called(key: &str, reference: &str) -> Intent {
    intent(key).with_reference(BusinessReference::new(reference, KnownReference::Replay).unwrap())
}

#[tokio::test]
async fn a_business_reference_is_committed_with_its_rows_and_known_under_every_key() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let pay = async |key: &str, work: &str| {
        let intent = called(key, "RF18");
        shop.pg.transact(&intent, async |tx| shop.insert(tx, work).await).await
    };
    let first = pay("k1", "row").await.unwrap();
    for key in ["k1", "k2", "k2"] {
        let again = pay(key, "row").await.unwrap();
        assert!(again.replayed && again.operation == first.operation, "{key}");
    }
    assert_eq!(shop.rows("row").await, 1);
    let other = Intent { fingerprint: Fingerprint::of_parts(&[b"other"]), ..called("k3", "RF18") };
    let refused = shop.pg.transact(&other, async |tx| shop.insert(tx, "row").await).await;
    let Err(RunError::Rejected(Rejection::ReferenceTaken { operation, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(operation, Some(first.operation));
    let elsewhere = called("k2", "RF19");
    let refused = shop.pg.transact(&elsewhere, async |tx| shop.insert(tx, "x").await).await;
    assert!(matches!(refused, Err(RunError::Rejected(Rejection::Mismatch { .. }))), "{refused:?}");
    let record = shop.store.find(&first.operation).await.unwrap().unwrap();
    assert_eq!(record.key.unwrap().expose(), "RF18", "stored for lookups");
}

#[tokio::test]
async fn what_is_rolled_back_under_a_reference_never_was() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let (first, second) = (called("k1", "RF20"), called("k2", "RF20"));
    let failed = shop.pg.transact(&first, async |tx| {
        shop.insert(tx, "row").await?;
        Err::<String, _>(Failure::Release("no".to_owned()))
    });
    assert!(matches!(failed.await, Err(RunError::Released { .. })));
    assert_eq!(shop.rows("row").await, 0);
    let again = shop.pg.transact(&second, async |tx| shop.insert(tx, "row").await);
    assert!(!again.await.unwrap().replayed);
    assert_eq!(shop.rows("row").await, 1);
}
