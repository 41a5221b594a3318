//! The inner service: sends requests to the upstream, or to the gateway of another region.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::ext::on_informational;
use onceward_core::OperationId;
use onceward_http::{Execution, ProblemFormat, accept_only_decodable, take_outcome_header};
use tokio::time::timeout;
use tower_service::Service;

use super::headers::{self, FENCE, OPERATION, Peer, REGION};
use super::loop_detection::LoopDetector;
use super::request_target;
use super::snapshot::ConfigSnapshot;
use super::undelivered::Undelivered;
use super::upgrade::Tunnel;
use crate::config::Upstream;
use crate::net::{Client, RequestBody, TimeoutBody};
use crate::telemetry::traces;

/// The body of a response, from the upstream or from the gateway itself.
pub(crate) type ResponseBody = Either<TimeoutBody<Incoming>, Full<Bytes>>;

/// Sends requests to one destination: the upstream, or the gateway of another region.
///
/// It never sends a request twice. If no connection could be made, the request was not executed; if
/// it was sent and not answered, it may have been.
#[derive(Clone)]
pub(crate) struct Proxy {
    client: Client,
    destination: Arc<Destination>,
    loop_detector: Arc<LoopDetector>,
}

/// The destination and its settings.
struct Destination {
    scheme: Scheme,
    authority: Authority,
    /// Path prefix of all requests; empty, or without a slash at the end.
    base: String,
    response_timeout: Duration,
    body_timeout: Duration,
    http2: bool,
    format: Arc<ProblemFormat>,
    /// The region that it is the gateway of; `None` for the upstream.
    region: Option<HeaderValue>,
}

impl Proxy {
    /// A proxy to the upstream.
    pub(crate) fn new(client: Client, snapshot: &ConfigSnapshot) -> Self {
        Self::to(client, &snapshot.config.upstream, None, snapshot)
    }

    /// A proxy to the gateway of another region.
    pub(super) fn to_region(
        client: Client,
        region: &str,
        gateway: &Upstream,
        snapshot: &ConfigSnapshot,
    ) -> Self {
        // No gateway has the name "-", so it would be refused.
        let region = HeaderValue::from_str(region).unwrap_or(HeaderValue::from_static("-"));
        Self::to(client, gateway, Some(region), snapshot)
    }

    fn to(
        client: Client,
        settings: &Upstream,
        region: Option<HeaderValue>,
        snapshot: &ConfigSnapshot,
    ) -> Self {
        let uri = &settings.url.0;
        let destination = Destination {
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: uri.authority().cloned().unwrap_or(Authority::from_static("127.0.0.1")),
            base: uri.path().trim_end_matches('/').to_owned(),
            response_timeout: settings.response_timeout.0,
            body_timeout: settings.body_timeout.0,
            http2: settings.http2,
            format: Arc::clone(&snapshot.format),
            region,
        };
        Self {
            client,
            destination: Arc::new(destination),
            loop_detector: Arc::clone(&snapshot.loop_detector),
        }
    }

    /// Sends a request and returns its response, or the gateway's own instead.
    async fn send(self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let operation = ClientSide::of(&request).operation;
        match self.exchange(request).await {
            Ok(response) => response,
            Err(undelivered) => undelivered.response(operation, &self.destination.format),
        }
    }

    /// Sends a request and returns its response.
    pub(super) async fn exchange(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Undelivered> {
        let client = ClientSide::of(&request);
        let (mut head, body) = request.into_parts();
        let execution = head.extensions.remove::<Execution>();
        let (mut tunnel, mut interim_sender) = (None, None);
        if let Some(peer) = head.extensions.remove::<Peer>() {
            // A protected request gets a response and never becomes a tunnel, in any region.
            if !client.is_protected() && self.destination.region.is_none() {
                tunnel = Tunnel::requested(&mut head, peer.slot.clone());
            }
            headers::prepare(&mut head, &peer);
            interim_sender = peer.interim;
        }
        self.loop_detector.mark(&mut head.headers);
        if let Some(region) = &self.destination.region {
            head.headers.insert(REGION, region.clone());
        }
        if let Some(execution) = &execution {
            announce(&mut head, execution);
        }
        if let Some(tunnel) = &tunnel {
            tunnel.write_headers(&mut head.headers);
        }
        if let Some(trailers) = body.held_trailers() {
            headers::announce_trailers(&mut head.headers, trailers);
        }
        traces::inject(&mut head.headers);
        self.destination.address(&mut head).map_err(Undelivered::InvalidTarget)?;
        let mut request = Request::from_parts(head, body);
        if let Some(sender) = interim_sender {
            on_informational(&mut request, move |response| {
                sender.send(response.status(), response.headers());
            });
        }
        let (response, authority) = (self.client.request(request), &self.destination.authority);
        match timeout(self.destination.response_timeout, response).await {
            Ok(Ok(response)) => self.destination.answer(response, tunnel, client),
            Ok(Err(failed)) => Err(Undelivered::of(&failed, authority)),
            Err(_elapsed) => {
                tracing::warn!(upstream = %authority, "the upstream did not answer in time");
                Err(Undelivered::Late)
            }
        }
    }
}

/// The properties of a request that its response depends on.
#[derive(Clone, Copy)]
struct ClientSide {
    version: Version,
    /// The operation, if the request is protected.
    operation: Option<OperationId>,
}

/// Sends the operation id and the fence to the upstream, and accepts only codings that a replay can
/// be decoded from.
fn announce(head: &mut Parts, execution: &Execution) {
    let operation = HeaderValue::try_from(execution.operation().to_string());
    if let Ok(operation) = operation {
        head.headers.insert(OPERATION, operation);
    }
    head.headers.insert(FENCE, HeaderValue::from(execution.fence().0));
    accept_only_decodable(&mut head.headers);
}

impl Destination {
    /// Rewrites the target of a request to the upstream.
    fn address(&self, head: &mut Parts) -> Result<(), String> {
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if self.base.is_empty() {
            head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"))
        } else {
            if request_target::has_parent_segment(path) {
                return Err("The path leads above the base path of the service.".to_owned());
            }
            format!("{}{path}", self.base).parse().map_err(|why| format!("{why}"))?
        };
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path);
        head.uri = uri.build().map_err(|why| why.to_string())?;
        head.version = if self.http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        if self.http2 {
            // HTTP/2 has the authority instead.
            head.headers.remove(http::header::HOST);
            head.headers.remove(TRANSFER_ENCODING);
        } else if head.headers.contains_key(TRAILER) {
            // Only chunked bodies can have trailers.
            head.headers.insert(TRANSFER_ENCODING, CHUNKED);
        }
        Ok(())
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        tunnel: Option<Tunnel>,
        client: ClientSide,
    ) -> Result<Response<ResponseBody>, Undelivered> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(tunnel) = tunnel else { return Err(Undelivered::SwitchedProtocols) };
            tunnel.join(&mut response);
        } else {
            client.prepare(&mut response);
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(|body| Either::Left(TimeoutBody::response(body, self.body_timeout))))
    }
}

impl ClientSide {
    fn of<B>(request: &Request<B>) -> Self {
        let operation = request.extensions().get().map(Execution::operation);
        Self { version: request.version(), operation }
    }

    fn is_protected(self) -> bool {
        self.operation.is_some()
    }

    /// Prepares the head of a response for the client.
    fn prepare(self, response: &mut Response<Incoming>) {
        headers::remove_hop_by_hop(response.headers_mut());
        if !self.is_protected() {
            // For protected requests the layer removes the header. Shadow mode needs its value.
            take_outcome_header(response);
        }
        let headers = response.headers_mut();
        if self.version == Version::HTTP_11 && headers.contains_key(TRAILER) {
            headers.insert(TRANSFER_ENCODING, CHUNKED);
        }
    }
}

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

impl Service<Request<RequestBody>> for Proxy {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let proxy = self.clone();
        Box::pin(async move { Ok(proxy.send(request).await) })
    }
}
