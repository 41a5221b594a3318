//! Shadow mode: a request passes unchanged, and a claim beside it finds the decision that protection
//! would have made.
//!
//! Neither the request nor its response ever waits for the claim.

use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onceward_core::{
    Begin, BeginError, Difference, Intent, Key, OnLapse, Outcome, Permit, Rejection, UnknownCause,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::state::MatchedOperation;
use crate::body::{Body, BodyTap, TapPermit, Tapped};
use crate::handler::fate;
use crate::observe::{DifferingPart, Event, ShadowDecision};
use crate::request::{key_in_body, key_in_headers};
use crate::response::TAG;
use crate::rules::{Fate, KeyFrom};

/// The region of every scope in shadow mode. Protected requests have none, so they never find a
/// record that was written here.
const REGION: &str = "onceward:shadow";

/// Lets a request pass, and starts its shadow claim.
pub(crate) fn shadow<B: HttpBody>(
    operation: MatchedOperation,
    request: Request<B>,
) -> (Request<Body<B>>, HandlerReport) {
    let (head, body) = request.into_parts();
    let claim = ShadowClaim { operation: operation.clone() };
    let (key, permit, runtime) = match claim.start(&head) {
        Ok(started) => started,
        Err(decision) => {
            claim.report(decision);
            let request = Request::from_parts(head, Body::passed(body));
            return (request, HandlerReport { operation, sender: None });
        }
    };
    let bytes_max = operation.protected().rules.request_max_bytes;
    let (tap, tapped) = BodyTap::new(bytes_max, body.size_hint().exact(), permit);
    let (report, ended) = HandlerReport::new(operation);
    runtime.spawn(claim.run(head.clone(), key, tapped, ended));
    (Request::from_parts(head, Body::tapped(body, tap)), report)
}

/// The end of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HandlerEnd {
    /// A response; with protection, its outcome would be stored, or the key released.
    Responded { keep: bool, failed: bool },
    /// A response that would leave the outcome unknown.
    Unknown(UnknownCause),
    /// An error or a panic.
    Crashed,
    /// The client disconnected. With protection, the handler would have gone on.
    Disconnected,
}

/// Reports the end of a handler to its shadow claim.
pub(crate) struct HandlerReport {
    operation: MatchedOperation,
    /// `None` without a claim.
    sender: Option<oneshot::Sender<HandlerEnd>>,
}

impl HandlerReport {
    fn new(operation: MatchedOperation) -> (Self, oneshot::Receiver<HandlerEnd>) {
        let (sender, receiver) = oneshot::channel();
        (Self { operation, sender: Some(sender) }, receiver)
    }

    pub(crate) fn ended<R, E>(&mut self, result: &Result<Response<R>, E>) {
        self.send(match result {
            Ok(response) => {
                let status = response.status();
                let failed = status.is_client_error() || status.is_server_error();
                let stated = fate(response, &self.operation.protected().rules.outcomes);
                match stated.fate {
                    Fate::Final | Fate::FinalHead => HandlerEnd::Responded { keep: true, failed },
                    Fate::NothingHappened => HandlerEnd::Responded { keep: false, failed },
                    Fate::Unknown => HandlerEnd::Unknown(stated.unknown_cause(response)),
                }
            }
            Err(_) => HandlerEnd::Crashed,
        });
    }

    fn send(&mut self, end: HandlerEnd) {
        if let Some(sender) = self.sender.take() {
            let _claim_may_have_ended = sender.send(end);
        }
    }
}

impl Drop for HandlerReport {
    fn drop(&mut self) {
        let crashed = std::thread::panicking();
        self.send(if crashed { HandlerEnd::Crashed } else { HandlerEnd::Disconnected });
    }
}

/// The claim beside one request.
struct ShadowClaim {
    operation: MatchedOperation,
}

/// A request whose body was copied.
struct ShadowRequest {
    intent: Intent,
    head: Parts,
    body: bytes::Bytes,
    /// Given back together with the body.
    _permit: TapPermit,
}

impl ShadowClaim {
    /// Returns what a claim needs; else the decision that the head alone leads to.
    fn start(&self, head: &Parts) -> Result<(Option<Key>, TapPermit, Handle), ShadowDecision> {
        let rules = &self.operation.protected().rules.key;
        let key = key_in_headers(&head.headers, rules).map_err(|_| ShadowDecision::InvalidKey)?;
        if key.is_none() && matches!(rules.from, KeyFrom::Header(_)) {
            return Err(ShadowDecision::MissingKey);
        }
        let permit = self.operation.state.tap_budget.enter().ok_or(ShadowDecision::Unseen)?;
        let runtime = Handle::try_current().map_err(|_| ShadowDecision::Unseen)?;
        Ok((key, permit, runtime))
    }

    async fn run(
        self,
        head: Parts,
        key: Option<Key>,
        tapped: oneshot::Receiver<Tapped>,
        ended: oneshot::Receiver<HandlerEnd>,
    ) {
        let request = match tapped.await {
            Ok(Tapped::Whole(body, permit)) => self.request(head, key, body, permit),
            Ok(Tapped::TooLarge) => Err(ShadowDecision::Refused),
            Ok(Tapped::Partial) | Err(_) => Err(ShadowDecision::Unseen),
        };
        let request = match request {
            Ok(request) => request,
            Err(decision) => return self.report(decision),
        };
        let decision = match self.operation.protected().engine.begin(&request.intent).await {
            Ok(Begin::Execute(permit)) => {
                drop(request); // gives the body back before the handler ends
                self.report(ShadowDecision::Execute);
                let end = ended.await.unwrap_or(HandlerEnd::Disconnected);
                return self.settle(permit, end).await;
            }
            Ok(Begin::Replay(_)) => ShadowDecision::Replay,
            Ok(Begin::Reject(Rejection::Running { .. })) => ShadowDecision::Conflict,
            Ok(Begin::Reject(Rejection::Unknown { .. })) => ShadowDecision::Unknown,
            Ok(Begin::Reject(Rejection::Expired)) => ShadowDecision::Expired,
            // No replay is checked in shadow mode.
            Ok(Begin::Reject(Rejection::Contradicted { .. })) => ShadowDecision::Replay,
            Ok(Begin::Reject(
                Rejection::Mismatch { difference } | Rejection::ReferenceTaken { difference, .. },
            )) => ShadowDecision::Mismatch(self.differing_part(&request, difference)),
            Err(BeginError::Draining) => ShadowDecision::Unseen,
            Err(_) => ShadowDecision::StoreDown,
        };
        self.report(decision);
    }

    fn request(
        &self,
        head: Parts,
        key: Option<Key>,
        body: bytes::Bytes,
        permit: TapPermit,
    ) -> Result<ShadowRequest, ShadowDecision> {
        let sources = &self.operation.state.scope_sources;
        let scope = sources.resolve(&head, self.operation.name());
        let scope = scope.map_err(|_| ShadowDecision::Refused)?;
        let scope = scope.with_region(REGION).map_err(|_| ShadowDecision::Refused)?;
        let key = match key {
            Some(key) => key,
            None => self.key_in_body(&head, &body)?,
        };
        let intent = self.operation.intent(&self.operation.view(&head, &body), scope, key);
        let intent = intent.map_err(|_| ShadowDecision::Refused)?;
        Ok(ShadowRequest { intent, head, body, _permit: permit })
    }

    fn key_in_body(&self, head: &Parts, body: &bytes::Bytes) -> Result<Key, ShadowDecision> {
        let body = self.operation.view(head, body).decoded_body();
        let body = body.map_err(|_| ShadowDecision::Refused)?;
        let key = key_in_body(&body, &self.operation.protected().rules.key);
        key.map_err(|_| ShadowDecision::InvalidKey)?.ok_or(ShadowDecision::MissingKey)
    }

    /// Logs all parts that differ, and returns the first for the metrics.
    fn differing_part(&self, request: &ShadowRequest, difference: Difference) -> DifferingPart {
        let view = self.operation.view(&request.head, &request.body);
        let differs = self.operation.protected().fingerprinter.explain(&view, difference);
        tracing::debug!(
            operation = self.operation.name(),
            ?differs,
            "shadow: the key belongs to another request"
        );
        DifferingPart::first_of(&differs)
    }

    async fn settle(&self, permit: Permit, end: HandlerEnd) {
        let empty = || Outcome::omitted(TAG, bytes::Bytes::new());
        let _may_be_lost_without_harm = match end {
            HandlerEnd::Responded { keep: true, failed: true } => permit.fail(empty()).await,
            HandlerEnd::Responded { keep: true, failed: false } | HandlerEnd::Disconnected => {
                permit.complete(empty()).await
            }
            HandlerEnd::Responded { keep: false, .. } => permit.release().await,
            HandlerEnd::Unknown(cause) => permit.unknown(cause).await,
            HandlerEnd::Crashed => match self.operation.protected().engine.policy().on_lapse() {
                OnLapse::Takeover => return drop(permit),
                OnLapse::Unknown | OnLapse::Resolve => permit.unknown(UnknownCause::Panicked).await,
            },
        };
    }

    fn report(&self, decision: ShadowDecision) {
        let operation = self.operation.name();
        tracing::debug!(operation, decision = decision.name(), "shadow");
        if let Some(observer) = &self.operation.state.observer {
            observer.observe(operation, Event::Shadow(decision));
        }
    }
}
