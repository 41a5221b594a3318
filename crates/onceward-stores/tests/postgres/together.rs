//! Concurrency: several stores on one database, calls that share a statement.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fenced, Holder, Lapsed, SettleRequest, Settlement, Store as _,
    StoreAdmin as _,
};
use onceward_stores::postgres::{PostgresStore, Settings};
use onceward_testkit::proxy::{Trouble, Way};
use parking_lot::Mutex;

use super::common::{
    DAY, eventually, id, open, outcome, plain, proxied, replay, request, settle, shared, small,
};

/// Carries out a key like an engine: claims until it is granted or done.
async fn carry_out(
    store: &PostgresStore,
    key: &str,
    effects: &Mutex<HashMap<String, u32>>,
) -> String {
    loop {
        let request = request(key);
        match store.claim(&request).await.unwrap() {
            Claim::Granted { lease, .. } => {
                *effects.lock().entry(key.to_owned()).or_default() += 1;
                let holder = Holder { owner: request.owner, fence: lease.fence };
                let settlement = Settlement::Complete(outcome(format!("{key} {}", lease.fence)));
                let (id, retention) = (request.id, DAY);
                let settle = SettleRequest { id, holder, settlement, retention };
                assert_eq!(store.settle(&settle).await.unwrap(), Fenced::Applied(()));
            }
            Claim::Running { .. } => tokio::time::sleep(Duration::from_millis(1)).await,
            Claim::Completed { outcome, .. } => {
                return String::from_utf8(outcome.bytes.to_vec()).unwrap();
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_duplicates_at_two_stores_one_has_its_effect_and_all_get_its_outcome() {
    let Some(server) = shared() else { return };
    let settings = small();
    let effects = Arc::new(Mutex::new(HashMap::new()));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
        let store = Arc::new(store);
        for key in 0..100 {
            for _ in 0..8 {
                let (store, effects) = (Arc::clone(&store), Arc::clone(&effects));
                tasks.push(tokio::spawn(async move {
                    let key = format!("k{key}");
                    let answer = carry_out(&store, &key, &effects).await;
                    (key, answer)
                }));
            }
        }
    }
    let mut answers: HashMap<String, String> = HashMap::new();
    for task in tasks {
        let (key, answer) = task.await.unwrap();
        assert_eq!(*answers.entry(key).or_insert_with(|| answer.clone()), answer);
    }
    let effects = effects.lock();
    assert_eq!((effects.len(), effects.values().max()), (100, Some(&1)));
}

/// One record twice in a batch.
#[tokio::test]
async fn the_same_record_twice_in_a_statement_is_granted_once() {
    let Some(server) = shared() else { return };
    let settings = Settings { connections: 1, ..small() };
    let store = Arc::new(PostgresStore::open(server.url(), settings).await.unwrap());
    let claims: Vec<_> = (0..200).map(|index| request(&format!("k{}", index % 10))).collect();
    let tasks: Vec<_> = claims
        .into_iter()
        .map(|claim| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { (claim.id, store.claim(&claim).await.unwrap()) })
        })
        .collect();
    let mut granted: HashMap<_, u32> = HashMap::new();
    for task in tasks {
        if let (id, Claim::Granted { .. }) = task.await.unwrap() {
            *granted.entry(id).or_default() += 1;
        }
    }
    assert!(granted.len() == 10 && granted.values().all(|count| *count == 1), "{granted:?}");
}

/// Calls that arrive during a statement are sent as one statement.
#[tokio::test]
async fn calls_that_come_together_share_a_statement() {
    let Some(server) = shared() else { return };
    let settings = Settings { connections: 1, ..small() };
    let name = settings.schema.clone();
    let store = Arc::new(PostgresStore::open(server.url(), settings).await.unwrap());
    let client = plain(server.url()).await;
    let tasks: Vec<_> = (0..500)
        .map(|index| {
            let (store, claim) = (Arc::clone(&store), request(&format!("k{index}")));
            tokio::spawn(async move { store.claim(&claim).await.unwrap() })
        })
        .collect();
    for task in tasks {
        assert!(matches!(task.await.unwrap(), Claim::Granted { .. }));
    }
    // Rows of one statement have the same xmin.
    let sql = format!("SELECT count(DISTINCT xmin::text) FROM {name}.idempotency_record");
    let statements: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
    assert!((2..50).contains(&statements), "{statements} statements for 500 claims");
}

#[tokio::test]
async fn of_takeovers_at_once_the_fences_increase() {
    let Some(server) = shared() else { return };
    let store = Arc::new(open(server).await);
    let short = |key: &str| ClaimRequest {
        lease: Duration::from_millis(10),
        lapsed: Lapsed::Takeover,
        ..request(key)
    };
    let mut last = onceward_core::Fence(0);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (store, claim) = (Arc::clone(&store), short("key"));
                tokio::spawn(async move { store.claim(&claim).await.unwrap() })
            })
            .collect();
        for task in tasks {
            if let Claim::Granted { lease, .. } = task.await.unwrap() {
                assert!(lease.fence > last, "{:?} after {last:?}", lease.fence);
                last = lease.fence;
            }
        }
    }
    assert!(store.get(&id("key")).await.unwrap().unwrap().attempts >= 5);
}

/// Another store writes between the read of a row and the write that follows from it. The write is
/// delayed, so that this happens for certain.
#[tokio::test]
async fn what_is_settled_between_a_look_and_its_write_is_not_overwritten() {
    let Some(server) = shared() else { return };
    let settings = Settings { connections: 1, ..small() };
    let direct = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
    let (proxy, url) = proxied(server).await;
    let store = PostgresStore::open(&url, settings).await.unwrap();
    for (key, lapsed) in
        [("first", Lapsed::Unknown), ("late", Lapsed::Unknown), ("taken", Lapsed::Takeover)]
    {
        let short = ClaimRequest { lease: Duration::from_millis(5), ..request(key) };
        let Claim::Granted { lease, .. } = direct.claim(&short).await.unwrap() else { panic!() };
        tokio::time::sleep(Duration::from_millis(20)).await;
        let claim = ClaimRequest { lapsed, ..request(key) };
        // The first call only makes the driver prepare the statements, which takes messages of its
        // own.
        if key == "first" {
            assert!(matches!(store.claim(&claim).await.unwrap(), Claim::Unknown { .. }));
            continue;
        }
        let seen = proxy.passed(Way::Request);
        proxy.on_nth(2, Way::Request, Trouble::Delay(Duration::from_millis(500)));
        let settling = async {
            let written = async || proxy.passed(Way::Request) == seen + 2;
            eventually("the write is on its way", written).await;
            let holder = Holder { owner: short.owner, fence: lease.fence };
            let done = Settlement::Complete(outcome("late, and in time"));
            let settled = settle(&direct, key, holder, done, DAY).await.unwrap();
            assert_eq!(settled, Fenced::Applied(()));
        };
        let (claimed, ()) = tokio::join!(store.claim(&claim), settling);
        assert!(matches!(claimed.unwrap(), Claim::Completed { .. }), "{key}");
        assert_eq!(replay(&direct, key).await, "late, and in time");
    }
}
