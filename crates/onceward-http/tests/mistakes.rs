//! Mistakes in the set-up that once caused a second effect, or showed a reply to another caller.
//! Each ends in a refusal or in one effect.

mod common;

use bytes::Bytes;
use common::*;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use onceward_http::{
    KeyFrom, Onceward, OncewardLayer, Operation, ProblemFormat, ReplayRules, Rules, Source,
};

const CREDENTIALS: &str = "IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS";

fn by_credentials() -> OncewardLayer {
    Onceward::layer(Bench::new().engine()).caller(Source::credentials()).build().unwrap()
}

fn with(header: (&str, &str)) -> Request<Full<Bytes>> {
    let mut request = post("order-1", "{}");
    let name: http::HeaderName = header.0.parse().unwrap();
    request.headers_mut().insert(name, header.1.parse().unwrap());
    request
}

/// A refreshed token made two effects, a signature and a Digest counter three each, when the
/// caller was a digest of the header.
#[tokio::test]
async fn a_retry_under_other_credentials_neither_runs_nor_sees_the_reply() {
    let sigv4 = "AWS4-HMAC-SHA256 Credential=AKID/20261118/eu/s3/aws4_request, Signature=";
    for (name, first, second) in [
        ("authorization", "Bearer first".to_owned(), "Bearer refreshed".to_owned()),
        ("authorization", format!("{sigv4}aa"), format!("{sigv4}bb")),
        ("authorization", "Digest nc=00000001".into(), "Digest nc=00000002".into()),
        ("authorization", "Basic YTpi".into(), "Basic YTpj".into()),
        ("x-api-key", "one".into(), "two".into()),
        ("cookie", "session=one".into(), "session=two".into()),
    ] {
        let (layer, counter) = (by_credentials(), Counter::default());
        let (first, second) = ((name, first.as_str()), (name, second.as_str()));
        assert_eq!(send(&layer, counting(&counter), with(first)).await.status(), 201, "{first:?}");
        for _ in 0..2 {
            let refused = send(&layer, counting(&counter), with(second)).await;
            assert_eq!((refused.status().as_u16(), &*code(&refused)), (403, CREDENTIALS));
            assert!(json(&refused)["detail"].as_str().unwrap().contains("scope.caller"));
            assert_eq!(json(&refused)["same_key"], true);
        }
        assert!(is_replay(&send(&layer, counting(&counter), with(first)).await));
        assert_eq!(counter.executions(), 1);
    }
}

#[tokio::test]
async fn the_spelling_of_a_scheme_and_the_lines_of_a_cookie_do_not_count() {
    let (layer, counter) = (by_credentials(), Counter::default());
    send(&layer, counting(&counter), with(("authorization", "Bearer T"))).await;
    let retry = send(&layer, counting(&counter), with(("authorization", "bearer T"))).await;
    assert!(is_replay(&retry));

    let (layer, counter) = (by_credentials(), Counter::default());
    send(&layer, counting(&counter), with(("cookie", "a=1; b=2"))).await;
    let mut in_pieces = with(("cookie", "b=2"));
    in_pieces.headers_mut().append("cookie", "a=1".parse().unwrap());
    assert!(is_replay(&send(&layer, counting(&counter), in_pieces).await));
}

#[tokio::test]
async fn a_known_key_without_credentials_gets_no_stored_reply() {
    let (layer, counter) = (by_credentials(), Counter::default());
    send(&layer, counting(&counter), with(("authorization", "Bearer T"))).await;
    let refused = send(&layer, counting(&counter), post("order-1", "{}")).await;
    assert_eq!((refused.status().as_u16(), &*code(&refused)), (401, CREDENTIALS));
    assert_eq!(counter.executions(), 1);
}

/// Keys work without any credentials. A first try with curl ended in 401.
#[tokio::test]
async fn a_service_without_credentials_needs_no_settings() {
    let (layer, counter) = (by_credentials(), Counter::default());
    for replayed in [false, true] {
        let answer = send(&layer, counting(&counter), post("order-1", "{}")).await;
        assert_eq!((answer.status(), is_replay(&answer)), (StatusCode::CREATED, replayed));
    }
}

/// Beta's order never ran, and beta saw acme's.
#[tokio::test]
async fn the_same_key_at_another_host_is_another_request() {
    let (layer, counter) = (layer(Rules::default()), Counter::default());
    let at = |host| with(("host", host));
    send(&layer, counting(&counter), at("acme.example")).await;
    let refused = send(&layer, counting(&counter), at("beta.example")).await;
    assert_eq!(refused.status(), 422);
    assert_eq!(json(&refused)["differs"], serde_json::json!(["host"]));
    assert!(is_replay(&send(&layer, counting(&counter), at("ACME.example:443")).await));
    assert_eq!(counter.executions(), 1);
}

#[tokio::test]
async fn a_host_can_be_the_tenant() {
    let layer = Onceward::layer(Bench::new().engine()).tenant(Source::host()).build().unwrap();
    let counter = Counter::default();
    for host in ["acme.example", "beta.example"] {
        let answer = send(&layer, counting(&counter), with(("host", host))).await;
        assert_eq!((answer.status(), is_replay(&answer)), (StatusCode::CREATED, false));
    }
    assert_eq!(counter.executions(), 2);
}

fn square() -> OncewardLayer {
    let from = KeyFrom::Body("/idempotency_key".into());
    let operation = |route| Operation::post(route).with(|rules| rules.key.from = from.clone());
    Onceward::layer(Bench::new().engine())
        .single_tenant()
        .operation(operation("/payments"))
        .operation(operation("/optional").with(|rules| rules.required = false))
        .build()
        .unwrap()
}

fn keyless(uri: &str, body: &str) -> Request<Full<Bytes>> {
    let mut request = post_to(uri, "ignored", body);
    request.headers_mut().remove("idempotency-key");
    request
}

/// Square puts the key into the body: two attempts made two charges.
#[tokio::test]
async fn a_key_in_the_body_is_read_there() {
    let (layer, counter) = (square(), Counter::default());
    let pay = |body: &str| send(&layer, counting(&counter), keyless("/payments", body));
    let body = r#"{"idempotency_key":"k-1","amount":5}"#;
    assert_eq!(pay(body).await.status(), 201);
    assert!(is_replay(&pay(r#"{"amount":5.0, "idempotency_key":"k-1"}"#).await));
    assert_eq!(pay(r#"{"idempotency_key":"k-1","amount":6}"#).await.status(), 422);
    assert_eq!(pay(r#"{"idempotency_key":"k-2","amount":5}"#).await.status(), 201);
    assert_eq!(counter.executions(), 2);
    for (body, expected) in [
        (r#"{"amount":5}"#, "MISSING_IDEMPOTENCY_KEY"),
        ("not json", "MISSING_IDEMPOTENCY_KEY"),
        (r#"{"idempotency_key":7}"#, "INVALID_IDEMPOTENCY_KEY"),
        (r#"{"idempotency_key":"a","idempotency_key":"b"}"#, "INVALID_IDEMPOTENCY_KEY"),
    ] {
        assert_eq!(code(&pay(body).await), expected, "{body}");
    }
    assert_eq!(counter.executions(), 2);
}

#[tokio::test]
async fn a_body_without_a_key_passes_whole_if_none_is_required() {
    let layer = square();
    for body in ["", "{}", "plain text"] {
        let echo = |request: Request<onceward_http::Body<Full<Bytes>>>| async move {
            let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap();
            ok(http::Response::builder(), body.to_bytes())
        };
        let answer = send(&layer, echo, keyless("/optional", body)).await;
        assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (200, body.as_bytes()));
    }
}

// The response to a retry -------------------------------------------------------------------

fn headers_of(answer: &Answer) -> HeaderMap {
    let mut headers = answer.headers().clone();
    for mark in ReplayRules::default().headers {
        headers.remove(mark);
    }
    headers
}

#[tokio::test]
async fn a_replay_has_the_headers_of_the_service_and_none_of_one_caller() {
    let layer = layer(Rules::default());
    let handler = |_| async {
        let mut response = http::Response::builder().status(201);
        for (name, value) in [
            ("x-order-total", "42"),
            ("ratelimit-remaining", "9"),
            ("access-control-allow-origin", "https://shop.example"),
            ("content-security-policy", "default-src 'none'"),
            ("strict-transport-security", "max-age=60"),
            ("x-content-type-options", "nosniff"),
            ("vary", "Origin"),
            ("set-cookie", "session=canary"),
            ("x-request-id", "canary"),
            ("date", "now"),
        ] {
            response = response.header(name, value);
        }
        ok((0..150).fold(response, |it, n| it.header(format!("x-{n}"), n)), "done")
    };
    let first = send(&layer, handler, post("k", "{}")).await;
    let replay = send(&layer, handler, post("k", "{}")).await;
    assert!(is_replay(&replay));
    let mut expected = headers_of(&first);
    for own in ["set-cookie", "x-request-id", "date"] {
        assert!(expected.remove(own).is_some());
    }
    assert_eq!(headers_of(&replay), expected);
}

#[tokio::test]
async fn a_compressed_reply_is_readable_for_a_retry_that_accepts_no_compression() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"{\"paid\":true}").unwrap();
    let packed = Bytes::from(gzip.finish().unwrap());
    let (layer, body) = (layer(Rules::default()), packed.clone());
    let handler = move |_| {
        let response = http::Response::builder().header("content-encoding", "gzip");
        std::future::ready(ok(response, body.clone()))
    };
    send(&layer, handler.clone(), post("k", "{}")).await;
    let plain = send(&layer, handler.clone(), post("k", "{}")).await;
    assert_eq!(plain.body(), "{\"paid\":true}");
    assert!(!plain.headers().contains_key("content-encoding"));
    let mut accepts = post("k", "{}");
    accepts.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let answer = send(&layer, handler, accepts).await;
    assert_eq!(
        (answer.body(), &answer.headers()["content-encoding"]),
        (&packed, &"gzip".parse().unwrap())
    );
}

/// stripe-node resolves with an undefined id where a refusal has no `error` member.
#[tokio::test]
async fn refusals_can_be_written_for_stripes_sdks() {
    let format = ProblemFormat { stripe_errors: true, ..ProblemFormat::default() };
    let layer = Onceward::layer(Bench::new().engine()).single_tenant().problem_format(format);
    let (layer, counter) = (layer.build().unwrap(), Counter::default());
    send(&layer, counting(&counter), post("k", "{}")).await;
    let refused = send(&layer, counting(&counter), post("k", "[]")).await;
    assert_eq!(json(&refused)["error"]["type"], "idempotency_error");
    assert_eq!(json(&refused)["error"]["code"], code(&refused));
    assert_eq!(refused.headers()["stripe-should-retry"], "false");
}
