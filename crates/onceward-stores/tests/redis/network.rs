//! Faults between the store and its server: messages that are lost, cut, halved or late, and the
//! errors that follow.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use onceward_core::{
    Claim, Effect, Fenced, Holder, Settlement, Store as _, StoreAdmin as _, StoreErrorKind,
};
use onceward_services::Server;
use onceward_stores::redis::{RedisStore, Settings};
use onceward_testkit::proxy::{Proxy, Trouble, Way};

use super::common::{DAY, granted, id, outcome, request, settings, settle, shared};

/// A store behind a proxy, whose scripts the server knows, and another one past the proxy.
async fn behind_a_proxy(server: &Server) -> (Proxy, RedisStore, RedisStore) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::to(address).await.unwrap();
    let settings = Settings { timeout: Duration::from_millis(1_000), ..settings() };
    let direct = RedisStore::open(server.url(), settings.clone()).await.unwrap();
    let url = format!("redis://{}/", proxy.address());
    let store = RedisStore::open(&url, settings).await.unwrap();
    super::common::complete(&store, "warm", "up").await;
    (proxy, store, direct)
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_may_have_been_applied_and_is_granted_again() {
    let Some(server) = shared() else { return };
    let (proxy, store, direct) = behind_a_proxy(server).await;
    let late = Trouble::Delay(Duration::from_millis(1_500));
    for (index, trouble) in
        [Trouble::Cut, Trouble::Halve, late, Trouble::Swallow].into_iter().enumerate()
    {
        let key = format!("key {index}");
        let request = request(&key);
        proxy.on_nth(1, Way::Reply, trouble);
        let error = store.claim(&request).await.unwrap_err();
        assert_eq!(error.effect, Effect::MayHaveBeenApplied, "{trouble:?}: {error:?}");
        assert_eq!(proxy.fired(), index + 1);
        assert!(direct.get(&id(&key)).await.unwrap().is_some(), "{trouble:?}: it was applied");
        let again = store.claim(&request).await.unwrap();
        assert!(matches!(again, Claim::Granted { attempt: 1, .. }), "{trouble:?}: {again:?}");
    }
}

#[tokio::test]
async fn a_settlement_whose_reply_is_lost_lands_once() {
    let Some(server) = shared() else { return };
    let (proxy, store, direct) = behind_a_proxy(server).await;
    for (index, trouble) in [Trouble::Cut, Trouble::Halve].into_iter().enumerate() {
        let key = format!("key {index}");
        let holder = granted(&store, &key).await;
        let done = || Settlement::Complete(outcome(&key));
        proxy.on_nth(1, Way::Reply, trouble);
        let error = settle(&store, &key, holder, done(), DAY).await.unwrap_err();
        assert_eq!(error.effect, Effect::MayHaveBeenApplied);
        let once = direct.get(&id(&key)).await.unwrap();
        let settled = settle(&store, &key, holder, done(), DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()));
        assert_eq!(direct.get(&id(&key)).await.unwrap(), once, "the second time changes nothing");
    }
}

#[tokio::test]
async fn a_request_that_was_lost_on_its_way_is_told_as_perhaps_applied() {
    let Some(server) = shared() else { return };
    let (proxy, store, direct) = behind_a_proxy(server).await;
    let request = request("key");
    proxy.on_nth(1, Way::Request, Trouble::Cut);
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(error.effect, Effect::MayHaveBeenApplied, "the reply is lost");
    assert_eq!(direct.get(&id("key")).await.unwrap(), None);
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Granted { .. }));
}

#[tokio::test]
async fn without_a_connection_nothing_was_applied() {
    let Some(server) = shared() else { return };
    let (proxy, store, direct) = behind_a_proxy(server).await;
    proxy.shut().await;
    let request = request("key");
    // The first call finds that the connection is gone.
    let _lost = store.claim(&request).await;
    for _ in 0..3 {
        let error = store.claim(&request).await.unwrap_err();
        let told = (error.kind, error.effect);
        assert_eq!(told, (StoreErrorKind::Unavailable, Effect::NotApplied), "{error:?}");
    }
    assert_eq!(direct.get(&id("key")).await.unwrap(), None);
    proxy.heal();
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Granted { .. }));
}

#[tokio::test]
async fn a_server_that_is_down_was_not_asked() {
    let Some(server) = onceward_services::redis() else { return };
    let store = super::common::open(&server).await;
    let request = request("key");
    server.kill().unwrap();
    let _lost = store.claim(&request).await;
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Unavailable, Effect::NotApplied));
    server.start().unwrap();
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Granted { .. }));
}

/// Any reply of any call is lost: the call can be repeated with the same arguments.
#[tokio::test]
async fn every_reply_of_a_life_may_be_lost() {
    let Some(server) = shared() else { return };
    let (proxy, store, _) = behind_a_proxy(server).await;
    for lost in 1..=3 {
        for trouble in [Trouble::Cut, Trouble::Halve] {
            let key = format!("key {lost} {trouble:?}");
            let request = request(&key);
            proxy.on_nth(lost, Way::Reply, trouble);
            let claim = again(async || store.claim(&request).await).await;
            let Claim::Granted { lease, .. } = claim else { panic!("{key}: {claim:?}") };
            let holder = Holder { owner: request.owner, fence: lease.fence };
            let done = || Settlement::Complete(outcome(&key));
            let settled = again(async || settle(&store, &key, holder, done(), DAY).await).await;
            assert_eq!(settled, Fenced::Applied(()), "{key}");
            let replayed = again(async || store.claim(&request).await).await;
            assert!(matches!(replayed, Claim::Completed { .. }), "{key}: {replayed:?}");
        }
    }
}

async fn again<T>(call: impl AsyncFn() -> Result<T, onceward_core::StoreError>) -> T {
    for _ in 0..10 {
        if let Ok(answer) = call().await {
            return answer;
        }
    }
    panic!("it fails again and again")
}
