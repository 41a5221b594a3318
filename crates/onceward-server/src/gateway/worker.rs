//! The service stack of one thread of the gateway, with its own connections to the upstream.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use onceward_http::{ClientCertificate, OncewardService, ProblemDetails};
use parking_lot::Mutex;
use tower_layer::Layer;
use tracing::Instrument;

use super::authorize::Authorizer;
use super::cors::Cors;
use super::cutoff::{RunningRequest, cut_off};
use super::headers::{self, Peer};
use super::listener::Stop;
use super::problem::respond;
use super::proxy::{Proxy, ResponseBody};
use super::region::{self, Forwarder, Placement};
use super::snapshot::ConfigSnapshot;
use crate::net::{Client, TimeoutBody, TlsError};
use crate::telemetry::traces;

/// The body of a response.
pub(crate) type AnswerBody = onceward_http::Body<ResponseBody>;

/// Answers requests with the configuration in force.
pub(crate) struct Worker {
    snapshots: Arc<ArcSwap<ConfigSnapshot>>,
    current: Mutex<ServiceStack>,
}

/// The services of one configuration.
#[derive(Clone)]
struct ServiceStack {
    snapshot: Arc<ConfigSnapshot>,
    service: OncewardService<Proxy>,
    authorizer: Option<Authorizer>,
    forwarder: Arc<Forwarder>,
}

impl Worker {
    pub(crate) fn new(snapshots: Arc<ArcSwap<ConfigSnapshot>>) -> Result<Self, TlsError> {
        let current = Mutex::new(ServiceStack::build(snapshots.load_full())?);
        Ok(Self { snapshots, current })
    }

    /// Answers one request, in the trace of its caller.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        stop: Stop,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let (span, origin) = (traces::of_request(&request), Cors::origin(&request));
        let (stack, cut) = (self.stack(), RunningRequest::new(request.method()));
        let snapshot = Arc::clone(&stack.snapshot);
        let takes_trailers =
            request.version() == Version::HTTP_11 && headers::takes_trailers(request.headers());
        let answer = async {
            tokio::select! {
                biased;
                answer = stack.walk(request, peer, &cut) => answer,
                // The handler goes on without a response, until the engine's drain marks it unknown.
                () = cut_off(stop) => {
                    Ok(respond(&cut.problem(), &snapshot.format).map(AnswerBody::passed))
                }
            }
        };
        let mut response = answer.instrument(span.clone()).await?;
        span.record("http.response.status_code", response.status().as_u16());
        if takes_trailers && let Some(trailers) = response.body().held_trailers() {
            let trailers = trailers.clone();
            headers::announce_trailers(response.headers_mut(), &trailers);
        }
        if let Some(origin) = origin {
            snapshot.cors.finish(origin, &mut response);
        }
        Ok(response)
    }

    /// Refuses a request, with the configuration in force.
    pub(crate) fn refuse<B>(
        &self,
        problem: ProblemDetails<'_>,
        request: &Request<B>,
    ) -> Response<AnswerBody> {
        let snapshot = self.snapshots.load();
        let mut refused = respond(&problem, &snapshot.format).map(AnswerBody::passed);
        if let Some(origin) = Cors::origin(request) {
            snapshot.cors.finish(origin, &mut refused);
        }
        refused
    }

    /// The current stack, rebuilt after a reload. If that fails, the previous one stays.
    fn stack(&self) -> ServiceStack {
        let snapshot = self.snapshots.load();
        let mut current = self.current.lock();
        if !Arc::ptr_eq(&current.snapshot, &snapshot) {
            match ServiceStack::build(Arc::clone(&snapshot)) {
                Ok(stack) => *current = stack,
                Err(error) => tracing::error!(%error, "the new configuration is not served"),
            }
        }
        current.clone()
    }
}

impl ServiceStack {
    async fn walk(
        mut self,
        mut request: Request<Incoming>,
        mut peer: Peer,
        cut: &RunningRequest,
    ) -> Result<Response<AnswerBody>, Infallible> {
        if let Err(looped) = self.snapshot.loop_detector.check(request.headers()) {
            return Ok(respond(&looped, &self.snapshot.format).map(AnswerBody::passed));
        }
        peer.trusted = self.snapshot.config.scope.trusted_peers.contains(peer.host);
        self.snapshot.distrust(&mut request, &peer);
        if let Some(authorizer) = &self.authorizer
            && let Err(refused) = authorizer.check(&request).await
        {
            return Ok(refused.map(AnswerBody::passed));
        }
        if let Some(subject) = &peer.subject {
            request.extensions_mut().insert(ClientCertificate(subject.as_ref().into()));
        }
        request.extensions_mut().insert(peer);
        let regions = self.snapshot.regions.as_ref();
        if let Some(regions) = regions {
            regions.complete_status_path(request.uri_mut());
        }
        let limits = &self.snapshot.config.limits;
        let route = self.service.match_route(&request);
        match region::place(regions, &route, &request, &self.snapshot.format) {
            Placement::Here => {}
            Placement::Refused(refused) => return Ok(refused.map(AnswerBody::passed)),
            Placement::Elsewhere(elsewhere) => {
                cut.is_protected(); // its home recognises a retry by its key
                // The body streams, and is buffered there.
                let body = |body| TimeoutBody::request(body, limits.body_timeout.0, None);
                let request = request.map(|it| onceward_http::Body::passed(body(it)));
                let forwarded = self.forwarder.forward(elsewhere, request).await;
                return Ok(forwarded.map(AnswerBody::passed));
            }
        }
        let reserved = match route.request_max_bytes() {
            Some(bytes_max) => {
                match self.snapshot.body_budget.reserve(request.body(), bytes_max as u64) {
                    Ok(reserved) => Some(reserved),
                    Err(full) => {
                        return Ok(respond(&full, &self.snapshot.format).map(AnswerBody::passed));
                    }
                }
            }
            None => None,
        };
        if reserved.is_some() {
            cut.is_protected();
        }
        let total = reserved.as_ref().map(|_| limits.body_total.0);
        let pause = limits.body_timeout.0;
        let request = request.map(|body| TimeoutBody::request(body, pause, total));
        let answer = self.service.call_matched(request, route).await;
        drop(reserved); // the body is no longer in memory
        answer
    }

    fn build(snapshot: Arc<ConfigSnapshot>) -> Result<Self, TlsError> {
        let client = Client::new(&snapshot.config.upstream)?;
        let authorizer = snapshot.config.authorization.as_ref();
        let authorizer =
            authorizer.map(|settings| Authorizer::new(client.clone(), settings, &snapshot));
        let service = snapshot.layer.layer(Proxy::new(client, &snapshot));
        let forwarder = Arc::new(Forwarder::new(&snapshot)?);
        Ok(Self { snapshot, service, authorizer, forwarder })
    }
}
