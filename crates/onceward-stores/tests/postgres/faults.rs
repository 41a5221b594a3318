//! Locks, timeouts, bad networks, callers that go away.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, SettleRequest, Settlement, StateName, Store as _, StoreAdmin as _,
    StoreErrorKind,
};
use onceward_services::{Server, or_skip};
use onceward_stores::postgres::{PostgresStore, Settings};
use onceward_testkit::proxy::{Trouble, Way};

use super::common::{
    DAY, complete, eventually, granted, id, nothing_is_open, outcome, plain, proxied, replay,
    request, settle, shared, small,
};

fn impatient() -> Settings {
    Settings { lock_timeout: Duration::from_millis(200), ..small() }
}

#[tokio::test]
async fn a_record_that_somebody_has_locked_fails_alone_and_without_effect() {
    let Some(server) = shared() else { return };
    let settings = Settings { connections: 1, ..impatient() };
    let schema = settings.schema.clone();
    let store = Arc::new(PostgresStore::open(server.url(), settings).await.unwrap());
    let mut holders = Vec::new();
    for key in ["a", "locked", "z"] {
        holders.push((key, granted(&*store, key).await));
    }
    let mut other = plain(server.url()).await;
    let tx = other.transaction().await.unwrap();
    let lock = format!("SELECT FROM {schema}.idempotency_record WHERE id = $1 FOR UPDATE");
    tx.execute(&lock, &[&id("locked").as_bytes().as_slice()]).await.unwrap();

    // While the first waits, the others are batched.
    let settling: Vec<_> = ["locked", "a", "locked", "z"]
        .into_iter()
        .map(|key| {
            let holder = holders.iter().find(|it| it.0 == key).unwrap().1;
            let store = Arc::clone(&store);
            let done = Settlement::Complete(outcome("done"));
            tokio::spawn(async move { (key, settle(&*store, key, holder, done, DAY).await) })
        })
        .collect();
    for task in settling {
        match task.await.unwrap() {
            ("locked", Err(error)) => {
                assert_eq!(
                    (error.kind, error.effect),
                    (StoreErrorKind::Timeout, Effect::NotApplied)
                );
            }
            ("a" | "z", settled) => assert_eq!(settled.unwrap(), Fenced::Applied(())),
            other => panic!("{other:?}"),
        }
    }
    tx.rollback().await.unwrap();
    let done = Settlement::Complete(outcome("done"));
    let settled = settle(&*store, "locked", holders[1].1, done, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
}

#[tokio::test]
async fn a_claim_behind_an_uncommitted_one_gives_up_in_time_and_goes_on_after_it() {
    let Some(server) = shared() else { return };
    let store = PostgresStore::open(server.url(), impatient()).await.unwrap();
    for commits in [true, false] {
        let key = format!("key {commits}");
        let mut other = plain(server.url()).await;
        let tx = other.transaction().await.unwrap();
        let claim = request(&key);
        assert!(matches!(store.claim_in(&tx, &claim).await.unwrap(), Claim::Granted { .. }));
        let error = store.claim(&request(&key)).await.unwrap_err();
        assert_eq!((error.kind, error.effect), (StoreErrorKind::Timeout, Effect::NotApplied));
        if commits {
            tx.commit().await.unwrap();
            let claim = store.claim(&request(&key)).await.unwrap();
            assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
        } else {
            tx.rollback().await.unwrap();
            granted(&store, &key).await;
        }
    }
}

/// A server of its own, to stop and kill.
async fn of_its_own() -> Option<Arc<Server>> {
    let start = || or_skip(onceward_services::Postgres::default().fsync(false).start());
    tokio::task::spawn_blocking(start).await.unwrap().map(Arc::new)
}

#[tokio::test]
async fn a_server_that_stands_still_is_told_as_unclear_and_the_same_token_gets_its_grant() {
    let Some(server) = of_its_own().await else { return };
    let settings = Settings { call_timeout: Duration::from_millis(300), ..small() };
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    complete(&store, "before", "done").await;
    server.pause();
    let claim = request("key");
    let error = store.claim(&claim).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Timeout, Effect::MayHaveBeenApplied));
    server.resume();
    let granted = || async { matches!(store.claim(&claim).await, Ok(Claim::Granted { .. })) };
    eventually("the same token is granted", async || granted().await).await;
    assert_eq!(replay(&store, "before").await, "done");
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_as_not_applied_until_it_is_back() {
    let Some(server) = of_its_own().await else { return };
    let store = PostgresStore::open(server.url(), small()).await.unwrap();
    complete(&store, "key", "done").await;
    server.kill().unwrap();
    // The first call may learn from the end of its own connection.
    let _ = store.claim(&request("other")).await.unwrap_err();
    let error = store.claim(&request("other")).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
    let again = Arc::clone(&server);
    tokio::task::spawn_blocking(move || again.start()).await.unwrap().unwrap();
    assert_eq!(replay(&store, "key").await, "done");
}

/// Each message between a claim and a settlement is lost once, in either direction, as a whole or
/// in part. Every answer must be true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_connection_is_cut_what_is_told_is_so() {
    let Some(server) = shared() else { return };
    let settings = Settings { connections: 1, ..small() };
    let direct = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    let mut fired = 0;
    for way in [Way::Request, Way::Reply] {
        for trouble in [Trouble::Cut, Trouble::Halve] {
            for n in 1..=16 {
                let (proxy, url) = proxied(server).await;
                let settings = Settings { migrate: false, ..settings.clone() };
                let store = PostgresStore::open(&url, settings).await.unwrap();
                proxy.on_nth(n, way, trouble);
                cut_once(&direct, &store, &format!("{way:?} {trouble:?} {n}")).await;
                fired += proxy.fired();
            }
        }
    }
    assert!(fired >= 16, "only {fired} messages were lost");
}

async fn cut_once(direct: &PostgresStore, store: &PostgresStore, key: &str) {
    let claim = request(key);
    let lease = loop {
        match store.claim(&claim).await {
            Ok(Claim::Granted { lease, .. }) => break lease,
            Ok(other) => panic!("{key}: {other:?}"),
            Err(error) if error.may_have_been_applied() => {}
            Err(_) => {
                let found = direct.get(&claim.id).await.unwrap();
                assert_eq!(found, None, "{key}: it was said not to be applied");
            }
        }
    };
    let holder = onceward_core::Holder { owner: claim.owner, fence: lease.fence };
    let settlement = Settlement::Complete(outcome(key));
    let settle = SettleRequest { id: claim.id, holder, settlement, retention: DAY };
    loop {
        match store.settle(&settle).await {
            Ok(settled) => break assert_eq!(settled, Fenced::Applied(()), "{key}"),
            Err(error) if error.may_have_been_applied() => {}
            Err(_) => {
                let found = direct.get(&claim.id).await.unwrap().unwrap();
                assert_eq!(found.state.name(), StateName::Running, "{key}");
            }
        }
    }
    let found = direct.get(&claim.id).await.unwrap().unwrap();
    assert_eq!((found.fence, found.attempts), (lease.fence, 1), "{key}");
    assert_eq!(replay(direct, key).await, key);
}

/// Polls a future a number of times, then drops it. Returns whether it was complete before.
async fn dropped_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        // Long enough for a reply to the last poll, so that the next poll makes progress.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_leaves_nothing_open_and_is_taken_or_not() {
    let Some(server) = shared() else { return };
    let settings = small();
    let name = settings.schema.to_string();
    let url = format!("{}?application_name={name}", server.url());
    let store = PostgresStore::open(&url, settings).await.unwrap();
    let client = plain(server.url()).await;
    let mut ends = 0;
    for polls in 0..8 {
        let key = format!("k{polls}");
        let claim = request(&key);
        ends += usize::from(dropped_after(polls, store.claim(&claim)).await);
        nothing_is_open(&client, &name).await;
        // The same token gets the grant that may exist.
        let Claim::Granted { lease, .. } = store.claim(&claim).await.unwrap() else { panic!() };
        let holder = onceward_core::Holder { owner: claim.owner, fence: lease.fence };
        let done = || Settlement::Complete(outcome("done"));
        ends += usize::from(dropped_after(polls, settle(&store, &key, holder, done(), DAY)).await);
        nothing_is_open(&client, &name).await;
        assert_eq!(settle(&store, &key, holder, done(), DAY).await.unwrap(), Fenced::Applied(()));
        assert_eq!(store.get(&claim.id).await.unwrap().unwrap().attempts, 1);
    }
    assert!(ends > 0, "no call came to its end");
}
