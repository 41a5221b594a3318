//! Requests that come back to the gateway.

use std::sync::atomic::Ordering;

use crate::relay::Relay;
use crate::service::Service;
use crate::test_gateway::{Settings, TestGateway};

async fn assert_refused(gateway: &TestGateway, relay: &Relay) {
    assert_eq!(gateway.get("/x").await.problem(), (508, "LOOP_DETECTED".into()));
    let put = "PUT /x HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(gateway.send(put).await.problem(), (508, "LOOP_DETECTED".into()));
    assert_eq!(gateway.post("/x", "k", "").await.problem(), (508, "LOOP_DETECTED".into()));
    // One round each, on kept connections, and not until file descriptors run out.
    let connections = relay.connections.load(Ordering::Relaxed);
    assert!(connections <= 3, "{connections} connections");
    // A 508 leaves the outcome unknown, like any 5xx.
    let retry = gateway.post("/x", "k", "").await;
    assert_eq!(retry.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_back_is_refused_and_not_sent_on() {
    let relay = Relay::start().await;
    let gateway = Settings::default().before(&relay.base()).await;
    relay.to.send_replace(Some(gateway.address()));
    assert_refused(&gateway, &relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_that_point_at_each_other_refuse_what_comes_back() {
    let relay = Relay::start().await;
    let second = Settings::default().before(&relay.base()).await;
    let first = Settings::default().before(&format!("http://{}", second.address())).await;
    relay.to.send_replace(Some(first.address()));
    assert_refused(&first, &relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_to_the_own_address_is_refused() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let error = gateway.reload_upstream(&format!("http://{}", gateway.address())).unwrap_err();
    assert!(error.contains("upstream.url") && error.contains("listeners[0].address"), "{error}");
    assert_eq!(gateway.post("/x", "k", "").await.status, 201);
    assert_eq!(gateway.reload_upstream(&service.base()), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_before_another_one_is_no_loop() {
    let service = Service::start().await;
    let second = TestGateway::before(&service).await;
    let first = Settings::default().before(&format!("http://{}", second.address())).await;
    assert_eq!(first.post("/x", "k", "onceward-via: another\r\n").await.status, 201);
    let seen = service.last();
    let passed: Vec<&str> = seen.header("onceward-via").unwrap().split(", ").collect();
    assert_eq!((passed.len(), passed[0]), (3, "another"));
    assert_ne!(passed[1], passed[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_that_leads_back_is_refused() {
    let service = Service::start().await;
    let relay = Relay::start().await;
    let tables =
        format!("[scope]\nsingle_tenant = true\n[authorization]\nurl = \"{}\"", relay.base());
    let gateway = TestGateway::with(&service, &tables).await;
    relay.to.send_replace(Some(gateway.address()));
    let refused = gateway.post("/x", "k", "").await;
    assert_eq!(refused.problem(), (503, "AUTHORIZATION_UNAVAILABLE".into()));
    assert_eq!((relay.connections.load(Ordering::Relaxed), service.runs()), (1, 0));
}
