//! Refusals: the engine's decisions as responses.

use std::error::Error;
use std::io;

use http::Response;
use onceward_core::{
    BeginError, Engine, Intent, OperationId, Rejection, StoreError, StoreErrorKind,
};

use super::Exchange;
use crate::body::Body;
use crate::observe::{Event, LoggedIntent, log};
use crate::problem::{Code, Problem, whole_seconds};
use crate::request::{CREDENTIAL_HEADERS, RequestView};
use crate::rules::{InProgress, StoreDown};

impl Exchange {
    /// Refuses a request by the engine's decision.
    #[cold]
    pub(super) fn reject<R>(
        &self,
        rejection: Rejection,
        intent: &Intent,
        request: &RequestView<'_>,
    ) -> Response<Body<R>> {
        let (rules, fingerprinter) = (self.rules(), &self.protected().fingerprinter);
        self.refuse(match rejection {
            Rejection::Mismatch { difference } if fingerprinter.other_credentials(difference) => {
                let parts = ["credentials".to_owned()];
                self.log_mismatch(intent, ("other_credentials", None), &parts);
                other_credentials(request)
            }
            Rejection::Mismatch { difference } => {
                let differs = fingerprinter.explain(request, difference);
                self.log_mismatch(intent, ("mismatch", None), &differs);
                Problem::new(Code::KeyReused).status(rules.mismatch_status).differs(differs)
            }
            Rejection::ReferenceTaken { operation, difference } => {
                let differs = fingerprinter.explain(request, difference);
                self.log_mismatch(intent, ("reference_taken", operation), &differs);
                let problem = Problem::new(Code::ReferenceTaken).differs(differs);
                operation.into_iter().fold(problem, Problem::operation)
            }
            Rejection::Running { operation, retry_after } => {
                let problem = Problem::new(Code::InProgress).retry_after(retry_after);
                if operation.as_uuid().is_nil() {
                    // Running in a transaction, so no status page can show it.
                    problem
                } else if rules.in_progress == InProgress::Accepted {
                    return self.accepted(operation);
                } else {
                    problem.operation(operation)
                }
            }
            Rejection::Unknown { operation } => self.outcome_unknown(operation),
            Rejection::Contradicted { operation } => {
                Problem::new(Code::OutcomeContradicted).operation(operation)
            }
            Rejection::Expired => Problem::new(Code::KeyExpired),
        })
    }

    fn log_mismatch(
        &self,
        intent: &Intent,
        reason: (&'static str, Option<OperationId>),
        differs: &[String],
    ) {
        if let Some(occurrences) = self.protected().log_limits.refused.occurred() {
            log::mismatch(&LoggedIntent::of(intent), self.identity(), reason, differs, occurrences);
        }
    }

    /// The refusal of a request whose first attempt has an unknown outcome.
    pub(super) fn outcome_unknown(&self, operation: OperationId) -> Problem {
        outcome_unknown(&self.protected().engine, operation)
    }

    /// The response 202 with the `Location` of the status page.
    fn accepted<R>(&self, operation: OperationId) -> Response<Body<R>> {
        let retry_after = self.policy().retry_after();
        let body = serde_json::json!({ "operation_id": operation, "state": "running" }).to_string();
        let location = self.state().format.page(operation);
        let response = Response::builder()
            .status(http::StatusCode::ACCEPTED)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::RETRY_AFTER, whole_seconds(retry_after))
            .header(http::header::LOCATION, location);
        response
            .body(Body::whole(body))
            .unwrap_or_else(|_| self.refuse(Problem::new(Code::InProgress)))
    }

    /// Returns true if the request runs unprotected because the store is down, and reports it.
    pub(super) fn runs_unprotected(&self, error: &StoreError) -> bool {
        let open = self.rules().store_down == StoreDown::Open;
        if open {
            self.report(Event::Unprotected);
            tracing::warn!(%error, operation = self.operation.name(), "UNSAFE: running unprotected");
        }
        open
    }

    /// Refuses a request because of an error of the engine.
    #[cold]
    pub(super) fn unavailable<R>(&self, error: &BeginError) -> Response<Body<R>> {
        let full = matches!(error, BeginError::Unavailable(it) if it.kind == StoreErrorKind::Full);
        let problem = match error {
            BeginError::Rebuild { operation, .. } => {
                Problem::new(Code::NotReplayable).operation(*operation)
            }
            BeginError::Unconfirmed { operation } => {
                Problem::new(Code::OutcomeUnconfirmed).operation(*operation)
            }
            _ if full => Problem::new(Code::StoreFull),
            _ => Problem::new(Code::StoreUnavailable),
        };
        // The engine has logged why a replay is not confirmed.
        if !matches!(error, BeginError::Unconfirmed { .. }) {
            tracing::warn!(error = error as &dyn std::error::Error, "not executed");
        }
        self.refuse(problem.retry_after(self.policy().retry_after()))
    }

    /// Answers with a refusal.
    #[cold]
    pub(super) fn refuse<R>(&self, problem: Problem) -> Response<Body<R>> {
        problem.into_response(&self.state().format).map(Body::whole)
    }
}

/// The refusal of a request whose first attempt has an unknown outcome.
pub(super) fn outcome_unknown(engine: &Engine, operation: OperationId) -> Problem {
    let problem = Problem::new(Code::OutcomeUnknown).operation(operation);
    match engine.has_recovery() {
        true => problem.being_resolved(engine.policy().retry_after()),
        false => problem,
    }
}

/// The refusal of a retry with other credentials than the first request's: 401 if it has none.
fn other_credentials(request: &RequestView<'_>) -> Problem {
    let has_any = CREDENTIAL_HEADERS.iter().any(|name| request.headers.contains_key(*name));
    let problem = Problem::new(Code::OtherCredentials);
    if has_any { problem } else { problem.status(http::StatusCode::UNAUTHORIZED) }
}

/// Returns true if a body broke off because of a timeout.
pub(super) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let timed_out = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    timed_out || error.source().is_some_and(is_timeout)
}
