//! Requests go to the configured upstream, whatever their target says.

use crate::service::Service;
use crate::test_gateway::{Settings, TestGateway, post};
use crate::tls::{http2, http2_get};

#[tokio::test(flavor = "multi_thread")]
async fn no_request_reaches_anybody_but_the_upstream() {
    let (service, other) = (Service::start().await, Service::start().await);
    let gateway = TestGateway::before(&service).await;
    let evil = other.address;
    for request in [
        format!("GET http://{evil}/x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        format!("GET http://{evil}/x HTTP/1.1\r\nhost: {evil}\r\n\r\n"),
        format!("GET https://{evil}/x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        format!("GET /x HTTP/1.1\r\nhost: {evil}\r\n\r\n"),
        format!("GET //{evil}/x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        format!("GET /@{evil}/x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        format!("GET /x HTTP/1.1\r\nhost: shop@{evil}\r\n\r\n"),
        format!("GET @{evil}/x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        format!("GET /x HTTP/1.1\r\nhost: shop\r\nx-forwarded-host: {evil}\r\n\r\n"),
        format!("CONNECT {evil} HTTP/1.1\r\nhost: {evil}\r\n\r\n"),
        format!("OPTIONS * HTTP/1.1\r\nhost: {evil}\r\n\r\n"),
    ] {
        let answer = gateway.send(&request).await;
        assert!(matches!(answer.status, 201 | 400 | 405), "{request} → {answer:?}");
    }
    assert_eq!(other.connections(), 0);
    for line in service.lines() {
        assert!(line.starts_with("GET /") || line == "OPTIONS *", "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_is_refused_and_not_sent_on() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    let answer = gateway.send("CONNECT shop:443 HTTP/1.1\r\nhost: shop:443\r\n\r\n").await;
    assert_eq!(answer.status, 405);
    let mut http2 = http2(gateway.address()).await;
    let request = http::Request::connect("shop:443").body(http_body_util::Full::default());
    http2.ready().await.unwrap();
    let answer = http2.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 405);
    assert_eq!(service.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_exactly_one_host() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    for hosts in
        ["", "host: a\r\nhost: b\r\n", "host: a\r\nhost: a\r\n", "host: a, b\r\n", "host: a/b\r\n"]
    {
        let answer = gateway.send(&format!("GET /x HTTP/1.1\r\n{hosts}\r\n")).await;
        assert_eq!(answer.problem(), (400, "INVALID_TARGET".into()), "{hosts:?}");
    }
    assert_eq!(service.runs(), 0);
    // HTTP/1.0 allows a request without a Host.
    assert_eq!(gateway.send("GET /x HTTP/1.0\r\n\r\n").await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_goes_before_the_host_header() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    gateway.send("GET http://shop.example/x HTTP/1.1\r\nhost: other\r\n\r\n").await;
    assert_eq!(service.last().header("host"), Some("shop.example"));
    assert_eq!(service.last().header("x-forwarded-host"), Some("shop.example"));
    http2_get(gateway.address(), "http://shop.example/x", &[("host", "other")]).await;
    assert_eq!(service.last().header("host"), Some("shop.example"));
    assert_eq!(service.last().headers.get_all("host").iter().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_of_a_target_makes_no_other_request_of_it() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    assert_eq!(gateway.post("/orders?a=1", "k", "").await.status, 201);
    let absolute = post("http://shop/orders?a=1", "k", "");
    assert!(gateway.send(&absolute).await.is_replay());
    assert_eq!(service.runs(), 1);
}

/// HTTP/2 may split a cookie, HTTP/1.1 may not (RFC 9113, 8.2.3).
#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_a_cookie_are_put_together() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    http2_get(gateway.address(), "http://shop/x", &[("cookie", "a=1"), ("cookie", "b=2")]).await;
    assert_eq!(service.last().header("cookie"), Some("a=1; b=2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_before_every_request_cannot_be_left() {
    let service = Service::start().await;
    let gateway = Settings::default().before(&format!("{}/api/", service.base())).await;
    assert_eq!(gateway.get("/x?y=1").await.status, 201);
    assert_eq!(service.last().line, "GET /api/x?y=1");
    for path in ["/../admin", "/x/../../admin", "/%2e%2E/admin", "/.%2e/admin", "/x/.."] {
        let refused = (400, "INVALID_TARGET".to_owned());
        assert_eq!(gateway.get(path).await.problem(), refused, "{path}");
        assert_eq!(gateway.post(path, "k", "").await.problem(), refused, "{path}");
    }
    assert_eq!(gateway.get("/..x/y..").await.status, 201);
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_gone_is_told_and_the_key_is_free() {
    let service = Service::start().await;
    let gateway = TestGateway::before(&service).await;
    service.close().await;
    for _ in 0..2 {
        let answer = gateway.post("/x", "k", "").await;
        assert_eq!(answer.problem(), (502, "UPSTREAM_UNREACHABLE".into()));
    }
}
