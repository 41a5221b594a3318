//! The sink that posts to an endpoint.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use onceward_events::{Delivery, HttpSink, HttpSinkSettings, Sink, WebhookSecret};
use onceward_testkit::events::sink_conformance::{Received, SinkFixture, exercise};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::stored_event as event;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TOO_LARGE: usize = 4_000;

/// An endpoint that keeps what it gets.
#[derive(Clone, Default)]
struct Endpoint(Arc<Mutex<EndpointState>>);

#[derive(Default)]
struct EndpointState {
    received: Vec<(HeaderMap, Bytes)>,
    /// Status that it answers instead of 204.
    status: Option<StatusCode>,
    hangs: bool,
}

impl Endpoint {
    async fn serve(&self, address: SocketAddr) -> (SocketAddr, AbortHandle) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(take).with_state(self.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        (address, serving.abort_handle())
    }

    fn answer(&self, status: StatusCode) {
        self.0.lock().unwrap().status = Some(status);
    }

    fn received(&self) -> Vec<(HeaderMap, Bytes)> {
        self.0.lock().unwrap().received.clone()
    }
}

async fn take(State(endpoint): State<Endpoint>, request: Request) -> StatusCode {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if body.len() > TOO_LARGE {
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    let hangs = endpoint.0.lock().unwrap().hangs;
    if hangs {
        std::future::pending::<()>().await;
    }
    let mut state = endpoint.0.lock().unwrap();
    if let Some(status) = state.status {
        return status;
    }
    state.received.push((head.headers, body));
    StatusCode::NO_CONTENT
}

fn settings(address: SocketAddr) -> HttpSinkSettings {
    let mut settings = HttpSinkSettings::new(format!("http://{address}/events").parse().unwrap());
    settings.secrets = vec![WebhookSecret::parse(SECRET).unwrap()];
    settings.timeout = Duration::from_secs(2);
    settings
}

struct Fixture {
    endpoint: Endpoint,
    address: SocketAddr,
    sink: Arc<HttpSink>,
    serving: Mutex<AbortHandle>,
}

impl Fixture {
    async fn start() -> Self {
        let endpoint = Endpoint::default();
        let (address, serving) = endpoint.serve(([127, 0, 0, 1], 0).into()).await;
        let sink = Arc::new(HttpSink::new(settings(address)).unwrap());
        Self { endpoint, address, sink, serving: Mutex::new(serving) }
    }
}

#[async_trait]
impl SinkFixture for Fixture {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&self, _: usize) -> Vec<Received> {
        self.endpoint.received().iter().map(|(headers, body)| received(headers, body)).collect()
    }

    async fn set_reachable(&self, reachable: bool) -> bool {
        if reachable {
            let (_, serving) = self.endpoint.serve(self.address).await;
            *self.serving.lock().unwrap() = serving;
        } else {
            self.serving.lock().unwrap().abort();
        }
        true
    }

    fn refused_payload(&self) -> Option<Bytes> {
        Some(Bytes::from(vec![b'x'; TOO_LARGE + 1]))
    }
}

fn received(headers: &HeaderMap, body: &Bytes) -> Received {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(text("webhook-id"), text("idempotency-key"));
    assert!(text("webhook-signature").starts_with("v1,"));
    assert!(humantime::parse_rfc3339(&text("ce-time")).is_ok(), "{}", text("ce-time"));
    let own = BTreeMap::from([("tenant".to_owned(), text("tenant"))]);
    Received {
        id: text("ce-id"),
        event_type: text("ce-type"),
        aggregate_id: percent_decoded(&text("ce-subject")),
        payload: body.clone(),
        content_type: text("content-type"),
        headers: own,
    }
}

fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn it_passes_the_suite() {
    exercise(&Fixture::start().await).await;
}

#[tokio::test]
async fn answers_say_whether_the_event_or_the_endpoint_is_at_fault() {
    let it = Fixture::start().await;
    for (status, fault) in [
        (StatusCode::OK, "none"),
        (StatusCode::BAD_REQUEST, "failed"),
        (StatusCode::FOUND, "failed"),
        (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        (StatusCode::PAYLOAD_TOO_LARGE, "rejected"),
        (StatusCode::TOO_MANY_REQUESTS, "unavailable"),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    ] {
        it.endpoint.answer(status);
        let result = it.sink.deliver(&[event("a", 1)]).await.swap_remove(0);
        let (found, error) = match result {
            Delivery::Delivered => ("none", None),
            Delivery::Failed(error) => ("failed", Some(error)),
            Delivery::Rejected(error) => ("rejected", Some(error)),
            Delivery::Unavailable(error) => ("unavailable", Some(error)),
            Delivery::Held => ("held", None),
        };
        assert_eq!(found, fault, "{status}");
        assert!(error.is_none_or(|error| error.0.contains(status.as_str())), "{status}");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_for_all_is_down_and_one_bad_event_is_not() {
    let it = Fixture::start().await;
    it.endpoint.answer(StatusCode::INTERNAL_SERVER_ERROR);
    for _ in 0..10 {
        let result = it.sink.deliver(&[event("a", 1)]).await.swap_remove(0);
        assert!(matches!(result, Delivery::Failed(_)), "{result:?}");
    }
    let all: Vec<_> = (0..50).map(|number| event(&number.to_string(), number)).collect();
    let results = it.sink.deliver(&all).await;
    let failed = results.iter().filter(|it| matches!(it, Delivery::Failed(_))).count();
    assert!(failed < 50, "it opened: the others were not tried");
    assert!(matches!(results.last(), Some(Delivery::Unavailable(_))), "{:?}", results.last());
    it.endpoint.0.lock().unwrap().status = None;
    assert_eq!(it.sink.deliver(&[event("b", 100)]).await, [Delivery::Delivered], "one tries");
    assert!(it.sink.deliver(&all).await.iter().all(|it| *it == Delivery::Delivered));
}

#[tokio::test]
async fn an_endpoint_that_never_answers_costs_a_timeout() {
    let endpoint = Endpoint::default();
    endpoint.0.lock().unwrap().hangs = true;
    let (address, _serving) = endpoint.serve(([127, 0, 0, 1], 0).into()).await;
    let settings = HttpSinkSettings { timeout: Duration::from_millis(100), ..settings(address) };
    let sink = HttpSink::new(settings).unwrap();
    let result = sink.deliver(&[event("a", 1)]).await.swap_remove(0);
    assert!(matches!(&result, Delivery::Failed(error) if error.0.contains("100ms")), "{result:?}");
}
