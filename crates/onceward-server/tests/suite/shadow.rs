//! A gateway in shadow mode compared with one that protects nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Request};
use hyper::body::Incoming;
use onceward_server::config::Config;
use onceward_server::gateway::Gateway;
use onceward_testkit::clock::ManualClock;
use onceward_testkit::faulty::{Call, Fault, FaultyStore};
use onceward_testkit::http::Protocol;
use onceward_testkit::http::fixture::Fixture;
use onceward_testkit::http::server::Server;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const NOTHING_PROTECTED: &str = "protect_others = false\n";
const SHADOW: &str =
    "[defaults]\nmode = \"shadow\"\nrequired = true\nrequest_max_bytes = \"64KiB\"\n";
const ENFORCED: &str = "[defaults]\nrequired = true\nrequest_max_bytes = \"64KiB\"\n";

/// The fixture, which also records request headers.
struct Service {
    server: Server,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Service {
    fn start() -> Self {
        let (fixture, seen) = (Fixture::new(), Arc::<Mutex<Vec<HeaderMap>>>::default());
        let seeing = Arc::clone(&seen);
        let server = Server::start(Protocol::Http1, move |request: Request<Incoming>| {
            seeing.lock().push(request.headers().clone());
            let fixture = fixture.clone();
            async move { fixture.call(request).await }
        });
        Self { server: server.unwrap(), seen }
    }

    fn config(&self, settings: &str) -> Config {
        let text = format!(
            "{settings}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[upstream]\nurl = \"{}\"\n\
             [store]\nurl = \"memory:\"\n[scope]\nsingle_tenant = true\n[limits]\nthreads = 1\n\
             [admin]\naddress = \"127.0.0.1:0\"\n",
            self.server.base()
        );
        Config::parse(&text, Path::new("shadow.toml")).unwrap()
    }

    /// Headers of the last request, without those of the connection or the gateway.
    fn last(&self) -> Vec<String> {
        let mut seen = self.seen.lock().last().cloned().unwrap_or_default();
        assert!(seen.remove("onceward-via").is_some());
        let mut lines: Vec<_> = seen.iter().map(|(name, it)| format!("{name}: {it:?}")).collect();
        lines.sort();
        lines
    }
}

async fn exchange(to: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// An answer without its variable parts: the date, and names of orders.
fn constant_parts(answer: &str) -> String {
    let lines = answer.lines().filter(|line| !line.starts_with("date: "));
    let words = lines.flat_map(|line| line.split(['"', '/', ' ']).chain(["\n"]));
    words.map(|word| if is_name(word) { "*" } else { word }).collect::<Vec<_>>().join(" ")
}

fn is_name(word: &str) -> bool {
    word.len() == 36 && word.matches('-').count() == 4
}

fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn keyed(key: &str, behave: &str, body: &str) -> String {
    post("/orders", &format!("idempotency-key: {key}\r\nx-behave: {behave}\r\n"), body)
}

async fn metrics(gateway: &Gateway) -> String {
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    exchange(gateway.admin().unwrap(), request).await
}

/// The shadow counters, by their last label.
async fn counts(gateway: &Gateway) -> BTreeMap<String, u64> {
    let text = metrics(gateway).await;
    let shadow = text.lines().filter_map(|line| line.strip_prefix("idempotency_shadow"));
    let count = |line: &str| {
        let (labels, count) = line.rsplit_once(' ')?;
        let label = labels.rsplit(',').next()?.split('"').nth(1)?;
        Some((label.to_owned(), count.parse().ok()?))
    };
    assert!(!text.contains("idempotency_claim_total{"), "{text}");
    // Series start at 0, those of methods that are not used too.
    shadow.filter_map(count).filter(|(_, count)| *count > 0).collect()
}

/// Waits until this many requests are counted and all of them are settled.
async fn observed(gateway: &Gateway, requests: u64) -> BTreeMap<String, u64> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = counts(gateway).await;
        let sum: u64 = seen.iter().filter(|(label, _)| *label != "body").map(|it| it.1).sum();
        let settled = metrics(gateway).await.contains("active{state=\"running\"} 0");
        if sum == requests && settled {
            return seen;
        }
        assert!(Instant::now() < end, "{seen:?} are not {requests}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(would, count)| ((*would).to_owned(), *count)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_observed_is_answered_as_if_nobody_looked() {
    let service = Service::start();
    let bare = Gateway::start(service.config(NOTHING_PROTECTED)).await.unwrap();
    let shadow = Gateway::start(service.config(SHADOW)).await.unwrap();
    let large = format!("{{\"amount\":\"{}\"}}", "x".repeat(300_000));
    let again = keyed("k", "", "{\"amount\":1}");
    let requests = [
        &post("/orders", "", "{\"amount\":1}"),
        &post("/orders", "idempotency-key: a\r\nidempotency-key: b\r\n", "{\"amount\":1}"),
        &again,
        &again,
        &keyed("k", "", "{\"amount\":2}"),
        &keyed("large", "", &large),
        &keyed("large answer", "", "{}"),
        &keyed("large-answer", "size=400000", "{}"),
        &keyed("chunked", "chunked; size=100", "{}"),
        &keyed("no-content", "status=204; body=empty", "{}"),
        &keyed("cookie", "set-cookie; request-id", "{}"),
        &keyed("nul", "body=nul", "{}"),
        &keyed("failed", "status=500", "{}"),
        &keyed("said", "status=500; outcome=release", "{}"),
        &keyed("panics", "panic", "{}"),
        &post("/nowhere", "idempotency-key: n\r\n", "{}"),
    ];
    for (number, request) in requests.into_iter().enumerate() {
        let expected = exchange(bare.addresses()[0], request).await;
        let arrived = service.last();
        let answer = exchange(shadow.addresses()[0], request).await;
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        assert_eq!(constant_parts(&answer), constant_parts(&expected), "{request:.200}");
        assert_eq!(service.last(), arrived);
        observed(&shadow, number as u64 + 1).await;
    }
    assert_eq!(
        counts(&shadow).await,
        expected(&[
            ("missing_key", 1),
            ("invalid_key", 2),
            ("execute", 10),
            ("replay", 1),
            ("mismatch", 1),
            ("body", 1), // The part of the mismatch.
            ("refused", 1),
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_says_counts_for_the_retry_that_is_only_observed() {
    let service = Service::start();
    let shadow = Gateway::start(service.config(SHADOW)).await.unwrap();
    let said = [
        ("status=500; outcome=release", "execute"),
        ("status=500", "unknown"),
        ("status=500; outcome=keep", "replay"),
    ];
    for (number, (behave, key)) in said.into_iter().enumerate() {
        let request = keyed(key, behave, "{}");
        let first = exchange(shadow.addresses()[0], &request).await;
        assert!(first.starts_with("HTTP/1.1 500") && !first.contains("onceward"), "{first}");
        observed(&shadow, 2 * number as u64 + 1).await;
        exchange(shadow.addresses()[0], &request).await;
        observed(&shadow, 2 * number as u64 + 2).await;
    }
    let would = expected(&[("execute", 4), ("unknown", 1), ("replay", 1)]);
    assert_eq!(counts(&shadow).await, would);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_at_once_are_counted_as_conflicts() {
    let service = Service::start();
    let shadow = Gateway::start(service.config(SHADOW)).await.unwrap();
    let request = keyed("k", "delay=500", "{}");
    let sends = (0..4).map(|_| exchange(shadow.addresses()[0], &request));
    let answers = futures_util::future::join_all(sends).await;
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 201")), "{answers:?}");
    assert_eq!(observed(&shadow, 4).await, expected(&[("execute", 1), ("conflict", 3)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_down_or_hangs_is_not_noticed_by_clients() {
    let service = Service::start();
    for (number, fault) in [Fault::Fail, Fault::Hang].into_iter().enumerate() {
        let store = Arc::new(FaultyStore::over_memory(ManualClock::new()));
        store.on_every(Call::Claim, fault);
        let shadow = Gateway::start_on(store, service.config(SHADOW)).await.unwrap();
        let begun = Instant::now();
        for key in 0..5 {
            let request = keyed(&format!("k-{number}-{key}"), "", "{}");
            let answer = exchange(shadow.addresses()[0], &request).await;
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "the store was waited for");
        let (end, down) = (begun + Duration::from_secs(20), expected(&[("store_down", 5)]));
        while counts(&shadow).await != down {
            assert!(Instant::now() < end, "{:?}", counts(&shadow).await);
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reload_to_enforcing_the_next_retry_is_the_first_execution() {
    let service = Service::start();
    let gateway = Gateway::start(service.config(SHADOW)).await.unwrap();
    let (to, request) = (gateway.addresses()[0], keyed("k", "", "{\"amount\":1}"));
    let unprotected = exchange(to, &request).await;
    assert_eq!(observed(&gateway, 1).await, expected(&[("execute", 1)]));

    gateway.reload(service.config(ENFORCED)).unwrap();
    let first = exchange(to, &request).await;
    let again = exchange(to, &request).await;
    assert!(!first.contains("idempotent-replayed") && again.contains("idempotent-replayed: true"));
    let body = |answer: &str| answer.split("\r\n\r\n").nth(1).unwrap().to_owned();
    assert_eq!(body(&first), body(&again));
    assert_ne!(body(&first), body(&unprotected));
}
