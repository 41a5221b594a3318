//! The inner service: sends requests to the upstream, and says whether a failed one was sent.

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
use onceward_core::{OperationId, UnknownCause};
use onceward_http::{
    Execution, Fate, ProblemDetails, ProblemFormat, accept_only_decodable, take_outcome_header,
};
use tokio::time::timeout;
use tower_service::Service;

use super::headers::{self, FENCE, OPERATION, Peer};
use super::loop_detection::LoopDetector;
use super::problem::respond;
use super::request_target;
use super::snapshot::ConfigSnapshot;
use super::upgrade::Tunnel;
use crate::net::{BrokenRequest, Client, RequestBody, SendError, Sent, TimeoutBody, TooSlow};
use crate::telemetry::traces;

/// The body of a response, from the upstream or from the gateway itself.
pub(crate) type ResponseBody = Either<TimeoutBody<Incoming>, Full<Bytes>>;

/// Sends requests to the upstream.
///
/// It never sends a request twice. If no connection could be made, the request was not executed; if
/// it was sent and not answered, it may have been.
#[derive(Clone)]
pub(crate) struct Proxy {
    client: Client,
    destination: Arc<Destination>,
    loop_detector: Arc<LoopDetector>,
}

/// The upstream and its settings.
struct Destination {
    scheme: Scheme,
    authority: Authority,
    /// Path prefix of all requests; empty, or without a slash at the end.
    base: String,
    response_timeout: Duration,
    body_timeout: Duration,
    http2: bool,
    format: Arc<ProblemFormat>,
}

impl Proxy {
    pub(crate) fn new(client: Client, snapshot: &ConfigSnapshot) -> Self {
        let upstream = &snapshot.config.upstream;
        let uri = &upstream.url.0;
        let destination = Destination {
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: uri.authority().cloned().unwrap_or(Authority::from_static("127.0.0.1")),
            base: uri.path().trim_end_matches('/').to_owned(),
            response_timeout: upstream.response_timeout.0,
            body_timeout: upstream.body_timeout.0,
            http2: upstream.http2,
            format: Arc::clone(&snapshot.format),
        };
        Self {
            client,
            destination: Arc::new(destination),
            loop_detector: Arc::clone(&snapshot.loop_detector),
        }
    }

    async fn send(self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let (mut head, body) = request.into_parts();
        let execution = head.extensions.remove::<Execution>();
        let operation = execution.as_ref().map(Execution::operation);
        let client = ClientSide { version: head.version, operation };
        let (mut tunnel, mut interim_sender) = (None, None);
        if let Some(peer) = head.extensions.remove::<Peer>() {
            // A protected request gets a response and never becomes a tunnel.
            if !client.is_protected() {
                tunnel = Tunnel::requested(&mut head, peer.slot.clone());
            }
            headers::prepare(&mut head, &peer);
            interim_sender = peer.interim;
        }
        self.loop_detector.mark(&mut head.headers);
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
        if let Err(why) = self.destination.address(&mut head) {
            let mut refused =
                respond(&request_target::invalid_target(&why), &self.destination.format);
            refused.extensions_mut().insert(Fate::NothingHappened);
            return refused;
        }
        let mut request = Request::from_parts(head, body);
        if let Some(sender) = interim_sender {
            on_informational(&mut request, move |response| {
                sender.send(response.status(), response.headers());
            });
        }
        let response = self.client.request(request);
        match timeout(self.destination.response_timeout, response).await {
            Ok(Ok(response)) => self.destination.answer(response, tunnel, client),
            Ok(Err(failed)) => self.destination.unanswered(&failed, client),
            Err(_late) => self.destination.late(client),
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
    ) -> Response<ResponseBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(tunnel) = tunnel else {
                let why = "The upstream switched protocols without an upgrade request.";
                let cause = UnknownCause::Status(response.status().as_u16());
                return self.maybe_executed(StatusCode::BAD_GATEWAY, why, cause, client);
            };
            tunnel.join(&mut response);
        } else {
            client.prepare(&mut response);
        }
        *response.version_mut() = Version::HTTP_11;
        response.map(|body| Either::Left(TimeoutBody::response(body, self.body_timeout)))
    }

    fn unanswered(&self, failed: &SendError, client: ClientSide) -> Response<ResponseBody> {
        if failed.is_caused_by::<TooSlow>() {
            return respond(&TOO_SLOW, &self.format);
        }
        if failed.is_caused_by::<BrokenRequest>() {
            return respond(&BROKEN, &self.format);
        }
        tracing::warn!(upstream = %self.authority, error = %failed, "the upstream did not answer");
        match failed.sent {
            Sent::No => {
                let why = "The service behind the gateway could not be reached. The request was \
                    not sent to it.";
                self.problem(StatusCode::BAD_GATEWAY, why, Sent::No, client)
            }
            Sent::Maybe => {
                let why = "The request was sent to the service behind the gateway, and no \
                    complete response came back. It may have been executed.";
                self.maybe_executed(StatusCode::BAD_GATEWAY, why, UnknownCause::Cut, client)
            }
        }
    }

    fn late(&self, client: ClientSide) -> Response<ResponseBody> {
        tracing::warn!(upstream = %self.authority, "the upstream did not answer in time");
        let why = "The service behind the gateway did not answer in time. The request may have \
            been executed.";
        self.maybe_executed(StatusCode::GATEWAY_TIMEOUT, why, UnknownCause::Timeout, client)
    }
}

impl ClientSide {
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

/// The client's body was too slow. Only bodies of requests without a key stream to the upstream.
const TOO_SLOW: ProblemDetails<'static> = ProblemDetails::new(
    StatusCode::REQUEST_TIMEOUT,
    "REQUEST_TOO_SLOW",
    "The request is too slow",
    "The request body did not arrive in time. The service may have received the beginning of it.",
);

/// The client's body was incomplete, or its chunks are malformed.
const BROKEN: ProblemDetails<'static> = ProblemDetails::new(
    StatusCode::BAD_REQUEST,
    "INVALID_REQUEST_BODY",
    "The request body did not arrive whole",
    "The request body ended early, or its chunks are malformed. The service may have received \
             the beginning of it.",
);

impl Destination {
    /// The response for a request that may have been executed, with the cause for its record.
    fn maybe_executed(
        &self,
        status: StatusCode,
        detail: &str,
        cause: UnknownCause,
        client: ClientSide,
    ) -> Response<ResponseBody> {
        let mut response = self.problem(status, detail, Sent::Maybe, client);
        response.extensions_mut().insert(cause);
        response
    }

    /// A response of the gateway itself. A request that may have been executed must be retried with
    /// the same key; one that was not sent may be.
    fn problem(
        &self,
        status: StatusCode,
        detail: &str,
        sent: Sent,
        client: ClientSide,
    ) -> Response<ResponseBody> {
        let (code, fate, retryable) = match sent {
            Sent::No => ("UPSTREAM_UNREACHABLE", Fate::NothingHappened, true),
            Sent::Maybe => ("UPSTREAM_UNANSWERED", Fate::Unknown, false),
        };
        let problem = ProblemDetails {
            retryable,
            same_key: retryable || client.is_protected(),
            operation_id: client.operation,
            ..ProblemDetails::new(status, code, "The service did not answer", detail)
        };
        let mut response = respond(&problem, &self.format);
        response.extensions_mut().insert(fate);
        response
    }
}

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
