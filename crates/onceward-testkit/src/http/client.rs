//! A client without a pool: each exchange decides about its connection.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use http::response::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How to talk to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    Http2,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}

/// An answer, or why there is none.
pub(super) type Exchanged = Result<(Parts, Bytes), String>;

/// A request as it goes over the wire, header lines in their order.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) authority: Authority,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Bytes,
}

type Body = BoxBody<Bytes, Infallible>;

impl Wire {
    pub(super) fn new(
        base: &str,
        method: Method,
        path: String,
        headers: Vec<(String, Vec<u8>)>,
        body: Bytes,
    ) -> Result<Self, String> {
        let uri: Uri = base.parse().map_err(|why| format!("{base} is no URL: {why}"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(format!("{base} does not begin with http://"));
        }
        let authority = uri.authority().cloned().ok_or_else(|| format!("{base} names no host"))?;
        Ok(Self { authority, method, path, headers, body })
    }

    fn request(&self, protocol: Protocol, body: Body) -> Result<Request<Body>, String> {
        // HTTP/1.1 has the path in its first line and the host in a header.
        let uri = match protocol {
            Protocol::Http1 => self.path.clone(),
            Protocol::Http2 => format!("http://{}{}", self.authority, self.path),
        };
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        if protocol == Protocol::Http1 {
            request = request.header("host", self.authority.as_str());
        }
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|why| why.to_string())?;
            let value = HeaderValue::from_bytes(value).map_err(|why| why.to_string())?;
            request = request.header(name, value);
        }
        request.body(body).map_err(|why| why.to_string())
    }

    pub(super) fn whole_body(&self) -> Body {
        Full::new(self.body.clone()).boxed()
    }
}

/// One exchange on a connection of its own.
pub(super) async fn exchange(protocol: Protocol, wire: &Wire) -> Exchanged {
    let mut connection = Connection::open(protocol, &wire.authority).await?;
    connection.exchange(wire).await
}

/// A connection. Dropped, it is closed at once, whatever is under way.
pub(super) struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Connection {
    pub(super) async fn open(protocol: Protocol, authority: &Authority) -> Result<Self, String> {
        let address =
            (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|why| format!("no connection to {authority}: {why}"))?;
        stream.set_nodelay(true).map_err(|why| why.to_string())?;
        let io = TokioIo::new(stream);
        let failed = |why: hyper::Error| format!("no {protocol} with {authority}: {why}");
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, driver) = http1::handshake(io).await.map_err(failed)?;
                Self { sender: Sender::Http1(sender), driver: spawn(driver) }
            }
            Protocol::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, driver) = handshake.map_err(failed)?;
                Self { sender: Sender::Http2(sender), driver: spawn(driver) }
            }
        })
    }

    /// Sends a request and reads all of its answer. Dropped over HTTP/2, the stream is
    /// reset; the connection stays.
    pub(super) async fn exchange(&mut self, wire: &Wire) -> Exchanged {
        self.exchange_with(wire, wire.whole_body()).await
    }

    /// The same with another body, for one that never ends.
    pub(super) async fn exchange_with(&mut self, wire: &Wire, body: Body) -> Exchanged {
        let answer: Response<Incoming> = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.send_request(wire.request(Protocol::Http1, body)?).await
            }
            Sender::Http2(sender) => {
                sender.send_request(wire.request(Protocol::Http2, body)?).await
            }
        }
        .map_err(|why| format!("no answer: {why}"))?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await;
        let status = parts.status;
        let cut = |why| format!("{status}, and then a body that breaks off: {why}");
        Ok((parts, body.map_err(cut)?.to_bytes()))
    }
}

fn spawn<E>(driver: impl Future<Output = Result<(), E>> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        // What went wrong is told to the exchange.
        driver.await.ok();
    })
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
