//! Heads of requests and responses, as the upstream and the client see them.

use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};

use crate::service::{Service, Transport, raw_service};
use crate::test_gateway::{Settings, TestGateway, post};
use crate::tls::http2;

#[tokio::test(flavor = "multi_thread")]
async fn the_key_arrives_unchanged_and_the_gateway_adds_a_name_and_a_fence() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let forged = "onceward-operation: mine\r\nonceward-fence: 999\r\nonceward-fence: 9\r\n";
    assert_eq!(gateway.post("/orders?a=1&b=2", "\"k-1\"", forged).await.status, 201);
    let seen = service.last();
    assert_eq!(seen.line, "POST /orders?a=1&b=2");
    assert_eq!(seen.header("idempotency-key"), Some("\"k-1\""));
    assert_eq!(seen.headers.get_all("onceward-operation").iter().count(), 1);
    assert_ne!(seen.header("onceward-operation"), Some("mine"));
    let fence: u64 = seen.header("onceward-fence").unwrap().parse().unwrap();
    assert_ne!(fence, 999);
    assert_eq!(seen.body, "{\"a\":1}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_protected_carries_no_forged_fence_and_no_invented_key() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let forged = "GET /x HTTP/1.1\r\nhost: shop\r\nonceward-operation: mine\r\n\
                  onceward-fence: 9\r\n\r\n";
    gateway.send(forged).await;
    let seen = service.last();
    for name in ["onceward-operation", "onceward-fence", "idempotency-key"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_one_connection_stay_on_it_in_both_directions() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let answer = gateway
        .send(
            "GET /internal HTTP/1.1\r\nhost: shop\r\nconnection: keep-alive, X-Hop, TE\r\n\
             x-hop: 1\r\nkeep-alive: 5\r\nproxy-connection: keep-alive\r\n\
             proxy-authorization: Basic Zm9v\r\nte: trailers, deflate\r\nx-kept: 1\r\n\r\n",
        )
        .await;
    let seen = service.last();
    for name in ["x-hop", "keep-alive", "proxy-connection", "proxy-authorization"] {
        assert_eq!(seen.header(name), None, "{name} went on");
    }
    assert_eq!((seen.header("te"), seen.header("x-kept")), (Some("trailers"), Some("1")));
    for name in ["x-internal", "keep-alive", "proxy-authenticate", "onceward-outcome"] {
        assert_eq!(answer.header(name), None, "{name} came back");
    }
    assert_eq!(answer.header("x-kept").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_says_of_the_outcome_counts_and_is_not_shown() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    // (path, response to a retry, number of executions)
    let cases = [
        ("/outcome/keep/503", "replay", 1),
        ("/outcome/release/201", "again", 2),
        ("/outcome/unknown/200", "unknown", 1),
        ("/outcome/keep-head/201", "not replayable", 1),
        ("/outcome/nonsense/201", "not replayable", 1),
        ("/outcome/nonsense/429", "unknown", 1),
        ("/outcome/nonsense/500", "unknown", 1),
    ];
    for (path, expected, runs) in cases {
        let before = service.runs();
        let first = gateway.post(path, path, "").await;
        let again = gateway.post(path, path, "").await;
        for answer in [&first, &again] {
            assert_eq!(answer.header("onceward-outcome"), None, "{path}");
        }
        let got = match (again.is_replay(), again.code().as_str()) {
            (true, _) => "replay",
            (false, "IDEMPOTENCY_OUTCOME_UNKNOWN") => "unknown",
            (false, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE") => "not replayable",
            (false, _) => "again",
        };
        assert_eq!((got, service.runs() - before), (expected, runs), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_without_a_body_have_none() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let mut wire = gateway.connect().await;
    for (method, path, status) in [
        ("HEAD", "/large/1000", 200),
        ("GET", "/status/204", 204),
        ("GET", "/status/304", 304),
        ("HEAD", "/status/204", 204),
    ] {
        wire.send(&format!("{method} {path} HTTP/1.1\r\nhost: shop\r\n\r\n")).await;
        let answer = wire.answer_to(method).await;
        assert_eq!(answer.status, status, "{method} {path}");
        let length = answer.header("content-length");
        let expected = (path == "/large/1000").then(|| "1000".to_owned());
        assert_eq!(length, expected, "{method} {path}");
    }
    // The next request on the connection is not affected.
    wire.send("GET /after HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 201);
    for retry in [false, true] {
        let kept = gateway.post("/status/204", "k", "").await;
        assert_eq!((kept.status, kept.is_replay(), kept.body.as_str()), (204, retry, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_answers_and_not_followed() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for (expected, key) in [(301, "a"), (302, "b"), (303, "c"), (307, "d"), (308, "e")] {
        let path = format!("/status/{expected}");
        for answer in [gateway.get(&path).await, gateway.post(&path, key, "").await] {
            assert_eq!(answer.status, expected);
            assert_eq!(answer.header("location").as_deref(), Some("/elsewhere"));
        }
    }
    assert!(service.lines().iter().all(|line| !line.contains("elsewhere")));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_upstream_are_used_again() {
    let service = Service::start().await;
    let gateway =
        TestGateway::with(&service, "[scope]\nsingle_tenant = true\n[limits]\nthreads = 1").await;
    for run in 0..20 {
        assert_eq!(gateway.get("/x").await.status, 201);
        assert_eq!(gateway.post("/x", &format!("k{run}"), "").await.status, 201);
    }
    assert_eq!((service.runs(), service.connections()), (40, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_responses_pass_over_http_1() {
    const HINTED: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\
                          connection: x-hop\r\nx-hop: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\
                          link: </b>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\
                          connection: close\r\n\r\nbody";
    let gateway = Settings::default().before(&raw_service(HINTED).await).await;
    let mut wire = gateway.connect().await;
    for request in ["GET / HTTP/1.1\r\nhost: shop\r\n\r\n".to_owned(), post("/", "k", "")] {
        wire.send(&request).await;
        for link in ["</a>", "</b>"] {
            let hint = wire.head().await;
            assert_eq!((hint.status, hint.header("link").as_deref()), (103, Some(link)));
            assert_eq!(hint.header("x-hop"), None);
        }
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "body"));
    }
    wire.send(&post("/", "k", "")).await;
    let replay = wire.answer().await;
    assert_eq!((replay.status, replay.is_replay(), replay.body.as_str()), (200, true, "body"));
    // HTTP/1.0 has no interim responses.
    let old = gateway.send("GET / HTTP/1.0\r\nhost: shop\r\n\r\n").await;
    assert_eq!((old.status, old.body.as_str()), (200, "body"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interim_response_reaches_the_client_before_the_service_has_answered() {
    const ONLY_A_HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let gateway = Settings::default().before(&raw_service(ONLY_A_HINT).await).await;
    let mut wire = gateway.connect().await;
    wire.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert_eq!(wire.head().await.status, 103);
    assert_eq!(wire.answer().await.problem(), (502, "UPSTREAM_UNANSWERED".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_in_both_directions() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for (key, protected) in [("", false), ("idempotency-key: k\r\n", true)] {
        let mut wire = gateway.connect().await;
        wire.send(&format!(
            "POST /trailers HTTP/1.1\r\nhost: shop\r\n{key}te: trailers\r\nconnection: te\r\n\
             transfer-encoding: chunked\r\ntrailer: x-sent\r\n\r\n3\r\nabc\r\n0\r\nx-sent: 5\r\n\r\n"
        ))
        .await;
        let answer = wire.answer().await;
        let seen = service.last();
        assert_eq!(seen.body, "abc");
        let sent = seen.trailers.unwrap_or_default();
        assert_eq!(sent.get("x-sent").map(|it| it.to_str().unwrap()), Some("5"), "{protected}");
        assert_eq!(answer.body, "counted");
        assert_eq!(answer.trailers, "x-sum: 17\r\n", "protected: {protected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_of_a_protected_request_pass_without_an_announcement() {
    for transport in [Transport::default(), Transport { http2: true, tls: None }] {
        let upstream = format!("http2 = {}", transport.http2);
        let service = Service::speaking(transport).await;
        let settings = Settings { upstream: &upstream, ..Settings::default() };
        let gateway = settings.before(&service.base()).await;
        let answer = gateway
            .send(
                "POST /x HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n\
                 transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sent: 5\r\n\r\n",
            )
            .await;
        assert_eq!(answer.status, 201);
        let trailers = service.last().trailers.unwrap_or_default();
        assert_eq!(
            trailers.get("x-sent").map(HeaderValue::as_bytes),
            Some(&b"5"[..]),
            "{upstream}"
        );
    }
}

/// Announced and unannounced trailers.
const ANNOUNCED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\
                         connection: close\r\n\r\n7\r\ncounted\r\n0\r\nx-sum: 17\r\n\r\n";
const PLAIN: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                     connection: close\r\n\r\n7\r\ncounted\r\n0\r\nx-sum: 17\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn trailers_of_a_protected_response_pass_and_are_replayed() {
    for answer in [ANNOUNCED, PLAIN] {
        let gateway = Settings::default().before(&raw_service(answer).await).await;
        let takes = "te: trailers\r\nconnection: te\r\n";
        for (takes, retry) in [(takes, false), (takes, true), ("", true)] {
            let sent = format!(
                "POST / HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n{takes}\
                 content-length: 0\r\n\r\n"
            );
            let answer = gateway.send(&sent).await;
            assert_eq!((answer.body.as_str(), answer.is_replay()), ("counted", retry));
            // Only clients that announce support get trailers.
            let expected = if takes.is_empty() { "" } else { "x-sum: 17\r\n" };
            assert_eq!(answer.trailers, expected, "retry: {retry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_and_are_replayed_over_http_2() {
    for answer in [ANNOUNCED, PLAIN] {
        let gateway = Settings::default().before(&raw_service(answer).await).await;
        let mut client = http2(gateway.address()).await;
        for (key, retry) in [("", false), ("k", false), ("k", true)] {
            let request = Request::post("http://shop/").header("content-length", "0");
            let request = match key {
                "" => request,
                key => request.header("idempotency-key", key),
            };
            let request = request.body(Full::default()).unwrap();
            let response = client.send_request(request).await.unwrap();
            assert_eq!(response.headers().contains_key("idempotent-replayed"), retry, "{key}");
            let whole = response.into_body().collect().await.unwrap();
            let sum = whole.trailers().and_then(|trailers| trailers.get("x-sum")).cloned();
            assert_eq!(sum.as_ref().map(HeaderValue::as_bytes), Some(&b"17"[..]), "{key} {retry}");
            assert_eq!(whole.to_bytes(), "counted");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarding_headers_of_strangers_are_dropped_and_those_of_trusted_peers_go_on() {
    let service = Service::start().await;
    let said = "x-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\n\
                forwarded: for=203.0.113.9\r\n";
    let strangers = TestGateway::before(&service).await;
    strangers.post("/x", "k", said).await;
    let seen = service.last();
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;host=\"shop\";proto=http"));
    let tables = "[scope]\nsingle_tenant = true\ntrusted_peers = [\"127.0.0.0/8\"]";
    let friends = TestGateway::with(&service, tables).await;
    friends.post("/x", "k", said).await;
    let seen = service.last();
    assert_eq!(seen.header("x-forwarded-for"), Some("203.0.113.9, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_2_upstream_is_spoken_to_without_tls_when_it_is_known_to_be_one() {
    let service = Service::speaking(Transport { http2: true, tls: None }).await;
    let settings = Settings { upstream: "http2 = true", ..Settings::default() };
    let gateway = settings.before(&service.base()).await;
    for retry in [false, true] {
        let answer = gateway.post("/orders?x=1", "k", "connection: x-hop\r\nx-hop: 1\r\n").await;
        assert_eq!((answer.status, answer.is_replay()), (201, retry));
    }
    let seen = service.last();
    assert_eq!(seen.version, http::Version::HTTP_2);
    assert_eq!((seen.header("connection"), seen.header("x-hop")), (None, None));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop"));
    assert_eq!(service.runs(), 1);
}
