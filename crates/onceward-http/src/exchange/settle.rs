//! The end of an execution: classifying, storing and settling the handler's result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::{Request, Response, StatusCode, response};
use http_body::Body as HttpBody;
use onceward_core::{
    BoxError, Disposition, Ended, LeaseLost, OnLapse, OperationId, Outcome, Settled, log_operation,
};
use tower_service::Service;

use super::Exchange;
use super::admission::Usage;
use super::permit_kind::{Completion, RunPermit, WithoutOutcome};
use super::refusal::is_timeout;
use crate::body::{Body, Buffered, Whole, buffer};
use crate::handler::{Sensitive, take_disposition};
use crate::observe::{Event, LoggedIntent, UnknownReason, log};
use crate::problem::{Code, Problem};
use crate::response::{TAG, encode, encode_head};
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
        let status = response.status();
        let (disposition, reason) = match take_disposition(&mut response) {
            Some(stated) => (stated, UnknownReason::stated(status)),
            None => (self.rules().outcomes.disposition(status), UnknownReason::Status),
        };
        match disposition {
            Disposition::Keep => Ok(response),
            Disposition::Release => {
                Err(NotStored::Response(WithoutOutcome::Release, reason, response))
            }
            Disposition::Unknown => {
                Err(NotStored::Response(WithoutOutcome::Unknown, reason, response))
            }
        }
    }

    /// Settles a result that is not stored, and answers.
    pub(super) async fn settle<R, E>(
        &self,
        permit: RunPermit,
        not_stored: NotStored<R, E>,
        logged: LoggedIntent,
    ) -> Result<Response<Body<R>>, E> {
        match not_stored {
            // If the settlement is lost, the lease lapses and the outcome is unknown.
            NotStored::Response(word, reason, response) => {
                let cause = Cause { reason, status: Some(response.status()), error: None };
                self.settle_without_outcome(permit, word, &logged, cause).boxed().await;
                Ok(response.map(Body::passed))
            }
            NotStored::Error(error) => {
                let cause = Cause::of(UnknownReason::HandlerError);
                self.abandon(permit, &logged, cause).boxed().await;
                Err(error)
            }
            NotStored::Panic => {
                let cause = Cause::of(UnknownReason::Panic);
                Ok(self.refuse(self.abandon(permit, &logged, cause).boxed().await))
            }
        }
    }

    /// Stores a response, and returns it as soon as it is stored.
    pub(super) fn store<R>(
        &self,
        permit: RunPermit,
        response: Response<R>,
        usage: Option<Usage>,
        logged: LoggedIntent,
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
                    let summary = encode_head(&head, rules);
                    (Outcome::omitted(TAG, summary), Body::resumed(read, rest))
                }
                Buffered::Broken(error) => {
                    let reason = match is_timeout(&*error) {
                        true => UnknownReason::Timeout,
                        false => UnknownReason::ResponseCut,
                    };
                    let cause = Cause { reason, status: Some(head.status), error: Some(error) };
                    return self.refuse(self.abandon(permit, &logged, cause).boxed().await);
                }
            };
            if let Some(usage) = usage {
                usage.stored(outcome.bytes.len());
            }
            let operation = permit.operation();
            let failed = head.status.is_client_error() || head.status.is_server_error();
            let ended = if failed { Ended::Failed } else { Ended::Completed };
            match self.refusal_after(permit.complete(ended, outcome).await, operation, &logged) {
                Some(problem) => self.refuse(problem),
                None => Response::from_parts(head, body),
            }
        }
    }

    /// Returns the refusal that the client gets instead of the response, if it could not be stored.
    fn refusal_after(
        &self,
        completion: Completion,
        operation: OperationId,
        logged: &LoggedIntent,
    ) -> Option<Problem> {
        _ = logged; // used with feature `postgres` only
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
                let cause = Cause::of(UnknownReason::Commit);
                self.log_ended(logged, operation, Disposition::Unknown, &cause);
                Some(self.not_known(operation))
            }
        }
    }

    /// Settles a handler that panicked or failed without a response, and returns the refusal: the
    /// lease is left as if it had lapsed, a transaction is rolled back.
    async fn abandon(&self, permit: RunPermit, logged: &LoggedIntent, cause: Cause) -> Problem {
        let unknown = self.state().outcome_unknown(permit.operation());
        match (permit, self.policy().on_lapse()) {
            (RunPermit::Leased(permit), OnLapse::Takeover) => {
                self.log_takeover(logged, permit.operation(), &cause);
                drop(permit);
                unknown
            }
            (permit, _) => {
                let word = WithoutOutcome::Unknown;
                match self.settle_without_outcome(permit, word, logged, cause).await {
                    Disposition::Release => Problem::new(Code::RolledBack),
                    Disposition::Keep | Disposition::Unknown => unknown,
                }
            }
        }
    }

    /// Settles a permit without an outcome, and returns the disposition in force. If not even
    /// *unknown* can be stored, the lease lapses with the same result.
    async fn settle_without_outcome(
        &self,
        permit: RunPermit,
        word: WithoutOutcome,
        logged: &LoggedIntent,
        cause: Cause,
    ) -> Disposition {
        let operation = permit.operation();
        let drained = permit.grant().check() == Err(LeaseLost::Drained);
        let (disposition, settled) = permit.end_without_outcome(word).await;
        self.report(Event::Settled(disposition, settled));
        // A drain has logged those that it cut off, and the engine those that are stale.
        if !drained && matches!(settled, Settled::Durable | Settled::Pending) {
            self.log_ended(logged, operation, disposition, &cause);
        }
        disposition
    }

    /// Logs an end without an outcome. Releases by the handler's word are routine.
    #[cold]
    fn log_ended(
        &self,
        logged: &LoggedIntent,
        operation: OperationId,
        disposition: Disposition,
        cause: &Cause,
    ) {
        let Cause { reason, status, error } = cause;
        let (reason, status) = (reason.name(), status.map(|it| it.as_u16()));
        let error = error.as_deref().map(|error| error as &dyn std::error::Error);
        let limits = &self.protected().log_limits;
        let subject = || logged.subject(self.protected().engine.identity()).operation_id(operation);
        match disposition {
            Disposition::Unknown => {
                if let Some(occurrences) = limits.unknown.occurred() {
                    log_operation!(WARN, subject(), {
                        state = "unknown", reason, status, error, occurrences,
                    }, "the outcome is unknown");
                }
            }
            Disposition::Release if cause.is_failure() => {
                if let Some(occurrences) = limits.unknown.occurred() {
                    log_operation!(WARN, subject(), {
                        state = "released", reason, status, error, occurrences,
                    }, "the transaction was rolled back");
                }
            }
            Disposition::Release | Disposition::Keep if log::debug_enabled() => {
                log_operation!(DEBUG, subject(), { state = "released", reason, status, },
                    "nothing happened");
            }
            Disposition::Release | Disposition::Keep => {}
        }
    }

    /// Logs that an execution has failed, and the next retry takes over.
    #[cold]
    fn log_takeover(&self, logged: &LoggedIntent, operation: OperationId, cause: &Cause) {
        if let Some(occurrences) = self.protected().log_limits.unknown.occurred() {
            let identity = self.protected().engine.identity();
            let error = cause.error.as_deref().map(|error| error as &dyn std::error::Error);
            let reason = cause.reason.name();
            log_operation!(WARN, logged.subject(identity).operation_id(operation), {
                reason, error, occurrences,
            }, "the execution failed; a retry takes over when the lease lapses");
        }
    }

    /// The refusal of a request whose transaction could not be committed.
    #[cfg(feature = "postgres")]
    fn rolled_back(&self) -> Problem {
        Problem::new(Code::RolledBack)
            .status(http::StatusCode::SERVICE_UNAVAILABLE)
            .retry_after(self.policy().retry_after())
    }

    fn outcome(&self, head: &response::Parts, whole: &Whole) -> Outcome {
        let rules = self.rules();
        match head.extensions.get::<Sensitive>() {
            None => Outcome::whole(TAG, encode(head, whole, rules)),
            Some(Sensitive(resource)) => Outcome::reference(TAG, encode_head(head, rules))
                .with_resource(&resource.kind, &resource.id),
        }
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

/// Cause of an end without an outcome.
pub(super) struct Cause {
    reason: UnknownReason,
    status: Option<StatusCode>,
    error: Option<BoxError>,
}

impl Cause {
    fn of(reason: UnknownReason) -> Self {
        Self { reason, status: None, error: None }
    }

    /// True if the handler did not end with a response.
    fn is_failure(&self) -> bool {
        !matches!(self.reason, UnknownReason::Status | UnknownReason::Stated)
            && (self.status.is_none() || self.error.is_some())
    }
}

/// The result of a handler that is not stored.
pub(super) enum NotStored<R, E> {
    /// A response that is not the outcome.
    Response(WithoutOutcome, UnknownReason, Response<R>),
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
