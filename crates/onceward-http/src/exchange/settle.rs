//! The end of an execution: classifying, storing and settling the handler's result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::{Request, Response, StatusCode, response};
use http_body::Body as HttpBody;
use onceward_core::{
    BoxError, Disposition, Ended, ErrorCode, LeaseLost, OnLapse, OperationId, Outcome, Settled,
    UnknownCause, log_operation,
};
use tower_service::Service;

use super::Exchange;
use super::admission::Usage;
use super::permit_kind::{Completion, RunPermit, WithoutOutcome};
use super::refusal::is_timeout;
use crate::body::{Body, Buffered, Whole, buffer};
use crate::handler::{Sensitive, take_fate};
use crate::observe::{Event, LoggedIntent, log};
use crate::problem::{Code, Problem};
use crate::response::{TAG, encode_head, stored_outcome};
use crate::rules::{CompletionLost, Fate, ResponseBody};

impl Exchange {
    /// Returns the response if it is to be stored, by the handler's own word or by the rules. One
    /// that is stored without its body has its fate as an extension.
    pub(super) fn to_store<R, E>(
        &self,
        handled: Handled<R, E>,
    ) -> Result<Response<R>, NotStored<R, E>> {
        let mut response = match handled {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(NotStored::Error(error)),
            Err(_panic) => return Err(NotStored::Panic),
        };
        let stated = take_fate(&mut response, &self.rules().outcomes);
        match stated.fate {
            Fate::Final => Ok(response),
            Fate::FinalHead => {
                response.extensions_mut().insert(Fate::FinalHead);
                Ok(response)
            }
            Fate::NothingHappened => Err(NotStored::Response(WithoutOutcome::Release, response)),
            Fate::Unknown => {
                let cause = Box::new(stated.unknown_cause(&response));
                let word = WithoutOutcome::Unknown(cause);
                Err(NotStored::Response(word, response))
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
            NotStored::Response(word, response) => {
                let ended = LoggedEnd::response(&word, response.status());
                self.settle_without_outcome(permit, word, &logged, ended).boxed().await;
                Ok(response.map(Body::passed))
            }
            NotStored::Error(error) => {
                self.abandon(permit, UnknownCause::Error, &logged, None).boxed().await;
                Err(error)
            }
            NotStored::Panic => {
                let abandoned = self.abandon(permit, UnknownCause::Panicked, &logged, None);
                Ok(self.refuse(abandoned.boxed().await))
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
                    let summary = Outcome::omitted(TAG, encode_head(&head, rules));
                    (summary.with_status(head.status.as_u16()), Body::resumed(read, rest))
                }
                Buffered::Broken(error) => {
                    let late = is_timeout(&*error);
                    let cause = if late { UnknownCause::Timeout } else { UnknownCause::Cut };
                    let abandoned = self.abandon(permit, cause, &logged, Some(error));
                    return self.refuse(abandoned.boxed().await);
                }
            };
            let operation = permit.operation();
            let failed = head.status.is_client_error() || head.status.is_server_error();
            let ended = if failed { Ended::Failed } else { Ended::Completed };
            let completed = permit.complete(ended, counted(usage, outcome)).await;
            match self.refusal_after(completed, operation, &logged) {
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
                let word = WithoutOutcome::Unknown(Box::new(UnknownCause::CommitUnclear));
                let ended = LoggedEnd::failure(&word, None);
                self.log_ended(logged, operation, Disposition::Unknown, &ended);
                Some(self.not_known(operation))
            }
        }
    }

    /// Settles a handler that panicked or failed without a response, and returns the refusal: the
    /// lease is left as if it had lapsed, a transaction is rolled back.
    async fn abandon(
        &self,
        permit: RunPermit,
        cause: UnknownCause,
        logged: &LoggedIntent,
        error: Option<BoxError>,
    ) -> Problem {
        let unknown = self.outcome_unknown(permit.operation());
        match (permit, self.policy().on_lapse()) {
            (RunPermit::Leased(permit), OnLapse::Takeover) => {
                self.log_takeover(logged, permit.operation(), &cause, error.as_ref());
                drop(permit);
                unknown
            }
            (permit, _) => {
                let word = WithoutOutcome::Unknown(Box::new(cause));
                let ended = LoggedEnd::failure(&word, error);
                match self.settle_without_outcome(permit, word, logged, ended).await {
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
        ended: LoggedEnd,
    ) -> Disposition {
        let operation = permit.operation();
        let drained = permit.grant().check() == Err(LeaseLost::Drained);
        let (disposition, settled) = permit.end_without_outcome(word).await;
        self.report(Event::Settled(disposition, settled));
        // A drain has logged those that it cut off, and the engine those that are stale.
        if !drained && matches!(settled, Settled::Durable | Settled::Pending) {
            self.log_ended(logged, operation, disposition, &ended);
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
        ended: &LoggedEnd,
    ) {
        let LoggedEnd { reason, status, error } = ended;
        let status = status.map(|it| it.as_u16());
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
            Disposition::Release if ended.is_failure() => {
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
    fn log_takeover(
        &self,
        logged: &LoggedIntent,
        operation: OperationId,
        cause: &UnknownCause,
        error: Option<&BoxError>,
    ) {
        if let Some(occurrences) = self.protected().log_limits.unknown.occurred() {
            let identity = self.protected().engine.identity();
            let error = error.map(|error| &**error as &dyn std::error::Error);
            let reason = cause.name();
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
        let body = match head.extensions.get() {
            Some(Fate::FinalHead) => ResponseBody::Omit,
            _ => rules.response_body,
        };
        let outcome = match head.extensions.get::<Sensitive>() {
            None => stored_outcome(head, whole, rules, body),
            Some(Sensitive(resource)) => {
                let outcome = Outcome::reference(TAG, encode_head(head, rules));
                let outcome = outcome.with_status(head.status.as_u16());
                outcome.with_resource(&resource.kind, &resource.id)
            }
        };
        match head.extensions.get::<ErrorCode>() {
            Some(stated) => outcome.with_error_code(Some(stated.clone())),
            None => outcome,
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
        self.outcome_unknown(operation).status(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The details of an end without an outcome, for its log line.
struct LoggedEnd {
    reason: Option<&'static str>,
    status: Option<StatusCode>,
    error: Option<BoxError>,
}

impl LoggedEnd {
    fn response(word: &WithoutOutcome, status: StatusCode) -> Self {
        Self { reason: word.cause_name(), status: Some(status), error: None }
    }

    fn failure(word: &WithoutOutcome, error: Option<BoxError>) -> Self {
        Self { reason: word.cause_name(), status: None, error }
    }

    /// True if the handler did not end with a response.
    fn is_failure(&self) -> bool {
        self.status.is_none()
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

/// Counts what is stored of a caller, and returns it. A reference to the outcome would keep its place
/// in the request's future.
fn counted(usage: Option<Usage>, outcome: Outcome) -> Outcome {
    if let Some(usage) = usage {
        usage.stored(outcome.bytes.len());
    }
    outcome
}
