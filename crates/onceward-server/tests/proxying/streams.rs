//! Bodies: streamed in unprotected requests, buffered in protected ones.

use crate::service::Service;
use crate::test_gateway::{TestGateway, post};

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_reaches_the_upstream_before_its_end() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send("PUT /x HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        .await;
    service.until(|seen| seen.iter().any(|it| it.body == "one")).await;
    wire.send("3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 201);
    assert_eq!(service.last().body, "onetwo");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_request_reaches_the_upstream_only_when_it_is_whole() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    let whole = post("/x", "k", "");
    let (first, last) = whole.split_at(whole.len() - 3);
    wire.send(first).await;
    // Another request is answered in between.
    assert_eq!(gateway.get("/other").await.status, 201);
    assert_eq!(service.lines(), ["GET /other"]);
    wire.send(last).await;
    assert_eq!(wire.answer().await.status, 201);
    assert_eq!(service.last().body, "{\"a\":1}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_reaches_the_client_before_its_end() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send("GET /stream HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert_eq!(wire.head().await.status, 200);
    for expected in ["one", "two", "three"] {
        assert_eq!(wire.chunk().await.as_deref(), Some(expected));
        service.open(1);
    }
    assert_eq!(wire.chunk().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_sent_events_stream_and_a_retry_does_not_run_again() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for key in ["", "idempotency-key: k\r\n"] {
        let mut wire = gateway.connect().await;
        wire.send(&format!(
            "POST /events HTTP/1.1\r\nhost: shop\r\n{key}content-length: 0\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.head().await.status, 200, "{key:?}");
        for expected in ["one", "two", "three"] {
            assert_eq!(wire.chunk().await.as_deref(), Some(expected), "{key:?}");
            service.open(1);
        }
    }
    let retry = "POST /events HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n\
                 content-length: 0\r\n\r\n";
    let retry = gateway.send(retry).await;
    assert_eq!(retry.problem(), (409, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE".into()));
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_continue_gets_it() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for key in ["", "idempotency-key: k\r\n"] {
        let mut wire = gateway.connect().await;
        wire.send(&format!(
            "POST /x HTTP/1.1\r\nhost: shop\r\n{key}expect: 100-continue\r\n\
             content-length: 3\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.head().await.status, 100, "{key:?}");
        wire.send("abc").await;
        assert_eq!(wire.answer().await.status, 201, "{key:?}");
        let seen = service.last();
        assert_eq!((seen.body.as_str(), seen.header("expect")), ("abc", None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_continue_is_not_asked_for_what_is_refused() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send(
        "POST /x HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\nexpect: 100-continue\r\n\
         content-length: 99999999\r\n\r\n",
    )
    .await;
    assert_eq!(wire.answer().await.status, 413);
    assert_eq!(service.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_claims_nothing() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let whole = post("/x", "k", "");
    let mut wire = gateway.connect().await;
    wire.send(&whole[..whole.len() - 3]).await;
    drop(wire);
    // Another request under the same key is neither a mismatch nor in progress.
    let other = whole.replace("{\"a\":1}", "{\"b\":2}");
    let answer = gateway.send(&other).await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_chunks_are_the_clients_fault_and_claim_nothing() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for bad in ["zz\r\nabc\r\n", "-1\r\n", "2\r\nabc\r\n"] {
        for (method, key) in [("PUT", ""), ("POST", "idempotency-key: k\r\n")] {
            let before = service.runs();
            let mut wire = gateway.connect().await;
            wire.send(&format!(
                "{method} /x HTTP/1.1\r\nhost: shop\r\n{key}transfer-encoding: chunked\r\n\r\n\
                 3\r\none\r\n"
            ))
            .await;
            if key.is_empty() {
                service.until(|seen| seen.len() > before).await;
            }
            wire.send(bad).await;
            let answer = wire.answer().await;
            assert_eq!(answer.problem(), (400, "INVALID_REQUEST_BODY".into()), "{method} {bad:?}");
            if !key.is_empty() {
                assert_eq!(service.runs(), before, "{bad:?}");
            }
        }
    }
    let whole = gateway.post("/x", "k", "").await;
    assert_eq!((whole.status, whole.is_replay()), (201, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_becomes_a_tunnel() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send(
        "GET /upgrade HTTP/1.1\r\nhost: shop\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-key: a\r\n\r\n",
    )
    .await;
    let head = wire.head().await;
    assert_eq!(head.status, 101);
    assert_eq!(head.header("upgrade").as_deref(), Some("websocket"));
    assert_eq!(head.header("connection").as_deref(), Some("upgrade"));
    for said in ["hello", "again"] {
        wire.send(said).await;
        assert_eq!(wire.take(said.len()).await, said);
    }
    assert_eq!(service.last().header("sec-websocket-key"), Some("a"));
}

/// A tunnel that carries HTTP bypasses the gateway: POSTs in it are not protected, authorised or
/// counted.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_tunnel_for_http_itself() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for protocol in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0", "h2"] {
        let answer = gateway
            .send(&format!(
                "GET /x HTTP/1.1\r\nhost: shop\r\nconnection: upgrade, http2-settings\r\n\
                 upgrade: {protocol}\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.status, 201, "{protocol}");
        assert_eq!(service.last().header("upgrade"), None, "{protocol}");
        assert_eq!(service.last().header("http2-settings"), None, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_over_the_limit_goes_whole_to_the_first_and_is_not_replayed() {
    let service = Service::start().await;
    let tables = "[scope]\nsingle_tenant = true\n[defaults]\nresponse_max_bytes = 1000";
    let gateway = TestGateway::with(&service, tables).await;
    assert_eq!(gateway.post("/large/5000", "k", "").await.body.len(), 5000);
    let retry = gateway.post("/large/5000", "k", "").await;
    assert_eq!(retry.problem(), (409, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE".into()));
    for retry in [false, true] {
        let fits = gateway.post("/large/1000", "fits", "").await;
        assert_eq!((fits.body.len(), fits.is_replay()), (1000, retry));
    }
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_answers_before_it_has_read_everything_is_heard() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    wire.send("PUT /early HTTP/1.1\r\nhost: shop\r\ncontent-length: 9000000\r\n\r\nx").await;
    assert_eq!(wire.answer().await.status, 413);
}
