//! Requests that are running when the gateway stops.

use onceward_core::Drained;

use crate::service::Service;
use crate::test_gateway::{TestGateway, post};
use crate::tls::http2_get;
use crate::wire::WireResponse;

const SHORT: &str = "[scope]\nsingle_tenant = true\n[limits]\ndrain = \"300ms\"\n";

fn problem(answer: &WireResponse) -> serde_json::Value {
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_drain_cuts_off_is_answered_with_a_problem() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    let mut wires = Vec::new();
    for request in [
        post("/silent", "k", ""),
        "GET /silent HTTP/1.1\r\nhost: shop\r\n\r\n".to_owned(),
        "POST /silent HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        let mut wire = gateway.connect().await;
        wire.send(&request).await;
        wires.push(wire);
    }
    let address = gateway.address();
    let stream = tokio::spawn(async move { http2_get(address, "http://shop/silent", &[]).await });
    service.until(|seen| seen.len() == 4).await;
    let stopping = tokio::spawn(gateway.stop());
    for (mut wire, (retryable, same_key)) in
        wires.into_iter().zip([(true, true), (true, false), (false, false)])
    {
        let answer = wire.answer().await;
        assert_eq!(answer.problem(), (503, "GATEWAY_STOPPING".into()));
        let body = problem(&answer);
        assert_eq!((&body["retryable"], &body["same_key"]), (&retryable.into(), &same_key.into()));
        assert_eq!(wire.rest().await, "", "the connection is closed");
    }
    assert_eq!(stream.await.unwrap().status(), 503);
    assert_eq!(stopping.await.unwrap(), Drained::CutOff { marked: 1 });
    assert_eq!(service.runs(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_in_time_gets_its_own_answer() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send(&post("/stream", "k", "")).await;
    service.until(|seen| seen.len() == 1).await;
    let stopping = tokio::spawn(gateway.stop());
    service.open(2);
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "onetwothree"));
    assert_eq!(stopping.await.unwrap(), Drained::Finished);
}
