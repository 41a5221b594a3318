//! Full memory, scripts that the server forgot, dropped calls, pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, Holder, RenewRequest, ResolveRequest, Settlement, Store as _,
    StoreAdmin as _, StoreErrorKind, Verdict,
};
use onceward_stores::redis::{RedisStore, Settings};

use super::common::{
    DAY, complete, granted, id, open, outcome, replay, request, settings, settle, shared, tell,
};
use crate::calls::unknown;
use crate::load::Load;

#[tokio::test]
async fn when_memory_is_full_claims_are_refused_and_settlements_fit() {
    let Some(server) = onceward_services::redis() else { return };
    let store = open(&server).await;
    complete(&store, "done", "done").await;
    let mut running = Vec::new();
    for index in 0..4 {
        running
            .push((format!("running {index}"), granted(&store, &format!("running {index}")).await));
    }
    tell(&server, &["CONFIG", "SET", "maxmemory", "1mb"]);
    let full = store.claim(&request("new")).await.unwrap_err();
    assert_eq!((full.kind, full.effect), (StoreErrorKind::Full, Effect::NotApplied), "{full:?}");
    assert_eq!(store.get(&id("new")).await.unwrap(), None);
    assert_eq!(replay(&store, "done").await, "done", "replays go on");
    let claim = store.claim(&request("running 0")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");

    let settlements = [
        Settlement::Complete(outcome("x".repeat(100_000))),
        Settlement::Fail(outcome("failed")),
        unknown(),
        Settlement::Release,
    ];
    for ((key, holder), settlement) in running.iter().zip(settlements) {
        let renewal = RenewRequest { id: id(key), holder: *holder, lease: Duration::from_secs(60) };
        assert!(matches!(store.renew(&renewal).await.unwrap(), Fenced::Applied(_)), "{key}");
        let settled = settle(&store, key, *holder, settlement, DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()), "{key}");
    }
    let (key, holder) = &running[2];
    let verdict = Verdict::Happened(outcome("seen"));
    let evidence = ResolveRequest { id: id(key), fence: holder.fence, verdict, retention: DAY };
    assert_eq!(store.resolve(&evidence).await.unwrap(), Fenced::Applied(()));
    // A claim of a released key is a new claim too.
    let again = store.claim(&request("running 3")).await.unwrap_err();
    assert_eq!(again.kind, StoreErrorKind::Full);
    store.purge(10).await.unwrap();

    tell(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    granted(&store, "new").await;
    granted(&store, "running 3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_sent_again_and_nobody_notices() {
    let Some(server) = onceward_services::redis() else { return };
    let store = Arc::new(open(&server).await);
    let load =
        Load::on([Arc::clone(&store) as _], Duration::from_secs(20), Duration::from_millis(1));
    let tasks = load.begin(4);
    let mut flushes = 0;
    while load.completed() < 300 {
        tell(&server, &["SCRIPT", "FLUSH"]);
        flushes += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    load.stop(tasks).await;
    load.assert_held(&*store).await;
    assert!(flushes > 10);
    let unavailable = load.count(|it| *it == onceward_testkit::history::Answer::Unavailable);
    assert_eq!(unavailable, 0);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_taken_or_not_and_never_half() {
    let Some(server) = shared() else { return };
    let store = open(server).await;
    let mut taken = 0;
    for index in 0..300 {
        let key = format!("key {index}");
        let request = request(&key);
        let patience = Duration::from_micros(index * 3);
        let dropped = tokio::time::timeout(patience, store.claim(&request)).await;
        // The same attempt, repeated.
        let Claim::Granted { lease, attempt: 1, .. } = store.claim(&request).await.unwrap() else {
            panic!("{key}")
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let done = || Settlement::Complete(outcome(&key));
        let settling = settle(&store, &key, holder, done(), DAY);
        let _dropped = tokio::time::timeout(patience, settling).await;
        let settled = settle(&store, &key, holder, done(), DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()), "{key}");
        assert_eq!(replay(&store, &key).await, key);
        taken += usize::from(dropped.is_err());
    }
    assert!(taken > 0, "no call was dropped");
}

#[tokio::test]
async fn a_server_that_stands_still_is_a_timeout_that_may_have_been_applied() {
    let Some(server) = onceward_services::redis() else { return };
    let short = Settings { timeout: Duration::from_millis(300), ..settings() };
    let store = RedisStore::open(server.url(), short).await.unwrap();
    let holder = granted(&store, "running").await;
    server.pause();
    let request = request("key");
    let begin = std::time::Instant::now();
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(
        (error.kind, error.effect),
        (StoreErrorKind::Timeout, Effect::MayHaveBeenApplied),
        "{error:?}"
    );
    // The next call needs a new connection, and cannot make one.
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Timeout, Effect::NotApplied));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    server.resume();
    let claim = until_it_answers(async || store.claim(&request).await).await;
    assert!(matches!(claim, Claim::Granted { attempt: 1, .. }), "{claim:?}");
    let settled = settle(&store, "running", holder, Settlement::Release, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
}

/// Retries: on a busy machine the first answers after a fault may be late.
async fn until_it_answers<T, E: std::fmt::Debug>(call: impl AsyncFn() -> Result<T, E>) -> T {
    for _ in 0..50 {
        match call().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("no answer in a long time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_eight_duplicates_on_two_processes_connections_one_has_the_effect() {
    let Some(server) = shared() else { return };
    let settings = settings();
    let open = || RedisStore::open(server.url(), settings.clone());
    let (one, two) = (Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap()));
    let load = Load::on(
        [Arc::clone(&one) as _, two as _],
        Duration::from_secs(20),
        Duration::from_millis(1),
    );
    let keys = if super::common::long() { 5_000 } else { 200 };
    let gate = Arc::new(AtomicBool::new(false));
    for chunk in 0..keys / 20 {
        let clients = (0..160).map(|client| {
            let (load, gate) = (Arc::clone(&load), Arc::clone(&gate));
            let key = format!("key {}", chunk * 20 + client / 8);
            tokio::spawn(async move {
                while !gate.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
                load.client(client, &key).await;
            })
        });
        let clients: Vec<_> = clients.collect();
        gate.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.unwrap();
        }
    }
    assert_eq!(load.completed(), keys);
    load.assert_held(&*one).await;
}

#[tokio::test]
async fn who_waits_is_woken_by_a_settlement_on_another_connection() {
    let Some(server) = shared() else { return };
    let settings = settings();
    let open = || RedisStore::open(server.url(), settings.clone());
    let (owner, waiter) = (open().await.unwrap(), Arc::new(open().await.unwrap()));
    for index in 0..20 {
        let key = format!("key {index}");
        let holder = granted(&owner, &key).await;
        assert!(matches!(waiter.claim(&request(&key)).await.unwrap(), Claim::Running { .. }));
        let waiting = {
            let (waiter, id) = (Arc::clone(&waiter), id(&key));
            tokio::spawn(async move { waiter.changed(&id).await })
        };
        tokio::time::sleep(Duration::from_millis(index % 4 * 5)).await;
        assert!(!waiting.is_finished(), "{key}: nothing has changed");
        let done = Settlement::Complete(outcome("done"));
        let _ = settle(&owner, &key, holder, done, DAY).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").unwrap();
    }
    // A settled record is not waited for.
    waiter.changed(&id("key 0")).await;
}

#[tokio::test]
async fn waiting_survives_a_restart_of_the_server() {
    let Some(server) = onceward_services::redis() else { return };
    let store = Arc::new(open(&server).await);
    let holder = granted(&*store, "key").await;
    assert!(matches!(store.claim(&request("key")).await.unwrap(), Claim::Running { .. }));
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.changed(&id("key")).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.restart().unwrap();
    // Woken by the new connection or by the settlement.
    until_it_answers(async || {
        settle(&*store, "key", holder, Settlement::Complete(outcome("done")), DAY).await
    })
    .await
    .eq(&Fenced::Applied(()))
    .then_some(())
    .unwrap();
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken").unwrap();
}
