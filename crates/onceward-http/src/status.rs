//! Status pages: what became of an operation, for the caller whose operation it is.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use onceward_core::{
    Content, Ended, OperationId, OperationStatus, Outcome, Replay, StateName, Timestamp,
};
use serde::Serialize;

use crate::body::Body;
use crate::coding::Accept;
use crate::layer::Shared;
use crate::problem::{Code, Problem, ProblemFormat, whole_seconds};
use crate::reply;
use crate::rules::ReplayRules;

/// A question about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    /// `None`: what is there in the path is no name of an operation.
    operation: Option<OperationId>,
    about: About,
}

/// What somebody wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Where it stands.
    State,
    /// The answer that its first request got.
    Result,
}

/// Where an operation stands, as its caller sees it.
#[derive(Serialize)]
struct Status<'a> {
    operation: OperationId,
    name: &'a str,
    state: &'static str,
    attempts: u32,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<serde_json::Value>,
}

/// The answer that its first request got.
#[derive(Serialize)]
struct Answer {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// Where it can be had whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    href: Option<String>,
}

impl Question {
    /// The question that a path asks, if it is about operations: `{prefix}/operations/{id}`,
    /// and `/result` after it.
    pub(crate) fn of(prefix: &str, path: &str) -> Option<Self> {
        let rest = path.strip_prefix(prefix)?.strip_prefix("/operations/")?;
        let (id, about) = match rest.strip_suffix("/result") {
            Some(id) => (id, About::Result),
            None => (rest, About::State),
        };
        Some(Self { operation: id.parse().ok(), about })
    }

    /// Answers it, to whom the operation belongs. Others are told the same as if it did not
    /// exist.
    pub(crate) async fn answer<R>(self, shared: &Shared, head: &Parts) -> Response<Body<R>> {
        let answer = match self.look(shared, head).await {
            Ok(operation) => match self.about {
                About::State => Ok(shared.status(&operation).map(Body::whole)),
                About::Result => shared.result(operation, &Accept::of(&head.headers)).await,
            },
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| refused(problem, &shared.format))
    }

    async fn look(self, shared: &Shared, head: &Parts) -> Result<OperationStatus, Problem> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Err(Problem::new(Code::OperationNotFound)
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .detail("Ask with GET."));
        }
        let nowhere = || Problem::new(Code::OperationNotFound);
        let id = self.operation.ok_or_else(nowhere)?;
        // Whoever does not say who they are learns nothing, not even this.
        let asking = shared.owners.resolve(head, "-")?;
        let found = shared.engine.operation(&id).await;
        let found = found.map_err(|error| {
            tracing::warn!(%error, "the store");
            Problem::new(Code::StoreUnavailable).retry_after(shared.engine.policy().retry_after())
        })?;
        let owner = |it: &OperationStatus| {
            (it.scope.tenant(), it.scope.caller()) == (asking.tenant(), asking.caller())
        };
        found.filter(owner).ok_or_else(nowhere)
    }
}

impl Shared {
    /// The refusal of a retry whose first attempt came to an end that is not known.
    pub(crate) fn outcome_unknown(&self, operation: OperationId) -> Problem {
        let problem = Problem::new(Code::OutcomeUnknown).operation(operation);
        match self.engine.has_recovery() {
            true => problem.being_resolved(self.engine.policy().retry_after()),
            false => problem,
        }
    }

    fn status(&self, operation: &OperationStatus) -> Response<Bytes> {
        let problem = (operation.standing == StateName::Unknown).then(|| {
            let problem = self.outcome_unknown(operation.id);
            serde_json::from_slice(problem.into_response(&self.format).body()).unwrap_or_default()
        });
        let status = Status {
            operation: operation.id,
            name: operation.scope.operation(),
            state: operation.standing.as_str(),
            attempts: operation.attempts,
            created_at: written(operation.created_at),
            updated_at: written(operation.updated_at),
            result: operation.outcome.as_ref().and_then(|it| self.summary(operation.id, it)),
            problem,
        };
        let body = serde_json::to_vec(&status).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if operation.standing == StateName::Running {
            headers.insert(RETRY_AFTER, whole_seconds(self.engine.policy().retry_after()));
        }
        response
    }

    fn summary(&self, operation: OperationId, outcome: &Outcome) -> Option<Answer> {
        let reply = reply::of(outcome)?;
        let location = reply.location();
        let location = location.and_then(|it| it.to_str().ok().map(str::to_owned));
        let can_be_had = match outcome.content {
            Content::Whole => true,
            Content::Reference => self.rebuild.is_some(),
            Content::Omitted => false,
        };
        let href = can_be_had.then(|| format!("{}/result", self.format.page(operation)));
        Some(Answer { status: reply.status.as_u16(), location, href })
    }

    /// The answer that the first request got, as every retry gets it.
    async fn result<R>(
        &self,
        operation: OperationStatus,
        accept: &Accept,
    ) -> Result<Response<Body<R>>, Problem> {
        let ended = match operation.standing {
            StateName::Completed => Ended::Completed,
            StateName::Failed => Ended::Failed,
            StateName::Running => {
                let wait = self.engine.policy().retry_after();
                let problem = Problem::new(Code::InProgress).operation(operation.id);
                return Err(problem.retry_after(wait));
            }
            StateName::Unknown => {
                return Err(self.outcome_unknown(operation.id));
            }
            StateName::Released | StateName::Expired => {
                return Err(Problem::new(Code::OperationNotFound));
            }
        };
        let outcome = operation.outcome.ok_or_else(|| Problem::new(Code::KeyExpired))?;
        let replay = Replay { operation: operation.id, ended, outcome };
        self.replay(replay, &ReplayRules::default(), accept).await
    }
}

fn refused<R>(problem: Problem, format: &ProblemFormat) -> Response<Body<R>> {
    let mut response = problem.into_response(format).map(Body::whole);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// A time as people and programs read it (RFC 3339).
fn written(at: Timestamp) -> String {
    let since = std::time::Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_operations_are_questions() {
        let id = "01935d2a-7c3b-7aaa-8bbb-0123456789ab";
        let asked = |path: &str| Question::of("/onceward", path);
        let known = asked(&format!("/onceward/operations/{id}")).unwrap();
        assert_eq!((known.operation.unwrap().to_string(), known.about), (id.into(), About::State));
        let result = asked(&format!("/onceward/operations/{id}/result")).unwrap();
        assert_eq!(result.about, About::Result);
        assert_eq!(asked("/onceward/operations/7").unwrap().operation, None);
        for path in ["/", "/onceward", "/onceward/operations", "/operations/7", "/x/onceward/"] {
            assert_eq!(asked(path), None, "{path}");
        }
    }
}
