//! A gateway that stops, and what is still running then.

use onceward_core::Drained;

use crate::front::{Front, post};
use crate::service::Service;
use crate::tls::http2_get;
use crate::wire::Answer;

const SHORT: &str = "[scope]\nsingle_tenant = true\n[limits]\ndrain = \"300ms\"\n";

fn told(answer: &Answer) -> serde_json::Value {
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_drain_cuts_off_is_answered_with_a_problem() {
    let service = Service::start().await;
    let front = Front::with(&service, SHORT).await;
    let mut wires = Vec::new();
    for request in [
        post("/silent", "k", ""),
        "GET /silent HTTP/1.1\r\nhost: shop\r\n\r\n".to_owned(),
        "POST /silent HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        let mut wire = front.connect().await;
        wire.send(&request).await;
        wires.push(wire);
    }
    let address = front.address();
    let stream = tokio::spawn(async move { http2_get(address, "http://shop/silent", &[]).await });
    service.until(|seen| seen.len() == 4).await;
    let stopping = tokio::spawn(front.stop());
    for (mut wire, (retryable, same_key)) in
        wires.into_iter().zip([(true, true), (true, false), (false, false)])
    {
        let answer = wire.answer().await;
        assert_eq!(answer.problem(), (503, "GATEWAY_STOPPING".into()));
        let told = told(&answer);
        assert_eq!((&told["retryable"], &told["same_key"]), (&retryable.into(), &same_key.into()));
        assert_eq!(wire.rest().await, "", "the connection is closed");
    }
    assert_eq!(stream.await.unwrap().status(), 503);
    assert_eq!(stopping.await.unwrap(), Drained::CutOff { marked: 1 });
    assert_eq!(service.runs(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_in_time_gets_its_own_answer() {
    let service = Service::start().await;
    let front = Front::before(&service).await;
    let mut wire = front.connect().await;
    wire.send(&post("/stream", "k", "")).await;
    service.until(|seen| seen.len() == 1).await;
    let stopping = tokio::spawn(front.stop());
    service.open(2);
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "onetwothree"));
    assert_eq!(stopping.await.unwrap(), Drained::Finished);
}
