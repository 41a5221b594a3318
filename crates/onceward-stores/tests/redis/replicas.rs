//! Replicas: waiting for them, and what is lost when one is promoted that lags.

use std::error::Error as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, RenewRequest, Settlement, Store as _, StoreError, StoreErrorKind,
};
use onceward_services::RedisPair;
use onceward_stores::redis::{OpenError, RedisStore, Settings, Unreplicated, Wait};
use onceward_testkit::proxy::{Proxy, Trouble, Way};

use super::common::{DAY, complete, granted, id, outcome, replay, request, settings, settle, tell};

/// Settings that wait for a replica as long as a call may take: other tests make the machine slow.
fn patient() -> Settings {
    let settings = settings();
    let wait = Wait { replicas: 1, timeout: settings.timeout - Duration::from_secs(1) };
    Settings { wait: Some(wait), connections: 4, ..settings }
}

/// The same store, with a short wait for replicas.
fn impatient(settings: &Settings) -> Settings {
    let wait = Wait { replicas: 1, timeout: Duration::from_millis(200) };
    Settings { wait: Some(wait), ..settings.clone() }
}

async fn open(pair: &RedisPair, settings: Settings) -> RedisStore {
    RedisStore::open(pair.primary.url(), settings).await.unwrap()
}

fn unreplicated(error: &StoreError) -> Unreplicated {
    assert_eq!(
        (error.kind, error.effect),
        (StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied),
        "{error:?}"
    );
    *error.source().and_then(|it| it.downcast_ref()).unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test]
async fn a_claim_that_no_replica_has_in_time_is_an_error_until_one_has_it() {
    let Some(pair) = onceward_services::redis_with_replica() else { return };
    let settings = patient();
    let (patient, store) =
        (open(&pair, settings.clone()).await, open(&pair, impatient(&settings)).await);
    let holder = granted(&patient, "before").await;
    complete(&patient, "done", "done").await;
    pair.replica.pause();
    let request = request("key");
    let short = Unreplicated { acknowledged: 0, wanted: 1 };
    for _ in 0..3 {
        // Also for a repeated call, which changes nothing: no replica has it yet.
        assert_eq!(unreplicated(&store.claim(&request).await.unwrap_err()), short);
        let done = Settlement::Complete(outcome("done"));
        let error = settle(&store, "before", holder, done, DAY).await.unwrap_err();
        assert_eq!(unreplicated(&error), short);
        assert_eq!(replay(&store, "done").await, "done", "replays go on");
    }
    pair.replica.resume();
    pair.wait_until_linked().unwrap();
    let claim = patient.claim(&request).await;
    assert!(matches!(claim.unwrap(), Claim::Granted { attempt: 1, .. }));
    let done = Settlement::Complete(outcome("done"));
    assert_eq!(settle(&patient, "before", holder, done, DAY).await.unwrap(), Fenced::Applied(()));
}

#[tokio::test]
async fn calls_that_wait_for_replicas_go_side_by_side() {
    let Some(pair) = onceward_services::redis_with_replica() else { return };
    let store = Arc::new(open(&pair, patient()).await);
    let tasks = (0..32).map(|task| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for index in 0..10 {
                complete(&*store, &format!("{task} {index}"), "done").await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn settings_that_wait_longer_than_a_call_may_take_are_refused() {
    let wait = Wait { replicas: 1, timeout: Duration::from_secs(60) };
    let settings = Settings { wait: Some(wait), ..settings() };
    let error = RedisStore::open("redis://127.0.0.1:1", settings).await.unwrap_err();
    assert!(matches!(error, OpenError::Setting { setting: "wait", .. }), "{error:?}");
}

/// Waits until the replica has all writes of the primary.
async fn until_replicated(pair: &RedisPair) {
    let size = |server| tell(server, &["DBSIZE"]);
    for _ in 0..500 {
        if size(&pair.primary) == size(&pair.replica) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the replica does not follow");
}

/// A limit of this store: claims that a replica lacked when it was promoted are granted again.
/// Their holders learn it at the next renewal.
#[tokio::test]
async fn a_replica_that_is_promoted_without_the_last_claims_grants_them_again() {
    let Some(pair) = onceward_services::redis_with_replica() else { return };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, pair.primary.port()));
    let network = Proxy::to(address).await.unwrap();
    let port = network.address().port().to_string();
    tell(&pair.replica, &["REPLICAOF", "127.0.0.1", &port]);
    let settings = settings();
    let before = open(&pair, settings.clone()).await;
    granted(&before, "replicated").await;
    until_replicated(&pair).await;
    network.on_every(Way::Reply, Trouble::Swallow);
    let mut lost = Vec::new();
    for index in 0..10 {
        lost.push((format!("lost {index}"), granted(&before, &format!("lost {index}")).await));
    }
    pair.primary.kill().unwrap();
    tell(&pair.replica, &["REPLICAOF", "NO", "ONE"]);

    let after = RedisStore::open(pair.replica.url(), settings).await.unwrap();
    let claim = after.claim(&request("replicated")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    let mut duplicates = 0;
    for (key, holder) in &lost {
        let renewal = RenewRequest { id: id(key), holder: *holder, lease: Duration::from_secs(30) };
        assert_eq!(after.renew(&renewal).await.unwrap(), Fenced::Missing, "{key}");
        let claim = after.claim(&request(key)).await.unwrap();
        duplicates += usize::from(matches!(claim, Claim::Granted { .. }));
    }
    println!("{duplicates} of {} claims were granted again", lost.len());
    assert_eq!(duplicates, lost.len(), "all of them were on the primary only");
}

#[tokio::test]
async fn a_primary_that_became_a_replica_refuses_and_nothing_was_applied() {
    let Some(pair) = onceward_services::redis_with_replica() else { return };
    let store = open(&pair, settings()).await;
    let holder = granted(&store, "running").await;
    let port = pair.replica.port().to_string();
    tell(&pair.replica, &["REPLICAOF", "NO", "ONE"]);
    tell(&pair.primary, &["REPLICAOF", "127.0.0.1", &port]);
    let claim = store.claim(&request("new")).await.unwrap_err();
    assert_eq!((claim.kind, claim.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
    let done = Settlement::Complete(outcome("done"));
    let settled = settle(&store, "running", holder, done, DAY).await.unwrap_err();
    assert_eq!((settled.kind, settled.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
}
