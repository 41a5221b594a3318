//! A service behind the gateway: writes down what it saw, and behaves as its paths say.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::wire::Io;

pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// One request, as the service saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Method and target.
    pub(crate) line: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// What had come of its body when it was answered.
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// How a service is spoken to.
#[derive(Clone, Default)]
pub(crate) struct Speaks {
    pub(crate) http2: bool,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// A service on a free port.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
    accepting: JoinHandle<()>,
}

struct Ledger {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    /// What streams wait for before they go on.
    gate: Semaphore,
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::speaking(Speaks::default()).await
    }

    pub(crate) async fn speaking(speaks: Speaks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Arc::new(Ledger {
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        });
        let accepting = tokio::spawn(accept(listener, speaks, Arc::clone(&ledger)));
        Self { address, ledger, accepting }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that it was asked.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.ledger.seen.lock().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen().last().expect("it was asked something").clone()
    }

    /// Methods and targets of all that it was asked.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    /// How often it was asked something.
    pub(crate) fn runs(&self) -> usize {
        self.ledger.seen.lock().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.ledger.connections.load(Ordering::Relaxed)
    }

    /// Lets streams go on by so many steps.
    pub(crate) fn open(&self, steps: usize) {
        self.ledger.gate.add_permits(steps);
    }

    /// Waits until it has seen something.
    /// Ends it, and waits until nobody listens any more.
    pub(crate) async fn close(mut self) {
        self.accepting.abort();
        let _it_was_aborted = (&mut self.accepting).await;
    }

    pub(crate) async fn until(&self, what: impl Fn(&[Seen]) -> bool) {
        let waiting = async {
            while !what(&self.ledger.seen.lock()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert!(waited.is_ok(), "seen: {:?}", self.seen());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A service that gives every request the same answer, byte for byte.
pub(crate) async fn raw_service(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|it| it == b"\r\n\r\n") {
                    let Ok(1..) = stream.read_buf(&mut head).await else { return };
                }
                stream.write_all(answer.as_bytes()).await.ok();
                stream.shutdown().await.ok();
                // Closing what was not read would take the answer back.
                while let Ok(1..) = stream.read_buf(&mut head).await {}
            });
        }
    });
    format!("http://{address}")
}

async fn accept(listener: TcpListener, speaks: Speaks, ledger: Arc<Ledger>) {
    while let Ok((stream, _)) = listener.accept().await {
        ledger.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(stream, speaks.clone(), Arc::clone(&ledger)));
    }
}

async fn serve(stream: TcpStream, speaks: Speaks, ledger: Arc<Ledger>) {
    let stream: Box<dyn Io> = match speaks.tls {
        None => Box::new(stream),
        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return, // the client does not trust it
        },
    };
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let ledger = Arc::clone(&ledger);
        async move { Ok::<_, Infallible>(ledger.answer(request).await) }
    });
    // A connection that breaks is the client's affair.
    if speaks.http2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await.ok();
    } else {
        http1::Builder::new().serve_connection(io, service).with_upgrades().await.ok();
    }
}

impl Ledger {
    async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Response<Body> {
        let number = self.note(&request);
        let path = request.uri().path().to_owned();
        let words: Vec<&str> = path.split('/').skip(1).collect();
        match words[..] {
            ["upgrade"] => return switch(&mut request),
            ["stream"] => return self.stream("text/plain"),
            ["events"] => return self.stream("text/event-stream"),
            ["early"] => return plain(413, "no, thank you"),
            _ => {}
        }
        self.read(number, request.body_mut()).await;
        match words[..] {
            ["known", "happened", ..] if !is_probe(request.uri()) => known(),
            ["known", "happened", ..] => plain(200, "{\"outcome\":\"did_not_happen\"}"),
            ["known", "anything", ..] => known(),
            ["known", "did_not_happen", ..] => plain(200, "{\"outcome\":\"did_not_happen\"}"),
            ["known", "cached", ..] => cached(),
            ["known", "nonsense", ..] => plain(200, "{\"paid\":true}"),
            ["known", "framework", ..] => plain(404, "{\"detail\":\"Not Found\"}"),
            ["known", code, ..] => status(code.parse().unwrap()),
            ["status", code] => status(code.parse().unwrap()),
            ["outcome", said, code] => outcome(said, code.parse().unwrap()),
            ["large", size] => plain(200, "x".repeat(size.parse().unwrap())),
            ["trailers"] => trailers(),
            ["internal"] => internal(),
            ["silent"] => std::future::pending().await,
            ["stuck"] => stuck(),
            _ => plain(201, format!("{{\"run\":{number}}}")),
        }
    }

    fn note(&self, request: &Request<Incoming>) -> usize {
        let line = format!("{} {}", request.method(), request.uri());
        let (version, headers) = (request.version(), request.headers().clone());
        let mut seen = self.seen.lock();
        seen.push(Seen { line, version, headers, body: String::new(), trailers: None });
        seen.len() - 1
    }

    /// Writes down the body while it comes.
    async fn read(&self, number: usize, body: &mut Incoming) {
        while let Some(Ok(frame)) = body.frame().await {
            let seen = &mut self.seen.lock()[number];
            match frame.into_data() {
                Ok(data) => seen.body += &String::from_utf8_lossy(&data),
                Err(frame) => seen.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// "one", and each time that the gate opens the next.
    fn stream(self: Arc<Self>, kind: &'static str) -> Response<Body> {
        let first = futures_util::stream::iter([Ok(data("one"))]);
        let rest = futures_util::stream::iter(["two", "three"]).then(move |chunk| {
            let ledger = Arc::clone(&self);
            async move {
                ledger.gate.acquire().await.unwrap().forget();
                Ok(data(chunk))
            }
        });
        let body = StreamBody::new(first.chain(rest)).boxed_unsync();
        Response::builder().header("content-type", kind).body(body).unwrap()
    }
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

fn plain(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.header("set-cookie", "a=1").body(body).unwrap()
}

/// Whether a question is about an operation that cannot exist.
pub(crate) fn is_probe(uri: &http::Uri) -> bool {
    uri.to_string().contains("-8000-000000000000")
}

/// What became of an operation, as a resolver tells it.
fn known() -> Response<Body> {
    let headers = r#"{"Location":"/payments/7"}"#;
    let answer = format!(r#""status":201,"headers":{headers},"body":{{"paid":true}}"#);
    plain(200, format!(r#"{{"outcome":"happened",{answer}}}"#))
}

/// What a cache remembers of an earlier answer.
fn cached() -> Response<Body> {
    let mut response = plain(200, "{\"outcome\":\"did_not_happen\"}");
    response.headers_mut().insert("age", HeaderValue::from_static("60"));
    response
}

/// Switches to a protocol in which the service repeats what it is told.
fn switch(request: &mut Request<Incoming>) -> Response<Body> {
    let protocol = request.headers()["upgrade"].clone();
    let switching = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(stream) = switching.await else { return };
        let (mut read, mut write) = tokio::io::split(TokioIo::new(stream));
        copy(&mut read, &mut write).await.ok();
    });
    let mut response = plain(101, "");
    let headers = response.headers_mut();
    headers.insert("connection", HeaderValue::from_static("upgrade"));
    headers.insert("upgrade", protocol);
    response
}

fn status(code: u16) -> Response<Body> {
    let body = if matches!(code, 204 | 304) { "" } else { "told" };
    let mut response = plain(code, body);
    let headers = response.headers_mut();
    headers.insert("etag", HeaderValue::from_static("\"e\""));
    if StatusCode::from_u16(code).unwrap().is_redirection() {
        headers.insert("location", HeaderValue::from_static("/elsewhere"));
    }
    response
}

fn outcome(said: &str, code: u16) -> Response<Body> {
    let mut response = status(code);
    response.headers_mut().insert("onceward-outcome", said.parse().unwrap());
    response
}

fn trailers() -> Response<Body> {
    let sum = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("17"))]);
    let frames = [Ok(data("counted")), Ok(Frame::trailers(sum))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    Response::builder().header("trailer", "x-sum").body(body).unwrap()
}

/// Says more than is meant for clients.
fn internal() -> Response<Body> {
    let mut response = plain(200, "told");
    for (name, value) in [
        ("connection", "x-internal"),
        ("x-internal", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "Basic"),
        ("onceward-outcome", "keep"),
        ("x-kept", "1"),
    ] {
        response.headers_mut().append(name, HeaderValue::from_static(value));
    }
    response
}

/// Begins to answer, and stops.
fn stuck() -> Response<Body> {
    let first = futures_util::stream::iter([Ok(data("one"))]);
    let body = StreamBody::new(first.chain(futures_util::stream::pending()));
    Response::new(body.boxed_unsync())
}
