//! A layered service that is called without a network, on paused time.

#![allow(dead_code, reason = "not every test file needs everything")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use onceward_core::{Engine, Policy};
use onceward_http::{Body, Onceward, OncewardLayer, OncewardService, Rules};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::FaultyStore;
use onceward_testkit::http::fixture::refuse_anonymous;
use serde_json::Value;
use tower::ServiceExt;
use tower_layer::Layer;

pub(crate) type Answer = Response<Bytes>;

/// One store with faults on demand, and layers on it.
pub(crate) struct Bench {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) clock: SimClock,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = SimClock::new();
        Self { store: Arc::new(FaultyStore::over_memory(clock.clone())), clock }
    }

    pub(crate) fn engine(&self) -> Engine {
        let quick = Policy::builder()
            .call_timeout(Duration::from_millis(100))
            .claim_patience(Duration::from_millis(200))
            .settle_wait(Duration::from_millis(200));
        Engine::builder(self.store.clone()).policy(quick.build().unwrap()).build()
    }

    pub(crate) fn layer(&self, rules: Rules) -> OncewardLayer {
        Onceward::layer(self.engine()).single_tenant().others(rules).build().unwrap()
    }
}

pub(crate) fn layer(rules: Rules) -> OncewardLayer {
    Bench::new().layer(rules)
}

/// Counts the executions of a handler.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn executions(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Sends a request through a layer to a handler.
pub(crate) async fn send<H, F>(
    layer: &OncewardLayer,
    handler: H,
    request: Request<Full<Bytes>>,
) -> Answer
where
    H: FnMut(Request<Body<Full<Bytes>>>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    let service: OncewardService<_> = layer.layer(tower::service_fn(handler));
    let (head, body) = service.oneshot(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

pub(crate) fn post(key: &str, body: &str) -> Request<Full<Bytes>> {
    post_to("/orders", key, body)
}

pub(crate) fn post_to(uri: &str, key: &str, body: &str) -> Request<Full<Bytes>> {
    Request::post(uri)
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

pub(crate) fn ok(
    response: http::response::Builder,
    body: impl Into<Bytes>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(response.body(Full::new(body.into())).unwrap())
}

/// Result of a handler.
pub(crate) type Handled = Result<Response<Full<Bytes>>, Infallible>;

/// A handler that answers 201 with the number of its executions.
pub(crate) fn counting(
    counter: &Counter,
) -> impl FnMut(Request<Body<Full<Bytes>>>) -> Ready<Handled> + Clone + Send + use<> {
    let counter = counter.clone();
    move |_| ready(ok(Response::builder().status(201), counter.up().to_string()))
}

pub(crate) fn json(answer: &Answer) -> Value {
    serde_json::from_slice(answer.body()).unwrap()
}

pub(crate) fn code(answer: &Answer) -> String {
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    json(answer)["code"].as_str().unwrap().to_owned()
}

pub(crate) fn is_replay(answer: &Answer) -> bool {
    answer.headers().contains_key("idempotent-replayed")
}

type Boxed = UnsyncBoxBody<Bytes, onceward_core::BoxError>;

/// Authentication in front of the layer.
pub(crate) async fn authenticated<S, R>(request: Request<Incoming>, service: S) -> Response<Boxed>
where
    S: tower::Service<Request<Incoming>, Response = Response<R>, Error = Infallible> + Send,
    S::Future: Send,
    R: http_body::Body<Data = Bytes, Error: Into<onceward_core::BoxError>> + Send + 'static,
{
    let probing = request.uri().path().starts_with("/_probe/");
    if let Some(refused) = refuse_anonymous(request.headers()).filter(|_| !probing) {
        return refused.map(|body| body.map_err(Into::into).boxed_unsync());
    }
    let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}
