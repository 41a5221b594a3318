//! Shadow mode: requests pass unchanged, and the decisions of protection are reported.

mod common;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use futures_util::future::join;
use http::{HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use onceward_core::{Content, Query, State, StoreAdmin};
use onceward_http::{
    Body, DifferingPart, Event, Execution, Fate, InProgress, Mode, Observer, Onceward,
    OncewardLayer, Rules, ShadowDecision, Source,
};
use onceward_testkit::faulty::{Call, Fault};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;
use tower_layer::Layer;

/// Collects the decisions.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<ShadowDecision>>>);

impl Observer for Notes {
    fn observe(&self, operation: &str, event: Event) {
        assert_eq!(operation, "POST *");
        match event {
            Event::Shadow(decision) => self.0.lock().push(decision),
            other => panic!("{other:?} of a request in shadow mode"),
        }
    }
}

impl Notes {
    /// Returns the decisions since the last call, once all tasks are idle.
    async fn take(&self) -> Vec<ShadowDecision> {
        idle().await;
        std::mem::take(&mut self.0.lock())
    }
}

/// Paused time advances only when all tasks are idle.
async fn idle() {
    sleep(Duration::from_millis(1)).await;
}

fn in_shadow_mode() -> Rules {
    Rules { mode: Mode::Shadow, ..Rules::default() }
}

fn layer_on(bench: &Bench, rules: Rules) -> (OncewardLayer, Notes) {
    let notes = Notes::default();
    let layer = Onceward::layer(bench.engine()).single_tenant().others(rules);
    (layer.observer(Arc::new(notes.clone())).build().unwrap(), notes)
}

/// A handler that reads its request, counts it, and sends this response.
fn answering(
    counter: &Counter,
    response: fn() -> http::response::Builder,
) -> impl FnMut(Request<Body<Full<Bytes>>>) -> futures_util::future::BoxFuture<'static, Handled>
+ Clone
+ Send
+ use<> {
    let counter = counter.clone();
    move |request: Request<Body<Full<Bytes>>>| {
        assert!(Execution::of(request.extensions()).is_none());
        let counter = counter.clone();
        Box::pin(async move {
            let read = request.into_body().collect().await.unwrap().to_bytes();
            counter.up();
            ok(response(), read)
        })
    }
}

/// A handler that takes a second and then counts the request.
fn slow(
    counter: &Counter,
) -> impl FnMut(Request<Body<Full<Bytes>>>) -> futures_util::future::BoxFuture<'static, Handled>
+ Clone
+ Send
+ use<> {
    let counter = counter.clone();
    move |request: Request<Body<Full<Bytes>>>| {
        let counter = counter.clone();
        Box::pin(async move {
            drop(request.into_body().collect().await);
            sleep(Duration::from_secs(1)).await;
            ok(created(), counter.up().to_string())
        })
    }
}

fn created() -> http::response::Builder {
    Response::builder().status(201).header("x-made", "1")
}

fn without_key(body: &str) -> Request<Full<Bytes>> {
    Request::post("/orders").body(Full::from(body.to_owned())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_refuses_replays_and_changes_nothing() {
    let rules = Rules { required: true, request_max_bytes: 8, ..in_shadow_mode() };
    let (layer, notes) = layer_on(&Bench::new(), rules);
    let counter = Counter::default();
    let requests: [fn() -> Request<Full<Bytes>>; 7] = [
        || without_key("{}"),
        || post("", "{}"),
        || post("k", "[1]"),
        || post("k", "[1]"),
        || post("k", "[2]"),
        || post("k", "[\"more than eight bytes\"]"),
        || post("k", "no JSON"),
    ];
    for (number, request) in requests.into_iter().enumerate() {
        let handler = answering(&counter, created);
        let bare = tower::service_fn(handler.clone());
        let (head, body) = request().map(Body::passed).into_parts();
        let expected = bare.oneshot(Request::from_parts(head, body)).await.unwrap();
        let answer = send(&layer, handler, request()).await;
        assert_eq!(counter.executions(), 2 * (number + 1));
        assert_eq!(answer.status(), expected.status());
        assert_eq!(answer.headers(), expected.headers());
        assert_eq!(*answer.body(), expected.into_body().collect().await.unwrap().to_bytes());
        idle().await;
    }
    assert_eq!(
        notes.take().await,
        [
            ShadowDecision::MissingKey,
            ShadowDecision::InvalidKey,
            ShadowDecision::Execute,
            ShadowDecision::Replay,
            ShadowDecision::Mismatch(DifferingPart::Body),
            ShadowDecision::Refused,
            ShadowDecision::Mismatch(DifferingPart::Body),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_counted_by_the_first_part_that_differs() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let handler = answering(&Counter::default(), created);
    send(&layer, handler.clone(), post("k", "[1]")).await;
    assert_eq!(notes.take().await, [ShadowDecision::Execute]);
    for (request, differing) in [
        (post_to("/invoices", "k", "[2]"), DifferingPart::Path),
        (post_to("/orders?dry=1", "k", "[1]"), DifferingPart::Query),
        (post("k", "[2]"), DifferingPart::Body),
    ] {
        send(&layer, handler.clone(), request).await;
        assert_eq!(notes.take().await, [ShadowDecision::Mismatch(differing)]);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_duplicates_all_run_and_all_but_one_would_conflict() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let counter = Counter::default();
    let slow = slow(&counter);
    let sends = (0..5).map(|_| send(&layer, slow.clone(), post("k", "{}")));
    let answers = futures_util::future::join_all(sends).await;
    assert!(answers.iter().all(|answer| answer.status() == 201));
    assert_eq!(counter.executions(), 5);
    let mut would = notes.take().await;
    would.sort_by_key(|it| it.name());
    assert_eq!(would[4], ShadowDecision::Execute);
    assert!(would[..4].iter().all(|it| *it == ShadowDecision::Conflict), "{would:?}");
}

#[tokio::test(start_paused = true)]
async fn duplicates_that_would_wait_are_replays_and_do_not_wait() {
    let rules = Rules { in_progress: InProgress::Wait(Duration::from_secs(5)), ..in_shadow_mode() };
    let (layer, notes) = layer_on(&Bench::new(), rules);
    let slow = |request: Request<Body<Full<Bytes>>>| async move {
        drop(request.into_body().collect().await);
        sleep(Duration::from_secs(1)).await;
        ok(created(), "")
    };
    let begun = Instant::now();
    join(send(&layer, slow, post("k", "{}")), send(&layer, slow, post("k", "{}"))).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(notes.take().await, [ShadowDecision::Execute, ShadowDecision::Replay]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_or_hangs_changes_and_delays_nothing() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let bench = Bench::new();
        let (layer, notes) = layer_on(&bench, in_shadow_mode());
        bench.store.on_every(Call::Claim, fault);
        let begun = Instant::now();
        let answer = send(&layer, answering(&Counter::default(), created), post("k", "[1]")).await;
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (201, &b"[1]"[..]));
        assert_eq!(begun.elapsed(), Duration::ZERO, "{fault:?}");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(notes.take().await, [ShadowDecision::StoreDown], "{fault:?}");
    }
}

/// The reverse holds too: shadow mode does not find the records of protected requests.
#[tokio::test(start_paused = true)]
async fn after_shadow_mode_the_next_retry_is_the_first_execution() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let (shadow, notes) = layer_on(&bench, in_shadow_mode());
    for _ in 0..2 {
        send(&shadow, answering(&counter, created), post("k", "[1]")).await;
        idle().await;
    }
    assert_eq!(notes.take().await, [ShadowDecision::Execute, ShadowDecision::Replay]);

    let protected = bench.layer(Rules::default());
    let first = send(&protected, counting(&counter), post("k", "[1]")).await;
    let again = send(&protected, counting(&counter), post("k", "[1]")).await;
    assert!(!is_replay(&first) && is_replay(&again));
    assert_eq!((first.body(), again.body(), counter.executions()), (&"3".into(), &"3".into(), 3));

    send(&shadow, answering(&counter, created), post("new", "[1]")).await;
    send(&protected, counting(&counter), post("newer", "[1]")).await;
    send(&shadow, answering(&counter, created), post("newer", "[1]")).await;
    assert_eq!(notes.take().await, [ShadowDecision::Execute, ShadowDecision::Execute]);
}

#[tokio::test(start_paused = true)]
async fn records_of_shadow_mode_have_their_region_and_nothing_of_a_response() {
    let bench = Bench::new();
    let (layer, _) = layer_on(&bench, in_shadow_mode());
    send(&layer, answering(&Counter::default(), created), post("k", "\"canary\"")).await;
    idle().await;
    let page = bench.store.list(&Query::default()).await.unwrap();
    let [record] = &page.records[..] else { panic!("{page:?}") };
    assert_eq!(record.scope.region(), Some("onceward:shadow"));
    let State::Completed { outcome, .. } = &record.state else { panic!("{record:?}") };
    assert_eq!((outcome.content, outcome.bytes.len()), (Content::Omitted, 0));
}

#[tokio::test(start_paused = true)]
async fn the_disposition_of_a_response_decides_about_its_retry() {
    let said: [(fn() -> http::response::Builder, ShadowDecision); 8] = [
        (|| Response::builder().status(201), ShadowDecision::Replay),
        (|| Response::builder().status(402), ShadowDecision::Replay),
        (|| Response::builder().status(429), ShadowDecision::Execute),
        (|| Response::builder().status(500).extension(Fate::Unknown), ShadowDecision::Unknown),
        (
            || Response::builder().status(201).extension(Fate::NothingHappened),
            ShadowDecision::Execute,
        ),
        (
            || Response::builder().status(201).header("onceward-outcome", "release"),
            ShadowDecision::Execute,
        ),
        (
            || Response::builder().status(500).header("onceward-outcome", "keep-head"),
            ShadowDecision::Replay,
        ),
        (
            || Response::builder().status(429).header("onceward-outcome", "keep-later"),
            ShadowDecision::Unknown,
        ),
    ];
    for (number, (response, would)) in said.into_iter().enumerate() {
        let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
        for _ in 0..2 {
            let handler = answering(&Counter::default(), response);
            let answer = send(&layer, handler, post("k", "{}")).await;
            assert_eq!(answer.headers().len(), response().headers_ref().unwrap().len());
            idle().await;
        }
        assert_eq!(notes.take().await, [ShadowDecision::Execute, would], "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_ends_the_handler_and_the_retry_would_be_a_replay() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let counter = Counter::default();
    let slow = slow(&counter);
    let sent = send(&layer, slow, post("k", "{}"));
    assert!(timeout(Duration::from_millis(500), sent).await.is_err());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(counter.executions(), 0, "without Onceward it ends, too");
    send(&layer, answering(&counter, created), post("k", "{}")).await;
    assert_eq!(notes.take().await, [ShadowDecision::Execute, ShadowDecision::Replay]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_leaves_its_outcome_unknown() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let panicking = layer.layer(tower::service_fn(async |request: Request<Body<Full<Bytes>>>| {
        drop(request.into_body().collect().await);
        idle().await;
        if true {
            panic!("as it was told");
        }
        ok(created(), "")
    }));
    let panicked = tokio::spawn(async move { panicking.oneshot(post("k", "{}")).await.is_ok() });
    assert!(panicked.await.unwrap_err().is_panic());
    idle().await;
    send(&layer, answering(&Counter::default(), created), post("k", "{}")).await;
    assert_eq!(notes.take().await, [ShadowDecision::Execute, ShadowDecision::Unknown]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_handler_does_not_read_is_not_decided() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let counter = Counter::default();
    assert_eq!(send(&layer, counting(&counter), post("k", "{}")).await.status(), 201);
    assert_eq!(notes.take().await, [ShadowDecision::Unseen]);
    let nothing = post("k", "");
    assert_eq!(send(&layer, counting(&counter), nothing).await.status(), 201);
    assert_eq!(notes.take().await, [ShadowDecision::Execute], "the body is empty");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_caller_would_be_refused_and_passes() {
    let notes = Notes::default();
    let layer = Onceward::layer(Bench::new().engine())
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .others(in_shadow_mode())
        .observer(Arc::new(notes.clone()))
        .build()
        .unwrap();
    let handler = answering(&Counter::default(), created);
    assert_eq!(send(&layer, handler, post("k", "{}")).await.status(), 201);
    assert_eq!(notes.take().await, [ShadowDecision::Refused]);
}

/// A body whose end is known with its last frame and whose length is not, as over HTTP/2.
struct Unsized(Full<Bytes>);

impl http_body::Body for Unsized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_copied_whole_without_a_poll_past_its_end() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let service = layer.layer(tower::service_fn(async |request: Request<Body<Unsized>>| {
        let mut body = request.into_body();
        while !http_body::Body::is_end_stream(&body) {
            body.frame().await.unwrap().unwrap();
        }
        ok(created(), "")
    }));
    let answer = service.oneshot(post("k", "{}").map(Unsized)).await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(notes.take().await, [ShadowDecision::Execute]);
}

#[tokio::test(start_paused = true)]
async fn a_body_streams_to_its_handler_before_it_has_ended() {
    let (layer, notes) = layer_on(&Bench::new(), in_shadow_mode());
    let (frames, body) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let body = StreamBody::new(futures_util::stream::unfold(body, async |mut body| {
        let frame = Frame::data(Bytes::from_static(body.recv().await?.as_bytes()));
        Some((Ok::<_, Infallible>(frame), body))
    }));
    let (seen, mut first) = tokio::sync::mpsc::unbounded_channel();
    let service = layer.layer(tower::service_fn(move |request: Request<Body<_>>| {
        let seen = seen.clone();
        async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                seen.send(frame.unwrap().into_data().unwrap()).unwrap();
            }
            ok(created(), "")
        }
    }));
    let request = Request::post("/orders").header("idempotency-key", "k").body(Box::pin(body));
    let answer = tokio::spawn(service.oneshot(request.unwrap()));
    for part in ["[1,", "2]"] {
        frames.send(part).unwrap();
        assert_eq!(first.recv().await.unwrap(), part);
        assert_eq!(notes.take().await, []);
    }
    drop(frames);
    assert_eq!(answer.await.unwrap().unwrap().status(), 201);
    assert_eq!(notes.take().await, [ShadowDecision::Execute]);
}
