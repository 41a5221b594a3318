//! TLS on both sides of the gateway, and HTTP/2 over it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::DnType;
use rustls::ClientConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates::Authority;
use crate::service::{Service, Transport};
use crate::test_gateway::{Settings, TestGateway, post};
use crate::wire::{Io, Wire, WireResponse};

/// Connects an HTTP/2 client.
pub(crate) async fn http2(to: SocketAddr) -> SendRequest<Full<Bytes>> {
    http2_on(TcpStream::connect(to).await.unwrap()).await
}

async fn http2_on(stream: impl Io + 'static) -> SendRequest<Full<Bytes>> {
    let io = TokioIo::new(stream);
    let (client, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Sends a GET over HTTP/2.
pub(crate) async fn http2_get(
    to: SocketAddr,
    uri: &str,
    headers: &[(&str, &str)],
) -> Response<Bytes> {
    let request = headers
        .iter()
        .fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
    asked(&mut http2(to).await, request.body(Full::default()).unwrap()).await
}

async fn asked(
    client: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Response<Bytes> {
    let (head, body) = client.send_request(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

async fn connect(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    TlsConnector::from(config).connect("localhost".try_into().unwrap(), stream).await
}

/// Sends one request over TLS; an error if the gateway refuses the connection.
async fn send(
    gateway: &TestGateway,
    config: Arc<ClientConfig>,
    request: &str,
) -> io::Result<WireResponse> {
    let mut stream = connect(gateway.address(), config).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    // With TLS 1.3 a client learns of the refusal with its first read.
    let mut first = [0];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await?;
    let (read, write) = tokio::io::split(stream);
    let again = tokio::io::AsyncReadExt::chain(io::Cursor::new(first.to_vec()), read);
    Ok(Wire::on(tokio::io::join(again, write)).answer().await)
}

async fn gateway(service: &Service, listener: &str, tables: &str) -> TestGateway {
    Settings { listener, tables, ..Settings::default() }.before(&service.base()).await
}

const ONE: &str = "[scope]\nsingle_tenant = true";

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_listener_speaks_http_1_and_http_2_and_replays_over_both() {
    let (service, authority) = (Service::start().await, Authority::new());
    let gateway = gateway(&service, &authority.listener(None), ONE).await;
    let http1 = authority.client(None, "http/1.1");
    let first = send(&gateway, http1.clone(), &post("/x", "k", "")).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert_eq!(service.last().header("x-forwarded-proto"), Some("https"));

    let stream = connect(gateway.address(), authority.client(None, "h2")).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = http2_on(stream).await;
    let retry = Request::post("https://shop/x")
        .header("idempotency-key", "k")
        .header("content-type", "application/json")
        .body(Full::from("{\"a\":1}"));
    let retry = asked(&mut client, retry.unwrap()).await;
    assert_eq!((retry.version(), retry.status().as_u16()), (Version::HTTP_2, 201));
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!(retry.body(), &first.body);
    assert_eq!(service.runs(), 1);
    // A TLS listener refuses plain HTTP.
    let mut plain = gateway.connect().await;
    plain.send("GET /x HTTP/1.1\r\nhost: shop\r\n\r\n").await;
    assert!(!plain.rest().await.contains("HTTP/"));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subject_of_a_certificate_is_the_caller() {
    let (service, servers, clients) = (Service::start().await, Authority::new(), Authority::new());
    let scope = "[scope]\ncaller = \"certificate_subject\"";
    let gateway = gateway(&service, &servers.listener(Some(&clients)), scope).await;
    let alice = |extra: &[(DnType, &str)]| {
        let subject = [&[(DnType::CommonName, "alice")], extra].concat();
        servers.client(Some(clients.issue(&subject)), "http/1.1")
    };
    let request = post("/x", "k", "");
    assert_eq!(send(&gateway, alice(&[]), &request).await.unwrap().status, 201);
    // A renewed certificate is the same caller.
    assert!(send(&gateway, alice(&[]), &request).await.unwrap().is_replay());
    let at_shop = [(DnType::OrganizationName, "shop")];
    assert!(!send(&gateway, alice(&at_shop), &request).await.unwrap().is_replay());
    // Subjects that only look the same when printed are different callers.
    let lookalike = clients.issue(&[(DnType::CommonName, "alice, O=shop")]);
    let lookalike = servers.client(Some(lookalike), "http/1.1");
    assert!(!send(&gateway, lookalike, &request).await.unwrap().is_replay());
    let nameless = servers.client(Some(clients.issue(&[])), "http/1.1");
    assert_eq!(send(&gateway, nameless, &request).await.unwrap().status, 401);
    let long = "x".repeat(400);
    let long = clients.issue(&[(DnType::CommonName, &long)]);
    let long = send(&gateway, servers.client(Some(long), "http/1.1"), &request).await.unwrap();
    assert_eq!((long.status, long.is_replay()), (201, false));
    assert_eq!(service.runs(), 4);

    // Without a certificate, or with one of another authority, the connection is refused.
    let without_certificate = servers.client(None, "http/1.1");
    let stranger = Authority::new().issue(&[(DnType::CommonName, "alice")]);
    let stranger = servers.client(Some(stranger), "http/1.1");
    for refused in [without_certificate, stranger] {
        assert!(send(&gateway, refused, &request).await.is_err());
    }
    assert_eq!(service.runs(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_shows_a_certificate_nobody_is_a_caller() {
    let (service, servers) = (Service::start().await, Authority::new());
    let scope = "[scope]\ncaller = \"certificate_subject\"";
    let gateway = gateway(&service, &servers.listener(None), scope).await;
    let without_certificate = servers.client(None, "http/1.1");
    let refused = send(&gateway, without_certificate, &post("/x", "k", "")).await.unwrap();
    assert_eq!(refused.status, 401);
    assert_eq!(service.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_upstream_is_trusted_by_its_own_authority_only() {
    let (authority, other) = (Authority::new(), Authority::new());
    for http2 in [false, true] {
        let tls = Some(authority.server(if http2 { "h2" } else { "http/1.1" }));
        let service = Service::speaking(Transport { http2, tls }).await;
        let base = format!("https://localhost:{}", service.address.port());
        let upstream = format!("http2 = {http2}\nca = {:?}", authority.path());
        let gateway = Settings { upstream: &upstream, ..Settings::default() }.before(&base).await;
        for retry in [false, true] {
            let answer = gateway.post("/x", "k", "").await;
            assert_eq!((answer.status, answer.is_replay()), (201, retry), "{}", answer.body);
        }
        let version = service.last().version;
        assert_eq!(version, if http2 { Version::HTTP_2 } else { Version::HTTP_11 });
        let upstream = format!("http2 = {http2}\nca = {:?}", other.path());
        let gateway = Settings { upstream: &upstream, ..Settings::default() }.before(&base).await;
        let refused = gateway.post("/x", "k", "").await;
        assert_eq!(refused.problem(), (502, "UPSTREAM_UNREACHABLE".into()));
        assert_eq!(service.runs(), 1);
    }
}
