//! Guarantees of the layer that need no network, each named as a fact.

mod common;

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use onceward_core::{
    Content, Engine, Expiry, Fenced, Intent, InvalidateRequest, Key, MemoryStore, OnLapse, Outcome,
    Query, Scope, StoreAdmin as _,
};
use onceward_http::{
    Admission, CompletionLost, Event, Execution, Fate, FingerprintRules, InProgress, KeyFrom, Mode,
    OUTCOME_HEADER, Observer, Onceward, Operation, OutcomeMap, Outcomes, OverQuota, ReplayRules,
    ReplayStatus, ResponseBody, Rules, Sensitive, Source, StoreDown,
};
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use tower_layer::Layer;

// Parts of a mismatch ---------------------------------------------------------------------

async fn differs(
    rules: Rules,
    first: Request<Full<Bytes>>,
    second: Request<Full<Bytes>>,
) -> Answer {
    let (layer, counter) = (layer(rules), Counter::default());
    assert_eq!(send(&layer, counting(&counter), first).await.status(), 201);
    let refused = send(&layer, counting(&counter), second).await;
    assert_eq!((refused.status().as_u16(), counter.executions()), (422, 1));
    refused
}

#[tokio::test]
async fn a_mismatch_names_the_parts_that_differ_and_no_value() {
    let first = r#"{"amount":100,"to":{"iban":"DE1","name":"canary"}}"#;
    let cases = [
        ("/orders", r#"{"amount":200,"to":{"iban":"DE1","name":"canary"}}"#, vec!["body:/amount"]),
        ("/orders", r#"{"to":{"name":"tweety","iban":"DE1"},"amount":1e2}"#, vec!["body:/to/name"]),
        ("/orders?dry=1", first, vec!["query"]),
        ("/invoices", first, vec!["path"]),
        ("/orders", r#"{"amount":100,"to":{"iban":"DE1"}}"#, vec!["body (1 field fewer)"]),
        (
            "/orders",
            r#"{"amount":100,"tip":1,"to":{"iban":"DE1","name":"canary"}}"#,
            vec!["body:/tip"],
        ),
    ];
    for (uri, body, expected) in cases {
        let refused = differs(Rules::default(), post("k", first), post_to(uri, "k", body)).await;
        assert_eq!(json(&refused)["differs"], serde_json::json!(expected), "{uri} {body}");
        let shown = format!("{refused:?}");
        assert!(!shown.contains("canary") && !shown.contains("tweety"), "{shown}");
    }
}

#[tokio::test]
async fn a_mismatch_names_no_parts_if_that_is_switched_off() {
    let fingerprint = FingerprintRules { explain: false, ..FingerprintRules::default() };
    let rules = Rules { fingerprint, ..Rules::default() };
    let refused = differs(rules, post("k", r#"{"a":1}"#), post("k", r#"{"a":2}"#)).await;
    assert_eq!(json(&refused).get("differs"), None);
}

#[tokio::test]
async fn without_comparison_any_request_under_a_known_key_is_a_retry() {
    let fingerprint = FingerprintRules { compare: false, ..FingerprintRules::default() };
    let (layer, counter) = (layer(Rules { fingerprint, ..Rules::default() }), Counter::default());
    send(&layer, counting(&counter), post("k", "1")).await;
    assert!(is_replay(&send(&layer, counting(&counter), post("k", "2")).await));
}

// The replay cache ------------------------------------------------------------------------

/// On a store that recalls outcomes, exact repetitions are recognised by their bytes. Other requests
/// must not be.
#[tokio::test]
async fn a_request_is_a_retry_only_of_the_same_request_of_the_same_tenant() {
    const TENANT: HeaderName = HeaderName::from_static("x-tenant");
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let fingerprint = FingerprintRules {
        api_version: Some(HeaderName::from_static("x-api-version")),
        ..FingerprintRules::default()
    };
    let rules = Rules { fingerprint, ..Rules::default() };
    let layer = Onceward::layer(engine.clone()).tenant(Source::header(TENANT)).others(rules);
    let (layer, counter) = (layer.build().unwrap(), Counter::default());
    let body = r#"{"amount":100}"#;
    let with = |headers: &[(&'static str, &'static str)], mut request: Request<_>| {
        request.headers_mut().insert(TENANT, HeaderValue::from_static("acme"));
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        request
    };
    let ask = async |request| {
        let answer = send(&layer, counting(&counter), request).await;
        (answer.status().as_u16(), is_replay(&answer), counter.executions())
    };
    assert_eq!(ask(with(&[], post("k", body))).await, (201, false, 1));
    for same in [body, body, r#"{ "amount": 1e2 }"#, body] {
        assert_eq!(ask(with(&[], post("k", same))).await, (201, true, 1), "{same}");
    }
    assert_eq!(ask(with(&[], post("k", r#"{"amount":101}"#))).await, (422, false, 1));
    assert_eq!(ask(with(&[], post_to("/invoices", "k", body))).await, (422, false, 1));
    assert_eq!(ask(with(&[], post_to("/orders?dry=1", "k", body))).await, (422, false, 1));
    let changed =
        [("content-type", "text/plain"), ("content-encoding", "br"), ("x-api-version", "2")];
    for header in changed {
        assert_eq!(ask(with(&[header], post("k", body))).await, (422, false, 1), "{header:?}");
    }
    assert_eq!(ask(with(&[], post("l", body))).await, (201, false, 2));
    assert_eq!(ask(with(&[("x-tenant", "other")], post("k", body))).await, (201, false, 3));
    assert_eq!(ask(with(&[], post("k", body))).await, (201, true, 3));
    engine.drain(Duration::ZERO).await;
    assert_eq!(ask(with(&[], post("k", body))).await, (503, false, 3), "known, and too late");
}

/// The cache asks the store about each replay, so an invalidated response is not replayed from it.
#[tokio::test]
async fn an_invalidated_response_is_not_replayed_from_the_cache() {
    let store = Arc::new(MemoryStore::new());
    let layer = Onceward::layer(Engine::new(store.clone())).single_tenant();
    let (layer, counter) = (layer.others(Rules::default()).build().unwrap(), Counter::default());
    let ask = async || send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!(ask().await.status(), 201);
    assert!(is_replay(&ask().await) && is_replay(&ask().await), "it is in the cache");
    let record = store.list(&Query::default()).await.unwrap().records.remove(0);
    let request = InvalidateRequest { id: record.id, fence: record.fence };
    assert_eq!(store.invalidate(&request).await.unwrap(), Fenced::Applied(()));
    for _ in 0..2 {
        let refused = ask().await;
        assert_eq!((refused.status().as_u16(), is_replay(&refused)), (409, false));
        assert_eq!(code(&refused), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
        let problem = json(&refused);
        assert!(problem["detail"].as_str().unwrap().contains("invalidated"), "{problem}");
        assert_eq!((&problem["retryable"], &problem["same_key"]), (&false.into(), &false.into()));
        assert_eq!(problem["operation_id"], record.operation.to_string());
    }
    let page = |path: &str| {
        let path = format!("/onceward/operations/{}{path}", record.operation);
        http::Request::get(path).body(Full::default()).unwrap()
    };
    let status = send(&layer, counting(&counter), page("")).await;
    assert_eq!(json(&status)["state"], "completed");
    assert_eq!(json(&status)["result"], serde_json::json!({ "status": 201 }), "without a link");
    let result = send(&layer, counting(&counter), page("/result")).await;
    assert_eq!(code(&result), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
    assert_eq!(counter.executions(), 1);
}

/// Refuses a key after some requests, and new keys after some.
struct Quotas {
    requests: AtomicUsize,
    new_keys: AtomicUsize,
}

impl Quotas {
    fn of(requests: usize, new_keys: usize) -> Arc<Self> {
        let [requests, new_keys] = [requests, new_keys].map(AtomicUsize::new);
        Arc::new(Self { requests, new_keys })
    }

    fn take(left: &AtomicUsize, limit: &'static str) -> Result<(), OverQuota> {
        let less = |left: usize| left.checked_sub(1);
        let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        let over = OverQuota { retry_after: Duration::from_secs(3), limit: limit.into() };
        taken.map(drop).map_err(|_| over)
    }
}

impl Admission for Quotas {
    fn admit_request(&self, _: &Scope, _: &Key) -> Result<(), OverQuota> {
        Self::take(&self.requests, "requests of a key")
    }

    fn admit_new_key<'a>(
        &'a self,
        _: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), OverQuota>> + Send + 'a>> {
        Box::pin(ready(Self::take(&self.new_keys, "new keys")))
    }

    fn granted(&self, _: &Scope) {}

    fn stored(&self, _: &Scope, _: usize) {}
}

fn told_over(answer: &Answer, limit: &str) {
    assert_eq!((answer.status().as_u16(), &*code(answer)), (429, "IDEMPOTENCY_QUOTA_EXCEEDED"));
    assert_eq!(answer.headers()["retry-after"], "3");
    let problem = json(answer);
    assert_eq!((&problem["retryable"], &problem["same_key"]), (&true.into(), &true.into()));
    assert!(problem["detail"].as_str().unwrap().contains(&format!("({limit})")), "{problem}");
}

/// The first request runs, the second is replayed and enters the cache, the third comes from there.
#[tokio::test]
async fn a_key_that_is_sent_too_often_is_refused_although_its_replay_is_cached() {
    let (engine, quotas) = (Engine::new(Arc::new(MemoryStore::new())), Quotas::of(4, 9));
    let layer = Onceward::layer(engine).single_tenant().admission(quotas.clone()).build().unwrap();
    let counter = Counter::default();
    for replayed in [false, true, true, true] {
        let answer = send(&layer, counting(&counter), post("k", "{}")).await;
        assert_eq!((answer.status().as_u16(), is_replay(&answer)), (201, replayed));
    }
    assert_eq!(quotas.new_keys.load(Ordering::SeqCst), 7, "only the first two use the store");
    for body in ["{}", "[]"] {
        told_over(&send(&layer, counting(&counter), post("k", body)).await, "requests of a key");
    }
    assert_eq!(counter.executions(), 1);
}

#[tokio::test]
async fn a_key_that_is_sent_too_often_meets_neither_its_body_nor_the_store() {
    let bench = Bench::new();
    bench.store.on_every(Call::Claim, Fault::Fail);
    let key = KeyFrom::Body("/key".into());
    for (rules, request) in [
        (Rules { request_max_bytes: 1, ..Rules::default() }, post("k", "{}")),
        (
            Rules {
                key: onceward_http::KeyRules { from: key, ..Default::default() },
                ..Rules::default()
            },
            post("k", r#"{"key":"k"}"#),
        ),
    ] {
        let layer = Onceward::layer(bench.engine()).single_tenant().others(rules);
        let layer = layer.admission(Quotas::of(0, 9)).build().unwrap();
        told_over(&send(&layer, counting(&Counter::default()), request).await, "requests of a key");
    }
}

#[tokio::test]
async fn too_many_new_keys_are_refused_and_a_cached_replay_is_not() {
    let (engine, quotas) = (Engine::new(Arc::new(MemoryStore::new())), Quotas::of(99, 2));
    let layer = Onceward::layer(engine).single_tenant().admission(quotas).build().unwrap();
    let counter = Counter::default();
    for replayed in [false, true, true] {
        assert_eq!(is_replay(&send(&layer, counting(&counter), post("k", "{}")).await), replayed);
    }
    told_over(&send(&layer, counting(&counter), post("l", "{}")).await, "new keys");
    assert_eq!(counter.executions(), 1);
}

// The handler's side ------------------------------------------------------------------------

#[tokio::test]
async fn a_handler_gets_its_key_operation_fence_and_downstream_key() {
    let (layer, counter) = (layer(Rules::default()), Counter::default());
    let handler = {
        let counter = counter.clone();
        move |request: Request<_>| {
            counter.up();
            let execution = Execution::of(request.extensions()).unwrap();
            assert_eq!(execution.key().expose(), "k");
            assert_eq!(execution.scope().operation(), "POST *");
            assert!(execution.fence().0 > 0);
            let told = format!("{} {}", execution.operation(), execution.downstream_key());
            // Released, so that the next attempt shows what stays the same.
            let response = Response::builder().status(500).extension(Fate::NothingHappened);
            std::future::ready(ok(response, told))
        }
    };
    let first = send(&layer, handler.clone(), post("k", "{}")).await;
    let second = send(&layer, handler, post("k", "{}")).await;
    assert_eq!(first.body(), second.body());
    assert_eq!(counter.executions(), 2);
}

async fn two_answers(
    response: fn() -> http::response::Builder,
    rules: Rules,
) -> (Answer, Answer, usize) {
    let (layer, counter) = (layer(rules), Counter::default());
    let handler = {
        let counter = counter.clone();
        move |_| std::future::ready(ok(response(), counter.up().to_string()))
    };
    let first = send(&layer, handler.clone(), post("k", "{}")).await;
    (first, send(&layer, handler, post("k", "{}")).await, counter.executions())
}

#[tokio::test]
async fn the_fate_in_a_response_takes_precedence_over_the_policy() {
    let release = || Response::builder().status(201).extension(Fate::NothingHappened);
    let (_, second, executions) = two_answers(release, Rules::default()).await;
    assert_eq!((second.status().as_u16(), executions), (201, 2));

    let unknown = || Response::builder().status(504).extension(Fate::Unknown);
    let (first, second, executions) = two_answers(unknown, Rules::default()).await;
    assert_eq!((first.status().as_u16(), executions), (504, 1));
    assert_eq!(code(&second), "IDEMPOTENCY_OUTCOME_UNKNOWN");

    let keep = || Response::builder().status(429).extension(Fate::Final);
    let (_, second, executions) = two_answers(keep, Rules::default()).await;
    assert_eq!((second.status().as_u16(), executions, is_replay(&second)), (429, 1, true));
}

/// The library stored a 5xx under the policy `careful`, and the gateway left it unknown: one word
/// for two behaviours.
#[tokio::test]
async fn a_5xx_leaves_the_outcome_unknown_unless_the_handler_or_the_rules_say_otherwise() {
    let fails = || Response::builder().status(503);
    let (first, second, executions) = two_answers(fails, Rules::default()).await;
    assert_eq!((first.status().as_u16(), first.body().as_ref(), executions), (503, &b"1"[..], 1));
    assert_eq!(code(&second), "IDEMPOTENCY_OUTCOME_UNKNOWN");

    let is_final = || Response::builder().status(503).extension(Fate::Final);
    let (_, second, executions) = two_answers(is_final, Rules::default()).await;
    assert_eq!((second.status().as_u16(), executions, is_replay(&second)), (503, 1, true));

    let stripe = Rules { outcomes: Outcomes::StripeV1, ..Rules::default() };
    let (_, second, executions) = two_answers(fails, stripe).await;
    assert_eq!((second.status().as_u16(), executions, is_replay(&second)), (503, 1, true));
}

#[tokio::test]
async fn a_service_says_its_fate_in_a_header_that_the_client_never_sees() {
    let release = || Response::builder().status(500).header("onceward-outcome", "release");
    let (first, second, executions) = two_answers(release, Rules::default()).await;
    assert_eq!(executions, 2);
    assert!(![first, second].iter().any(|it| it.headers().contains_key("onceward-outcome")));
}

/// A word of a later release, a typo, two words: a freed key could run twice, a stored body could be
/// one that must not be stored.
#[tokio::test]
async fn an_unclear_word_of_a_service_frees_no_key_and_stores_no_body() {
    type Says = fn(u16) -> http::response::Builder;
    let words: [Says; 4] = [
        |status| Response::builder().status(status).header("onceward-outcome", "keep-later"),
        |status| Response::builder().status(status).header("onceward-outcome", "Keep"),
        |status| Response::builder().status(status).header("onceward-outcome", "keep, keep-head"),
        |status| {
            let said = Response::builder().status(status).header("onceward-outcome", "keep");
            said.header("onceward-outcome", "keep-head")
        },
    ];
    for (number, word) in words.into_iter().enumerate() {
        for (status, expected) in [
            (201, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE"),
            (429, "IDEMPOTENCY_OUTCOME_UNKNOWN"),
            (500, "IDEMPOTENCY_OUTCOME_UNKNOWN"),
        ] {
            let (layer, counter) = (layer(Rules::default()), Counter::default());
            let handler = {
                let counter = counter.clone();
                move |_| ready(ok(word(status), counter.up().to_string()))
            };
            let first = send(&layer, handler.clone(), post("k", "{}")).await;
            assert_eq!((first.status().as_u16(), first.body().as_ref()), (status, &b"1"[..]));
            assert!(!first.headers().contains_key("onceward-outcome"));
            let second = send(&layer, handler, post("k", "{}")).await;
            let told = (code(&second), counter.executions());
            assert_eq!(told, (expected.to_owned(), 1), "word {number}, {status}");
        }
    }
    let same_twice = || {
        let said = Response::builder().status(500).header("onceward-outcome", "keep");
        said.header("onceward-outcome", "keep")
    };
    let (_, second, executions) = two_answers(same_twice, Rules::default()).await;
    assert_eq!((executions, is_replay(&second)), (1, true));
}

/// The outcome of the only record in the store.
async fn stored(bench: &Bench) -> Outcome {
    let page = bench.store.list(&Query::default()).await.unwrap();
    let [record] = &page.records[..] else { panic!("{page:?}") };
    record.state.outcome().unwrap().clone()
}

#[tokio::test]
async fn a_sensitive_body_goes_to_the_first_caller_and_is_never_stored() {
    const SECRET: &str = r#"{"code":"canary","pin":"canary"}"#;
    let built = |status: u16| Response::builder().status(status);
    let said = |status: u16| built(status).header(OUTCOME_HEADER, "keep-head");
    let omit = || Rules { response_body: ResponseBody::Omit, ..Rules::default() };
    let by_status = OutcomeMap::default().status(201, Fate::FinalHead);
    let by_status = Rules { outcomes: Outcomes::Custom(by_status), ..Rules::default() };
    for (response, rules) in [
        (said(201), Rules::default()),
        (said(502), Rules::default()),
        (built(201).extension(Fate::FinalHead), Rules::default()),
        (built(201), omit()),
        (built(402), omit()),
        (built(201).extension(Fate::Final), omit()),
        (built(201), by_status),
    ] {
        let response = response.header("location", "/cards/7");
        let response = response.header("content-type", "application/json");
        let (bench, once) = (Bench::new(), Arc::new(std::sync::Mutex::new(Some(response))));
        let layer = bench.layer(rules);
        let handler = move |_| {
            let response = once.lock().unwrap().take().expect("it runs once");
            ready(ok(response, SECRET))
        };
        let first = send(&layer, handler.clone(), post("k", "{}")).await;
        assert_eq!(first.body(), SECRET);
        let kept = stored(&bench).await;
        assert_eq!((kept.content, kept.status), (Content::Omitted, Some(first.status().as_u16())));
        assert_eq!(kept.error_code, None, "it comes from the body");
        assert!(!kept.bytes.windows(6).any(|window| window == b"canary"));
        for _ in 0..2 {
            let again = send(&layer, handler.clone(), post("k", "{}")).await;
            assert_eq!(code(&again), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
            assert_eq!(json(&again)["original_status"], first.status().as_u16());
            assert_eq!(again.headers()["location"], "/cards/7");
        }
    }
}

#[tokio::test]
async fn an_omitted_body_is_made_again_from_its_resource_and_an_empty_one_is_replayed() {
    let bench = Bench::new();
    let omit = Rules { response_body: ResponseBody::Omit, ..Rules::default() };
    let layer = Onceward::layer(bench.engine()).single_tenant().others(omit);
    let rebuild = |_| async { Ok(Response::builder().status(201).body("made again".into())?) };
    let layer = layer.rebuild(rebuild).build().unwrap();
    let card = |_| ready(ok(Response::builder().extension(Sensitive::new("card", "7")), "canary"));
    send(&layer, card, post("k", "{}")).await;
    assert_eq!(send(&layer, card, post("k", "{}")).await.body(), "made again");
    let empty = |_| ready(ok(Response::builder().status(204).header("etag", "e"), ""));
    send(&layer, empty, post("l", "{}")).await;
    let again = send(&layer, empty, post("l", "{}")).await;
    assert_eq!((again.status().as_u16(), is_replay(&again)), (204, true));
    assert_eq!(again.headers()["etag"], "e");
}

#[tokio::test]
async fn a_sensitive_reply_is_made_again_from_its_resource() {
    let bench = Bench::new();
    let layer = Onceward::layer(bench.engine())
        .single_tenant()
        .rebuild(|reference| async move {
            assert_eq!(reference.resource.kind, "card");
            let body = format!("secret of {}", reference.resource.id);
            Ok(Response::builder().status(reference.status).body(body.into())?)
        })
        .build()
        .unwrap();
    let handler = |_| {
        let response = Response::builder().status(201).header("location", "/cards/card_7");
        std::future::ready(ok(
            response.extension(Sensitive::new("card", "card_7")),
            "secret of card_7",
        ))
    };
    let first = send(&layer, handler, post("k", "{}")).await;
    let again = send(&layer, handler, post("k", "{}")).await;
    assert_eq!(
        (again.status(), again.body(), is_replay(&again)),
        (first.status(), first.body(), true)
    );

    // Without `rebuild` the body cannot be made again: the retry gets the location of the resource.
    let told = send(&bench.layer(Rules::default()), handler, post("k", "{}")).await;
    assert_eq!(code(&told), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
    assert_eq!(told.headers()["location"], "/cards/card_7");
    assert_eq!(json(&told)["original_status"], 201);
}

// Large and endless responses ---------------------------------------------------------------

#[tokio::test]
async fn a_response_over_the_limit_goes_to_the_first_caller_only() {
    let large = || Response::builder().status(201).header("location", "/orders/1");
    let rules = Rules { response_max_bytes: 0, ..Rules::default() };
    let (first, second, executions) = two_answers(large, rules).await;
    assert_eq!((first.status().as_u16(), first.body().as_ref()), (201, &b"1"[..]));
    assert_eq!((second.status().as_u16(), executions), (409, 1));
    assert_eq!(code(&second), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
    assert_eq!(json(&second)["original_status"], 201);
    assert_eq!(second.headers()["location"], "/orders/1");
}

#[tokio::test]
async fn an_event_stream_is_not_held_back_and_not_run_again() {
    let stream = || Response::builder().header("content-type", "text/event-stream");
    let (first, second, executions) = two_answers(stream, Rules::default()).await;
    assert_eq!((first.body().as_ref(), executions), (&b"1"[..], 1));
    assert_eq!(code(&second), "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE");
}

#[tokio::test]
async fn trailers_are_replayed_as_grpc_needs_them() {
    let layer = layer(Rules::default());
    let service = layer.layer(tower::service_fn(|_: Request<_>| async {
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        let body = Full::new(Bytes::from("message")).with_trailers(async { Some(Ok(trailers)) });
        Ok::<_, Infallible>(Response::new(body.boxed_unsync()))
    }));
    for replayed in [false, true] {
        let mut request = post("k", "\0\0\0\0\u{2}hi");
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let answer = service.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        let collected = answer.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), "message");
    }
}

// Matching a route before the call ----------------------------------------------------------

#[tokio::test]
async fn a_matched_request_is_served_as_by_call_and_tells_whether_its_body_is_buffered() {
    let counter = Counter::default();
    let (limited, shadow) = (
        Rules { request_max_bytes: 7, ..Rules::default() },
        Rules { mode: Mode::Shadow, ..Rules::default() },
    );
    let mut service = layer(limited).layer(tower::service_fn(counting(&counter)));
    for replayed in [false, true] {
        let request = post("k", "{}");
        let route = service.match_route(&request);
        assert_eq!(route.request_max_bytes(), Some(7));
        let answer = service.call_matched(request, route).await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
    }
    assert_eq!(counter.executions(), 1);
    let streams =
        |request: Request<Full<Bytes>>| service.match_route(&request).request_max_bytes().is_none();
    let get = |uri: &str| Request::get(uri).body(Full::default()).unwrap();
    let keyless = Request::post("/orders").body(Full::default()).unwrap();
    assert!(streams(keyless) && streams(get("/orders")) && streams(get("/onceward/operations/7")));
    let service = layer(shadow).layer(tower::service_fn(counting(&counter)));
    assert_eq!(service.match_route(&post("k", "{}")).request_max_bytes(), None);
}

// Failures ----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_executes_nothing() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let layer = bench.layer(Rules::default());
    bench.store.on_every(Call::Claim, Fault::Fail);
    let refused = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!((refused.status().as_u16(), counter.executions()), (503, 0));
    assert_eq!(code(&refused), "IDEMPOTENCY_STORE_UNAVAILABLE");
    assert_eq!(refused.headers()["retry-after"], "1");
    bench.store.heal();
    assert_eq!(send(&layer, counting(&counter), post("k", "{}")).await.status(), 201);
}

#[tokio::test(start_paused = true)]
async fn failing_open_runs_unprotected_and_reports_it() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let unprotected = Arc::new(CountUnprotected::default());
    let rules = Rules { store_down: StoreDown::Open, ..Rules::default() };
    let layer = Onceward::layer(bench.engine()).single_tenant().others(rules);
    let layer = layer.observer(unprotected.clone()).build().unwrap();
    bench.store.on_every(Call::Claim, Fault::Fail);
    for _ in 0..2 {
        assert_eq!(send(&layer, counting(&counter), post("k", "{}")).await.status(), 201);
    }
    assert_eq!((counter.executions(), unprotected.0.load(Ordering::SeqCst)), (2, 2));
}

/// Counts requests that ran unprotected.
#[derive(Default)]
struct CountUnprotected(AtomicUsize);

impl Observer for CountUnprotected {
    fn observe(&self, _operation: &str, event: Event) {
        self.0.fetch_add(usize::from(event == Event::Unprotected), Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_cannot_be_stored_is_answered_truly_and_never_released() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let layer = bench.layer(Rules::default());
    bench.store.on_every(Call::Settle, Fault::Fail);
    let first = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!(first.status(), 201);
    let retry = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!(
        (code(&retry).as_str(), counter.executions()),
        ("IDEMPOTENCY_REQUEST_IN_PROGRESS", 1)
    );
    bench.store.heal();
    sleep(Duration::from_secs(5)).await;
    let retry = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!((is_replay(&retry), retry.body()), (true, first.body()));
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_cannot_be_stored_fails_by_setting() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let rules = Rules { completion_lost: CompletionLost::Fail, ..Rules::default() };
    let layer = bench.layer(rules);
    bench.store.on_every(Call::Settle, Fault::Fail);
    let first = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!(
        (first.status().as_u16(), code(&first).as_str()),
        (500, "IDEMPOTENCY_OUTCOME_UNKNOWN")
    );
    assert_eq!(json(&first)["status"], 500);
}

#[tokio::test(start_paused = true)]
async fn under_takeover_an_outcome_that_is_not_stored_is_not_answered_as_final() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let layer = bench.layer(Rules { on_lapse: Some(OnLapse::Takeover), ..Rules::default() });
    bench.store.on_every(Call::Settle, Fault::Fail);
    let first = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!(code(&first), "IDEMPOTENCY_OUTCOME_UNKNOWN");
}

#[tokio::test]
async fn a_panic_leaves_the_outcome_unknown_and_the_caller_is_told() {
    let (layer, counter) = (layer(Rules::default()), Counter::default());
    let panicking = |_: Request<_>| async { panic!("as planned") };
    let first = send(&layer, panicking, post("k", "{}")).await;
    assert_eq!(code(&first), "IDEMPOTENCY_OUTCOME_UNKNOWN");
    let retry = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!((code(&retry).as_str(), counter.executions()), ("IDEMPOTENCY_OUTCOME_UNKNOWN", 0));
    assert_eq!(json(&first)["operation_id"], json(&retry)["operation_id"]);
}

#[tokio::test]
async fn an_error_of_the_inner_service_leaves_the_outcome_unknown() {
    let layer = layer(Rules::default());
    let failing = layer.layer(tower::service_fn(|_: Request<_>| async {
        Err::<Response<Full<Bytes>>, _>("broken pipe")
    }));
    assert_eq!(failing.clone().oneshot(post("k", "{}")).await.unwrap_err(), "broken pipe");
    let retry = failing.oneshot(post("k", "{}")).await.unwrap();
    assert_eq!(retry.status(), 409);
}

#[tokio::test]
async fn a_response_that_breaks_off_leaves_the_outcome_unknown() {
    let layer = layer(Rules::default());
    let service = layer.layer(tower::service_fn(|_: Request<_>| async {
        let frames = [Ok(http_body::Frame::data(Bytes::from("half"))), Err("reset")];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        Ok::<_, Infallible>(Response::new(body))
    }));
    for _ in 0..2 {
        let answer = service.clone().oneshot(post("k", "{}")).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_cancel_the_handler() {
    let (layer, counter) = (layer(Rules::default()), Counter::default());
    let slow = {
        let counter = counter.clone();
        move |_| {
            let counter = counter.clone();
            async move {
                sleep(Duration::from_millis(200)).await;
                ok(Response::builder().status(201), counter.up().to_string())
            }
        }
    };
    let gone =
        timeout(Duration::from_millis(50), send(&layer, slow.clone(), post("k", "{}"))).await;
    assert!(gone.is_err());
    let retry = send(&layer, slow.clone(), post("k", "{}")).await;
    assert_eq!(code(&retry), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    sleep(Duration::from_millis(200)).await;
    let retry = send(&layer, slow, post("k", "{}")).await;
    assert_eq!((is_replay(&retry), counter.executions()), (true, 1));
}

// The settings ------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_is_refused_or_gets_a_status_page() {
    let slow = |_| async {
        sleep(Duration::from_secs(1)).await;
        ok(Response::builder().status(201), "done")
    };
    for (in_progress, status) in [
        (InProgress::Reject, 409),
        (InProgress::Wait(Duration::from_millis(100)), 409),
        (InProgress::Wait(Duration::from_secs(5)), 201),
        (InProgress::Accepted, 202),
    ] {
        let layer = layer(Rules { in_progress, ..Rules::default() });
        let (first, second) = tokio::join!(send(&layer, slow, post("k", "{}")), async {
            sleep(Duration::from_millis(10)).await;
            send(&layer, slow, post("k", "{}")).await
        });
        assert_eq!((first.status().as_u16(), second.status().as_u16()), (201, status));
        if status == 202 {
            let operation = json(&second)["operation_id"].as_str().unwrap().to_owned();
            let page = format!("/onceward/operations/{operation}");
            assert_eq!(second.headers()["location"], page);
            assert!(second.headers().contains_key("retry-after"));
        }
    }
}

/// Each operation's own delay, in each refusal that says to retry and on its status page.
#[tokio::test(start_paused = true)]
async fn the_delay_of_a_retry_is_a_setting_of_each_operation() {
    let seconds =
        |delay| Rules { retry_after: Some(Duration::from_secs(delay)), ..Rules::default() };
    let accepting = Rules { in_progress: InProgress::Accepted, ..seconds(7) };
    let bench = Bench::new();
    let layer = Onceward::layer(bench.engine())
        .single_tenant()
        .operation(Operation::post("/orders").named("orders").rules(accepting))
        .others(seconds(9));
    let layer = layer.build().unwrap();
    let slow = |_| async {
        sleep(Duration::from_secs(1)).await;
        ok(Response::builder().status(201), "done")
    };
    let ask = async |uri: &str| send(&layer, slow, post_to(uri, "k", "{}")).await;
    let delay = |answer: &Answer, status: u16| {
        assert_eq!(answer.status(), status);
        answer.headers()["retry-after"].to_str().unwrap().to_owned()
    };
    let orders = async {
        sleep(Duration::from_millis(10)).await;
        let accepted = ask("/orders").await;
        let page = accepted.headers()["location"].to_str().unwrap().to_owned();
        let look = async |path| {
            send(&layer, slow, Request::get(path).body(Full::default()).unwrap()).await
        };
        let (status, result) = (look(page.clone()).await, look(format!("{page}/result")).await);
        [delay(&accepted, 202), delay(&status, 200), delay(&result, 409)]
    };
    assert_eq!(tokio::join!(ask("/orders"), orders).1, ["7", "7", "7"]);
    let other = async {
        sleep(Duration::from_millis(10)).await;
        delay(&ask("/other").await, 409)
    };
    assert_eq!(tokio::join!(ask("/other"), other).1, "9");
    bench.store.on_every(Call::Claim, Fault::Fail);
    assert_eq!(delay(&ask("/orders").await, 503), "7");
}

#[tokio::test]
async fn statuses_replay_headers_and_the_key_header_have_settings() {
    let mut rules = Rules {
        mismatch_status: StatusCode::CONFLICT,
        replay: ReplayRules {
            status: ReplayStatus::Ok,
            headers: vec![HeaderName::from_static("x-again")],
        },
        ..Rules::default()
    };
    rules.key.from = KeyFrom::Header(HeaderName::from_static("paypal-request-id"));
    let (layer, counter) = (layer(rules), Counter::default());
    let request = |body: &str| {
        let mut request = post("ignored", body);
        request.headers_mut().insert("paypal-request-id", HeaderValue::from_static("k"));
        request
    };
    assert_eq!(send(&layer, counting(&counter), request("1")).await.status(), 201);
    let replay = send(&layer, counting(&counter), request("1")).await;
    assert_eq!(
        (replay.status().as_u16(), &replay.headers()["x-again"]),
        (200, &HeaderValue::from_static("true"))
    );
    assert!(!is_replay(&replay));
    assert_eq!(send(&layer, counting(&counter), request("2")).await.status(), 409);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_new_after_its_ttl_or_answered_as_expired() {
    for (expiry, status) in
        [(Expiry::Forget, 201), (Expiry::Tombstone(Duration::from_secs(9)), 409)]
    {
        let (bench, counter) = (Bench::new(), Counter::default());
        let ttl = Some(Duration::from_secs(60));
        let layer = bench.layer(Rules { ttl, expiry: Some(expiry), ..Rules::default() });
        send(&layer, counting(&counter), post("k", "{}")).await;
        bench.clock.jump(59_000);
        assert!(is_replay(&send(&layer, counting(&counter), post("k", "{}")).await));
        bench.clock.jump(2_000);
        let after = send(&layer, counting(&counter), post("k", "{}")).await;
        assert_eq!((after.status().as_u16(), is_replay(&after)), (status, false));
    }
}

#[tokio::test]
async fn named_operations_have_their_own_rules_and_keys() {
    let create = Operation::post("/orders").named("orders.create");
    let pay =
        Operation::new(Method::PUT, "/orders/{id}/payment").with(|rules| rules.required = false);
    let layer = Onceward::layer(Bench::new().engine())
        .single_tenant()
        .operation(create)
        .operation(pay)
        .only_named()
        .build()
        .unwrap();
    let counter = Counter::default();
    let request = |method: Method, uri: &str, key: Option<&str>| {
        let mut request = post_to(uri, "k", "{}");
        *request.method_mut() = method;
        if key.is_none() {
            request.headers_mut().remove("idempotency-key");
        }
        request
    };
    let go = |method, uri, key| send(&layer, counting(&counter), request(method, uri, key));

    assert_eq!(code(&go(Method::POST, "/orders", None).await), "MISSING_IDEMPOTENCY_KEY");
    assert_eq!(go(Method::POST, "/orders", Some("k")).await.status(), 201);
    assert!(is_replay(&go(Method::POST, "/orders", Some("k")).await));
    // Another operation: the same text is another key.
    assert_eq!(go(Method::PUT, "/orders/7/payment", Some("k")).await.status(), 201);
    assert!(is_replay(&go(Method::PUT, "/orders/7/payment", Some("k")).await));
    // Another path parameter is another request.
    assert_eq!(go(Method::PUT, "/orders/8/payment", Some("k")).await.status(), 422);
    let before = counter.executions();
    for _ in 0..2 {
        go(Method::PUT, "/orders/7/payment", None).await;
        go(Method::POST, "/elsewhere", Some("k")).await;
        go(Method::GET, "/orders", Some("k")).await;
    }
    assert_eq!(counter.executions(), before + 6);
}

#[tokio::test]
async fn tenants_and_callers_have_their_own_keys() {
    let layer = Onceward::layer(Bench::new().engine())
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .caller(Source::each_credential())
        .build()
        .unwrap();
    let counter = Counter::default();
    let go = |tenant: &'static str, token: &'static str| {
        let mut request = post("k", "{}");
        request.headers_mut().insert("x-tenant-id", HeaderValue::from_static(tenant));
        if !token.is_empty() {
            request.headers_mut().insert("authorization", HeaderValue::from_static(token));
        }
        send(&layer, counting(&counter), request)
    };
    let (one, two) =
        ("2b8de313-9c3c-4a15-a9b8-0cd1e34be3da", "11111111-9c3c-4a15-a9b8-0cd1e34be3da");
    assert!(!is_replay(&go(one, "a").await));
    assert!(!is_replay(&go(two, "a").await));
    assert!(!is_replay(&go(one, "b").await));
    assert!(is_replay(&go(one, "a").await));
    let refused = go("canary", "a").await;
    assert_eq!((refused.status().as_u16(), code(&refused).as_str()), (400, "INVALID_TENANT"));
    // A known key without credentials gets no stored response.
    let refused = go(one, "").await;
    assert_eq!((refused.status().as_u16(), code(&refused).as_str()), (401, "INVALID_CREDENTIALS"));
    assert_eq!(counter.executions(), 3);
}

#[tokio::test]
async fn a_full_store_has_its_own_code_instead_of_too_many_keys() {
    let limits = onceward_core::MemoryLimits { records_max: 64, ..Default::default() };
    let store = MemoryStore::with(limits, Arc::new(onceward_core::SystemAmbient::new()));
    let layer = Onceward::layer(Engine::new(Arc::new(store))).single_tenant().build().unwrap();
    let counter = Counter::default();
    for n in 0..200 {
        let answer = send(&layer, counting(&counter), post(&format!("k{n}"), "{}")).await;
        if answer.status() == 503 {
            assert_eq!(code(&answer), "IDEMPOTENCY_STORE_FULL");
            assert!(answer.headers().contains_key("retry-after"));
            return;
        }
    }
    panic!("the store was never full");
}

#[test]
fn impossible_settings_are_refused_with_the_cause() {
    let told = |operation: Operation| {
        let layer = Onceward::layer(Bench::new().engine()).single_tenant().operation(operation);
        layer.build().unwrap_err().to_string()
    };
    assert!(told(Operation::new(Method::GET, "/x")).contains("GET /x changes nothing"));
    assert!(told(Operation::post("/x/{")).contains("\"/x/{\""));
    assert!(told(Operation::post("/x").named("n".repeat(300))).contains("300 bytes"));
    let cookie = |rules: &mut Rules| rules.response_headers.keep.push(http::header::SET_COOKIE);
    assert!(told(Operation::post("/x").with(cookie)).contains("set-cookie"));
    let pointer = |rules: &mut Rules| rules.fingerprint.exclude.push("amount".into());
    assert!(told(Operation::post("/x").with(pointer)).contains("amount"));
    let status = |rules: &mut Rules| rules.mismatch_status = StatusCode::OK;
    assert!(told(Operation::post("/x").with(status)).contains("mismatch_status is 200"));
    let lengths = |rules: &mut Rules| rules.key.min = 300;
    assert!(told(Operation::post("/x").with(lengths)).contains("300 to 255"));
    for (delay, expected) in [(0, "retry_after is 0ns"), (60, "between 1s and ttl (30s)")] {
        let delay = |rules: &mut Rules| {
            rules.retry_after = Some(Duration::from_secs(delay));
            rules.ttl = Some(Duration::from_secs(30));
        };
        assert!(told(Operation::post("/x").with(delay)).contains(expected), "{expected}");
    }
    let lease = |rules: &mut Rules| rules.lease = Some(Duration::ZERO);
    assert!(told(Operation::post("/x").with(lease)).contains("lease is 0ns"));
}
