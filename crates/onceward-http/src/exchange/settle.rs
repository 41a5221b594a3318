//! The end of an execution: classifying, storing and settling the handler's result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::{Request, Response, response};
use http_body::Body as HttpBody;
use onceward_core::{
    BoxError, Disposition, Ended, ErrorCode, OnLapse, OperationId, Outcome, Settled, UnknownCause,
};
use tower_service::Service;

use super::Exchange;
use super::admission::Usage;
use super::is_timeout;
use super::permit_kind::{Completion, RunPermit, WithoutOutcome};
use crate::body::{Body, Buffered, Whole, buffer};
use crate::handler::{Sensitive, take_disposition, unknown_cause};
use crate::observe::Event;
use crate::problem::{Code, Problem};
use crate::response::{TAG, encode, encode_head, error_code_of};
use crate::rules::CompletionLost;

impl Exchange {
    /// Returns the response if it is to be stored, by the handler's own word or by the rules.
    pub(super) fn to_store<R, E>(
        &self,
        handled: Handled<R, E>,
    ) -> Result<Response<R>, NotStored<R, E>> {
        let mut response = match handled {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(NotStored::Error(error)),
            Err(_panic) => return Err(NotStored::Panic),
        };
        let by_rule = |status| self.rules().outcomes.disposition(status);
        let stated = take_disposition(&mut response);
        match stated.unwrap_or_else(|| by_rule(response.status())) {
            Disposition::Keep => Ok(response),
            Disposition::Release => Err(NotStored::Response(WithoutOutcome::Release, response)),
            Disposition::Unknown => {
                let cause = Box::new(unknown_cause(&response, stated.is_some()));
                Err(NotStored::Response(WithoutOutcome::Unknown(cause), response))
            }
        }
    }

    /// Settles a result that is not stored, and answers.
    pub(super) async fn settle<R, E>(
        &self,
        permit: RunPermit,
        not_stored: NotStored<R, E>,
    ) -> Result<Response<Body<R>>, E> {
        match not_stored {
            // If the settlement is lost, the lease lapses and the outcome is unknown.
            NotStored::Response(word, response) => {
                self.settle_without_outcome(permit, word).boxed().await;
                Ok(response.map(Body::passed))
            }
            NotStored::Error(error) => {
                self.abandon(permit, UnknownCause::Error).boxed().await;
                Err(error)
            }
            NotStored::Panic => {
                tracing::error!(operation = %permit.operation(), "the handler panicked");
                let problem = self.abandon(permit, UnknownCause::Panicked).boxed().await;
                Ok(self.refuse(problem))
            }
        }
    }

    /// Stores a response, and returns it as soon as it is stored.
    pub(super) fn store<R>(
        &self,
        permit: RunPermit,
        response: Response<R>,
        usage: Option<Usage>,
    ) -> impl Future<Output = Response<Body<R>>>
    where
        R: HttpBody<Data = Bytes> + Unpin,
        R::Error: Into<BoxError>,
    {
        let (head, body) = response.into_parts();
        async move {
            let rules = self.rules();
            let limit = if is_endless(&head) { 0 } else { rules.response_max_bytes };
            let (outcome, body) = match buffer(body, limit).await {
                Buffered::Whole(whole) => (self.outcome(&head, &whole), whole.into_body()),
                Buffered::TooLarge { read, rest } => {
                    let summary = Outcome::omitted(TAG, encode_head(&head, rules));
                    (summary.with_status(head.status.as_u16()), Body::resumed(read, rest))
                }
                Buffered::Broken(error) => {
                    tracing::warn!(%error, "a response broke off");
                    let late = is_timeout(&*error);
                    let cause = if late { UnknownCause::Timeout } else { UnknownCause::Cut };
                    return self.refuse(self.abandon(permit, cause).boxed().await);
                }
            };
            if let Some(usage) = usage {
                usage.stored(outcome.bytes.len());
            }
            let operation = permit.operation();
            let failed = head.status.is_client_error() || head.status.is_server_error();
            let ended = if failed { Ended::Failed } else { Ended::Completed };
            match self.refusal_after(permit.complete(ended, outcome).await, operation) {
                Some(problem) => self.refuse(problem),
                None => Response::from_parts(head, body),
            }
        }
    }

    /// Returns the refusal that the client gets instead of the response, if it could not be stored.
    fn refusal_after(&self, completion: Completion, operation: OperationId) -> Option<Problem> {
        match completion {
            Completion::Settled(settled) => {
                self.report(Event::Settled(Disposition::Keep, settled));
                self.lost_completion(settled, operation)
            }
            #[cfg(feature = "postgres")]
            Completion::RolledBack => {
                self.report(Event::Settled(Disposition::Release, Settled::Durable));
                Some(self.rolled_back())
            }
            #[cfg(feature = "postgres")]
            Completion::Unknown => {
                self.report(Event::Settled(Disposition::Unknown, Settled::Pending));
                Some(self.not_known(operation))
            }
        }
    }

    /// Settles a handler that panicked or failed without a response, and returns the refusal: the
    /// lease is left as if it had lapsed, a transaction is rolled back.
    async fn abandon(&self, permit: RunPermit, cause: UnknownCause) -> Problem {
        let unknown = self.state().outcome_unknown(permit.operation());
        match (permit, self.policy().on_lapse()) {
            (RunPermit::Leased(permit), OnLapse::Takeover) => {
                drop(permit);
                unknown
            }
            (permit, _) => {
                let word = WithoutOutcome::Unknown(Box::new(cause));
                match self.settle_without_outcome(permit, word).await {
                    Disposition::Release => Problem::new(Code::RolledBack),
                    Disposition::Keep | Disposition::Unknown => unknown,
                }
            }
        }
    }

    /// Settles a permit without an outcome, and returns the disposition in force. If not even
    /// *unknown* can be stored, the lease lapses with the same result.
    async fn settle_without_outcome(&self, permit: RunPermit, word: WithoutOutcome) -> Disposition {
        let (disposition, settled) = permit.end_without_outcome(word).await;
        self.report(Event::Settled(disposition, settled));
        disposition
    }

    /// The refusal of a request whose transaction could not be committed.
    #[cfg(feature = "postgres")]
    fn rolled_back(&self) -> Problem {
        Problem::new(Code::RolledBack)
            .status(http::StatusCode::SERVICE_UNAVAILABLE)
            .retry_after(self.policy().retry_after())
    }

    fn outcome(&self, head: &response::Parts, whole: &Whole) -> Outcome {
        let (rules, stated) = (self.rules(), head.extensions.get::<ErrorCode>());
        let (outcome, error_code) = match head.extensions.get::<Sensitive>() {
            None => {
                let found = || error_code_of(head, &whole.bytes);
                let outcome = Outcome::whole(TAG, encode(head, whole, rules));
                (outcome, stated.cloned().or_else(found))
            }
            Some(Sensitive(resource)) => {
                let outcome = Outcome::reference(TAG, encode_head(head, rules));
                (outcome.with_resource(&resource.kind, &resource.id), stated.cloned())
            }
        };
        outcome.with_status(head.status.as_u16()).with_error_code(error_code)
    }

    /// Returns the refusal for a response whose settlement is not durable, if it must not be given.
    fn lost_completion(&self, settled: Settled, operation: OperationId) -> Option<Problem> {
        let policy = self.policy();
        let respond = self.rules().completion_lost == CompletionLost::Respond;
        match settled {
            Settled::Durable => None,
            // Not final with takeovers: the next owner may have another outcome.
            Settled::Pending if respond && policy.on_lapse() != OnLapse::Takeover => None,
            Settled::Missing if respond => None,
            Settled::Pending | Settled::Missing => Some(self.not_known(operation)),
            // Another owner's outcome is in force; the retry gets it.
            Settled::Superseded => Some(
                Problem::new(Code::InProgress)
                    .operation(operation)
                    .retry_after(policy.retry_after()),
            ),
        }
    }

    /// The refusal for a response of which it is not known whether it is stored.
    fn not_known(&self, operation: OperationId) -> Problem {
        self.state().outcome_unknown(operation).status(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The result of a handler that is not stored.
pub(super) enum NotStored<R, E> {
    /// A response that is not the outcome.
    Response(WithoutOutcome, Response<R>),
    /// The handler failed without a response.
    Error(E),
    Panic,
}

/// The result of a handler; the outer error is a panic.
pub(super) type Handled<R, E> = thread::Result<Result<Response<R>, E>>;

/// Runs a handler to its end, or until it panics.
pub(super) fn handle<S, B, R>(
    mut inner: S,
    request: Request<Body<B>>,
) -> impl Future<Output = Handled<R, S::Error>>
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
{
    match catch_unwind(AssertUnwindSafe(|| inner.call(request))) {
        Ok(handling) => Either::Left(AssertUnwindSafe(handling).catch_unwind()),
        Err(panic) => Either::Right(ready(Err(panic))),
    }
}

/// Returns true for a response that ends only when its client disconnects. Its stream goes to the first
/// caller and is not stored.
fn is_endless(head: &response::Parts) -> bool {
    let kind = head.headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
        || head.status == http::StatusCode::SWITCHING_PROTOCOLS
}
