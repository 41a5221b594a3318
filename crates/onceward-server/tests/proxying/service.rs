//! A service behind the gateway. It records its requests, and a request's path selects its behaviour.

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
pub(crate) struct SeenRequest {
    /// Method and target.
    pub(crate) line: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// Body, as far as it had arrived when the request was answered.
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
}

impl SeenRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Protocols of a service.
#[derive(Clone, Default)]
pub(crate) struct Transport {
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
    seen: Mutex<Vec<SeenRequest>>,
    connections: AtomicUsize,
    /// Streams acquire a permit before each further chunk.
    gate: Semaphore,
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::speaking(Transport::default()).await
    }

    pub(crate) async fn speaking(transport: Transport) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Arc::new(Ledger {
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        });
        let accepting = tokio::spawn(accept(listener, transport, Arc::clone(&ledger)));
        Self { address, ledger, accepting }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.ledger.seen.lock().clone()
    }

    pub(crate) fn last(&self) -> SeenRequest {
        self.seen().last().expect("a request").clone()
    }

    /// Methods and targets of all requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    /// Number of requests so far.
    pub(crate) fn runs(&self) -> usize {
        self.ledger.seen.lock().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.ledger.connections.load(Ordering::Relaxed)
    }

    /// Lets streams send this many further chunks.
    pub(crate) fn open(&self, steps: usize) {
        self.ledger.gate.add_permits(steps);
    }

    /// Stops the service and waits until its port is closed.
    pub(crate) async fn close(mut self) {
        self.accepting.abort();
        let _it_was_aborted = (&mut self.accepting).await;
    }

    /// Waits until the requests so far satisfy a condition.
    pub(crate) async fn until(&self, what: impl Fn(&[SeenRequest]) -> bool) {
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

/// Starts a service that sends the same bytes in answer to every request.
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
                // Closing with unread input would reset the connection and lose the answer.
                while let Ok(1..) = stream.read_buf(&mut head).await {}
            });
        }
    });
    format!("http://{address}")
}

async fn accept(listener: TcpListener, transport: Transport, ledger: Arc<Ledger>) {
    while let Ok((stream, _)) = listener.accept().await {
        ledger.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(stream, transport.clone(), Arc::clone(&ledger)));
    }
}

async fn serve(stream: TcpStream, transport: Transport, ledger: Arc<Ledger>) {
    let stream: Box<dyn Io> = match transport.tls {
        None => Box::new(stream),
        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return, // The client does not trust the certificate.
        },
    };
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let ledger = Arc::clone(&ledger);
        async move { Ok::<_, Infallible>(ledger.answer(request).await) }
    });
    // A broken connection is the client's problem.
    if transport.http2 {
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
        seen.push(SeenRequest { line, version, headers, body: String::new(), trailers: None });
        seen.len() - 1
    }

    /// Records the body while it arrives.
    async fn read(&self, number: usize, body: &mut Incoming) {
        while let Some(Ok(frame)) = body.frame().await {
            let seen = &mut self.seen.lock()[number];
            match frame.into_data() {
                Ok(data) => seen.body += &String::from_utf8_lossy(&data),
                Err(frame) => seen.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Streams "one", and a further chunk for each permit of the gate.
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

/// Returns whether a request is the gateway's probe, about an operation that cannot exist.
pub(crate) fn is_probe(uri: &http::Uri) -> bool {
    uri.to_string().contains("-8000-000000000000")
}

/// A resolver's answer: the operation happened.
fn known() -> Response<Body> {
    let headers = r#"{"Location":"/payments/7"}"#;
    let answer = format!(r#""status":201,"headers":{headers},"body":{{"paid":true}}"#);
    plain(200, format!(r#"{{"outcome":"happened",{answer}}}"#))
}

/// A resolver's answer from a cache.
fn cached() -> Response<Body> {
    let mut response = plain(200, "{\"outcome\":\"did_not_happen\"}");
    response.headers_mut().insert("age", HeaderValue::from_static("60"));
    response
}

/// Switches to an echo protocol.
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

/// Sends headers that clients must not get.
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

/// Sends the beginning of a body, and then nothing.
fn stuck() -> Response<Body> {
    let first = futures_util::stream::iter([Ok(data("one"))]);
    let body = StreamBody::new(first.chain(futures_util::stream::pending()));
    Response::new(body.boxed_unsync())
}
