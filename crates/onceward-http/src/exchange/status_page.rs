//! Status pages of operations, for the callers that they belong to.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use onceward_core::{
    Begin, Content, Ended, OperationId, OperationStatus, Outcome, Replay, StateName, Timestamp,
};
use serde::Serialize;

use super::refusal::outcome_unknown;
use super::state::LayerState;
use crate::body::{Accept, Body};
use crate::problem::{Code, Problem, ProblemFormat, whole_seconds};
use crate::response::{replay, stored_reply};
use crate::rules::ReplayRules;

/// A request for the status page of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusRequest {
    /// `None` if the path contains no operation id.
    operation: Option<OperationId>,
    page: Page,
}

/// The pages of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    /// Its state.
    Status,
    /// The response to its first request.
    Result,
}

/// JSON body of a status page.
#[derive(Serialize)]
struct Status<'a> {
    operation_id: OperationId,
    operation: &'a str,
    state: &'static str,
    attempts: u32,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ResultSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<serde_json::Value>,
}

/// Summary of the response to the first request.
#[derive(Serialize)]
struct ResultSummary {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// Path of the whole response.
    #[serde(skip_serializing_if = "Option::is_none")]
    href: Option<String>,
}

impl StatusRequest {
    /// Parses a path, `{prefix}/operations/{id}` or `{prefix}/operations/{id}/result`; `None` for
    /// others.
    pub(crate) fn of(prefix: &str, path: &str) -> Option<Self> {
        let rest = path.strip_prefix(prefix)?.strip_prefix("/operations/")?;
        let (id, page) = match rest.strip_suffix("/result") {
            Some(id) => (id, Page::Result),
            None => (rest, Page::Status),
        };
        Some(Self { operation: id.parse().ok(), page })
    }

    /// Answers the owner of the operation. To other callers it does not exist.
    pub(crate) async fn answer<R>(self, state: &LayerState, head: &Parts) -> Response<Body<R>> {
        let answer = match self.find(state, head).await {
            Ok(operation) => match self.page {
                Page::Status => Ok(state.status(&operation).map(Body::whole)),
                Page::Result => state.result(operation, &Accept::of(&head.headers)).await,
            },
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| refused(problem, &state.format))
    }

    async fn find(self, state: &LayerState, head: &Parts) -> Result<OperationStatus, Problem> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Err(Problem::new(Code::OperationNotFound)
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .detail("Send a GET request."));
        }
        let not_found = || Problem::new(Code::OperationNotFound);
        let id = self.operation.ok_or_else(not_found)?;
        // Before the lookup: a caller without credentials learns nothing.
        let caller = state.scope_sources.resolve(head, "-")?;
        let found = state.engine.operation(&id).await;
        let found = found.map_err(|error| {
            tracing::warn!(%error, "the store failed");
            Problem::new(Code::StoreUnavailable).retry_after(state.engine.policy().retry_after())
        })?;
        let is_owner = |it: &OperationStatus| {
            (it.scope.tenant(), it.scope.caller()) == (caller.tenant(), caller.caller())
        };
        found.filter(is_owner).ok_or_else(not_found)
    }
}

impl LayerState {
    fn status(&self, operation: &OperationStatus) -> Response<Bytes> {
        let engine = self.engine_of(operation.scope.operation());
        let problem = (operation.standing == StateName::Unknown).then(|| {
            let problem = outcome_unknown(engine, operation.id);
            serde_json::from_slice(problem.into_response(&self.format).body()).unwrap_or_default()
        });
        let status = Status {
            operation_id: operation.id,
            operation: operation.scope.operation(),
            state: operation.standing.as_str(),
            attempts: operation.attempts,
            created_at: rfc3339(operation.created_at),
            updated_at: rfc3339(operation.updated_at),
            result: operation.outcome.as_ref().and_then(|it| self.summary(operation.id, it)),
            problem,
        };
        let body = serde_json::to_vec(&status).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if operation.standing == StateName::Running {
            headers.insert(RETRY_AFTER, whole_seconds(engine.policy().retry_after()));
        }
        response
    }

    fn summary(&self, operation: OperationId, outcome: &Outcome) -> Option<ResultSummary> {
        let reply = stored_reply(outcome)?;
        let location = reply.location();
        let location = location.and_then(|it| it.to_str().ok().map(str::to_owned));
        let is_stored = match outcome.content {
            Content::Whole => true,
            Content::Reference => self.rebuild.is_some(),
            Content::Omitted => false,
        };
        let href = is_stored.then(|| format!("{}/result", self.format.page(operation)));
        Some(ResultSummary { status: reply.status.as_u16(), location, href })
    }

    /// Returns the response to the first request, as every retry gets it.
    async fn result<R>(
        &self,
        operation: OperationStatus,
        accept: &Accept,
    ) -> Result<Response<Body<R>>, Problem> {
        let engine = self.engine_of(operation.scope.operation());
        let ended = match operation.standing {
            StateName::Completed => Ended::Completed,
            StateName::Failed => Ended::Failed,
            StateName::Running => {
                let problem = Problem::new(Code::InProgress).operation(operation.id);
                return Err(problem.retry_after(engine.policy().retry_after()));
            }
            StateName::Unknown => {
                return Err(outcome_unknown(engine, operation.id));
            }
            StateName::Released | StateName::Expired => {
                return Err(Problem::new(Code::OperationNotFound));
            }
        };
        let outcome = operation.outcome.ok_or_else(|| Problem::new(Code::KeyExpired))?;
        let stored = Replay { operation: operation.id, ended, outcome };
        let problem = |code| Problem::new(code).operation(operation.id);
        match engine.check_replay(stored).await {
            Ok(Begin::Replay(stored)) => {
                replay(stored, &ReplayRules::default(), accept, self.rebuild.as_ref()).await
            }
            Ok(Begin::Reject(_) | Begin::Execute(_)) => Err(problem(Code::OutcomeContradicted)),
            Err(_) => {
                let wait = engine.policy().retry_after();
                Err(problem(Code::OutcomeUnconfirmed).retry_after(wait))
            }
        }
    }
}

fn refused<R>(problem: Problem, format: &ProblemFormat) -> Response<Body<R>> {
    let mut response = problem.into_response(format).map(Body::whole);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Formats a time by RFC 3339.
fn rfc3339(at: Timestamp) -> String {
    let since = std::time::Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_operations_are_status_requests() {
        let id = "01935d2a-7c3b-7aaa-8bbb-0123456789ab";
        let parsed = |path: &str| StatusRequest::of("/onceward", path);
        let known = parsed(&format!("/onceward/operations/{id}")).unwrap();
        assert_eq!((known.operation.unwrap().to_string(), known.page), (id.into(), Page::Status));
        let result = parsed(&format!("/onceward/operations/{id}/result")).unwrap();
        assert_eq!(result.page, Page::Result);
        assert_eq!(parsed("/onceward/operations/7").unwrap().operation, None);
        for path in ["/", "/onceward", "/onceward/operations", "/operations/7", "/x/onceward/"] {
            assert_eq!(parsed(path), None, "{path}");
        }
    }
}
