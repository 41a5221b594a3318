//! Timeouts, limits and quotas.

use std::time::{Duration, Instant};

use crate::service::Service;
use crate::test_gateway::{Settings, TestGateway, post};

/// Timeouts short enough to wait for.
const SHORT: &str = "[scope]\nsingle_tenant = true\n[limits]\nhead_timeout = \"400ms\"\n\
                     body_timeout = \"400ms\"\nbody_total = \"1s\"\n";

/// Returns whether a time is near a deadline, with tolerance for a busy machine.
fn about(time: Duration, deadline: Duration) -> bool {
    time >= deadline.mul_f64(0.9) && time < deadline + Duration::from_secs(3)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_come_ends_the_connection() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    for beginning in ["", "P", "GET /x HTT", "GET /x HTTP/1.1\r\nhost: shop\r\nx-a: 1\r\n"] {
        let mut wire = gateway.connect().await;
        let begun = Instant::now();
        wire.send(beginning).await;
        let text = wire.rest().await;
        assert!(about(begun.elapsed(), Duration::from_millis(400)), "{beginning:?}");
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{beginning:?}: {text}");
    }
    assert_eq!(service.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_2_connection_that_does_not_begin_ends() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    for beginning in ["PRI * HT", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut wire = gateway.connect().await;
        let begun = Instant::now();
        wire.send(beginning).await;
        wire.rest().await;
        assert!(begun.elapsed() < Duration::from_secs(4), "{beginning:?} {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_not_used_again_ends() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    let mut wire = gateway.connect().await;
    wire.send("GET /x HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 201);
    let begun = Instant::now();
    assert_eq!(wire.rest().await, "");
    assert!(about(begun.elapsed(), Duration::from_millis(400)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stands_still_ends_and_claims_nothing() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    let whole = post("/x", "k", "");
    let mut wire = gateway.connect().await;
    wire.send(&whole[..whole.len() - 3]).await;
    let begun = Instant::now();
    let text = wire.rest().await;
    assert!(about(begun.elapsed(), Duration::from_millis(400)), "{:?}", begun.elapsed());
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert_eq!(service.runs(), 0);
    assert_eq!(gateway.send(&whole).await.status, 201);

    let mut wire = gateway.connect().await;
    wire.send("PUT /x HTTP/1.1\r\nhost: shop\r\ncontent-length: 10\r\n\r\nabc").await;
    let text = wire.rest().await;
    assert!(text.starts_with("HTTP/1.1 408") && text.contains("REQUEST_TOO_SLOW"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_body_that_trickles_ends_with_the_time_for_all_of_it() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, SHORT).await;
    let whole = post("/x", "k", "").replace("content-length: 7", "content-length: 100");
    let mut wire = gateway.connect().await;
    wire.send(&whole).await;
    let begun = Instant::now();
    let trickle = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            wire.send(" ").await;
        }
    };
    // A refused connection fails to write, or ends the wait for an answer.
    let waited = tokio::time::timeout(Duration::from_millis(1100), trickle).await;
    assert!(waited.is_err());
    assert_eq!(wire.head().await.status, 408);
    assert!(about(begun.elapsed(), Duration::from_secs(1)));
    assert_eq!(service.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_protected_requests_have_one_room_together() {
    let service = Service::start().await;
    let tables = "[scope]\nsingle_tenant = true\n[limits]\nbuffer_bytes = \"10KiB\"\n";
    let gateway = TestGateway::with(&service, tables).await;
    let padding = " ".repeat(8000 - 7);
    let long = |key: &str| {
        let head = post("/x", key, "").replace("content-length: 7", "content-length: 8000");
        format!("{head}{padding}")
    };
    // The gateway sends 100 Continue when it has memory for the body.
    let patient = long("k1").replacen("\r\n", "\r\nexpect: 100-continue\r\n", 1);
    let (head, body) = patient.split_at(patient.find("\r\n\r\n").unwrap() + 4);
    let mut first = gateway.connect().await;
    first.send(head).await;
    assert_eq!(first.answer().await.status, 100);
    let full = gateway.send(&long("k2")).await;
    assert_eq!(full.problem(), (503, "GATEWAY_BUSY".into()));
    first.send(body).await;
    assert_eq!(first.answer().await.status, 201);
    assert_eq!(gateway.send(&long("k2")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_let_go() {
    let service = Service::start().await;
    let tables = "[scope]\nsingle_tenant = true\n[limits]\nwrite_timeout = \"400ms\"\n";
    let gateway = TestGateway::with(&service, tables).await;
    const SIZE: usize = 100_000_000;
    let mut wire = gateway.connect().await;
    wire.send(&format!("GET /large/{SIZE} HTTP/1.1\r\nhost: shop\r\n\r\n")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = wire.rest().await;
    assert!(text.starts_with("HTTP/1.1 200") && text.len() < SIZE, "{}", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_silent_or_gets_stuck_ends_in_time() {
    let service = Service::start().await;
    let upstream = "response_timeout = \"400ms\"\nbody_timeout = \"400ms\"";
    let settings = Settings { upstream, ..Settings::default() };
    let gateway = settings.before(&service.base()).await;
    assert_eq!(gateway.get("/silent").await.status, 504);
    let silent = gateway.post("/silent", "a", "").await;
    assert_eq!(silent.problem(), (504, "UPSTREAM_UNANSWERED".into()));
    let stuck = gateway.post("/stuck", "b", "").await;
    assert_eq!(stuck.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    for (path, key) in [("/silent", "a"), ("/stuck", "b")] {
        let retry = gateway.post(path, key, "").await;
        assert_eq!(retry.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    }
    assert_eq!(service.runs(), 3);
    // An incomplete body must not look complete.
    let mut wire = gateway.connect().await;
    wire.send("GET /stuck HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    let text = wire.rest().await;
    assert!(text.contains("one") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_are_turned_away_and_places_come_back() {
    let service = Service::start().await;
    let tables = "[scope]\nsingle_tenant = true\n[limits]\nconnections = 2\nthreads = 1";
    let gateway = TestGateway::with(&service, tables).await;
    let request = "GET /x HTTP/1.1\r\nhost: shop\r\n\r\n";
    let mut first = gateway.connect().await;
    first.send(request).await;
    assert_eq!(first.answer().await.status, 201);
    // A tunnel counts as a connection.
    let mut tunnel = gateway.connect().await;
    tunnel
        .send("GET /upgrade HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: ws\r\n\r\n")
        .await;
    assert_eq!(tunnel.head().await.status, 101);
    tunnel.send("x").await;
    assert_eq!(tunnel.take(1).await, "x");
    assert_eq!(gateway.connect().await.rest().await, "");
    first.send(request).await;
    assert_eq!(first.answer().await.status, 201);
    drop(tunnel);
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let mut next = gateway.connect().await;
        next.send(request).await;
        if next.rest_or_head().await.starts_with("HTTP/1.1 201") {
            break;
        }
        assert!(Instant::now() < end, "no slot became free");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_floods_gets_429_and_nobody_else_notices() {
    let service = Service::start().await;
    let tables = "[quotas]\nnew_keys_per_second = 1\nnew_keys_burst = 5";
    let gateway = TestGateway::with(&service, tables).await;
    let (mallory, alice) = ("authorization: Bearer m\r\n", "authorization: Bearer a\r\n");
    let mut refused = 0;
    for number in 0..30 {
        let answer = gateway.post("/x", &format!("k{number}"), mallory).await;
        if answer.status == 429 {
            refused += 1;
            assert_eq!(answer.code(), "IDEMPOTENCY_QUOTA_EXCEEDED");
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..5).contains(&wait), "{wait}");
        }
    }
    assert!(refused >= 20, "{refused}");
    assert!(gateway.post("/x", "k0", mallory).await.is_replay());
    for number in 0..5 {
        assert_eq!(gateway.post("/x", &format!("a{number}"), alice).await.status, 201);
    }
    assert_eq!(service.runs(), 30 - refused + 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_hammered_gets_429_and_other_keys_do_not_notice() {
    let service = Service::start().await;
    for scope in ["", "[scope]\nsingle_tenant = true\n"] {
        let before = service.runs();
        let quotas = "[quotas]\nkey_requests_per_second = 1\nkey_requests_burst = 3";
        let gateway = TestGateway::with(&service, &format!("{scope}{quotas}")).await;
        assert_eq!(gateway.post("/x", "k", "").await.status, 201);
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(gateway.post("/x", "k", "").await);
        }
        let replays = answers.iter().filter(|answer| answer.is_replay()).count();
        assert!((2..10).contains(&replays), "{replays}");
        for refused in answers.iter().filter(|answer| !answer.is_replay()) {
            assert_eq!(refused.problem(), (429, "IDEMPOTENCY_QUOTA_EXCEEDED".into()));
            assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
            assert!(refused.body.contains("(quotas.key_requests_per_second)"), "{}", refused.body);
        }
        for number in 0..20 {
            assert_eq!(gateway.post("/x", &format!("k{number}"), "").await.status, 201);
        }
        assert_eq!(service.runs() - before, 21, "{scope}");
    }
}

/// Many services have one token for all their users.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_service_with_one_token_is_not_limited_by_default() {
    const KEYS: usize = 2500;
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, "").await;
    let mut wire = gateway.connect().await;
    for number in 0..KEYS {
        let token = "authorization: Bearer t\r\n";
        wire.send(&post("/x", &format!("k{number}"), token)).await;
        assert_eq!(wire.answer().await.status, 201, "key {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_without_a_burst_is_a_rate_and_not_a_ban() {
    let service = Service::start().await;
    for table in ["quotas", "quotas.total"] {
        let tables = format!("[{table}]\nnew_keys_per_second = 1");
        let gateway = TestGateway::with(&service, &tables).await;
        let token = "authorization: Bearer t\r\n";
        assert_eq!(gateway.post("/x", "k", token).await.status, 201, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_keeps_is_limited_by_number_and_by_bytes() {
    let service = Service::start().await;
    let (mallory, alice) = ("authorization: Bearer m\r\n", "authorization: Bearer a\r\n");
    for (quota, path, fits) in [("live_keys = 3", "/x", 3), ("live_bytes = 2500", "/large/1000", 3)]
    {
        let gateway = TestGateway::with(&service, &format!("[quotas]\n{quota}")).await;
        for number in 0..fits {
            let answer = gateway.post(path, &format!("k{number}"), mallory).await;
            assert!(answer.status < 300, "{quota}");
        }
        let over = gateway.post(path, "over", mallory).await;
        assert_eq!(over.problem(), (429, "IDEMPOTENCY_QUOTA_EXCEEDED".into()), "{quota}");
        assert!(gateway.post(path, "k0", mallory).await.is_replay(), "{quota}");
        assert!(gateway.post(path, "others", alice).await.status < 300, "{quota}");
    }
}
