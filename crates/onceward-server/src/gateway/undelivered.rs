//! Requests that got no response of their destination, and whether they were sent.

use http::uri::Authority;
use http::{Response, StatusCode};
use onceward_core::{OperationId, UnknownCause};
use onceward_http::{Fate, ProblemDetails, ProblemFormat};

use super::problem::respond;
use super::proxy::ResponseBody;
use super::request_target;
use crate::net::{BrokenRequest, SendError, Sent, TooSlow};

/// Why a request got no response of its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undelivered {
    /// Its target does not fit the destination. It was not sent.
    InvalidTarget(String),
    /// There was no connection. It was not sent.
    NotSent,
    /// The client's body was too slow. Only bodies of requests that the layer does not buffer stream.
    TooSlow,
    /// The client's body was incomplete, or its chunks are malformed.
    Broken,
    /// It was sent, and the connection broke before the response.
    Cut,
    /// It was sent, and there was no response in time.
    Late,
    /// It was sent, and the destination switched protocols without being asked.
    SwitchedProtocols,
}

impl Undelivered {
    pub(super) fn of(failed: &SendError, destination: &Authority) -> Self {
        if failed.is_caused_by::<TooSlow>() {
            return Self::TooSlow;
        }
        if failed.is_caused_by::<BrokenRequest>() {
            return Self::Broken;
        }
        tracing::warn!(upstream = %destination, error = %failed, "the upstream did not answer");
        match failed.sent {
            Sent::No => Self::NotSent,
            Sent::Maybe => Self::Cut,
        }
    }

    /// The gateway's response instead of the upstream's. `operation` is that of a protected request.
    pub(super) fn response(
        self,
        operation: Option<OperationId>,
        format: &ProblemFormat,
    ) -> Response<ResponseBody> {
        let (problem, fate, cause) = match self {
            Self::InvalidTarget(why) => {
                let mut refused = respond(&request_target::invalid_target(&why), format);
                refused.extensions_mut().insert(Fate::NothingHappened);
                return refused;
            }
            Self::TooSlow => return respond(&TOO_SLOW, format),
            Self::Broken => return respond(&BROKEN, format),
            Self::NotSent => (NOT_SENT, Fate::NothingHappened, None),
            Self::Cut => (CUT, Fate::Unknown, Some(UnknownCause::Cut)),
            Self::Late => (LATE, Fate::Unknown, Some(UnknownCause::Timeout)),
            Self::SwitchedProtocols => {
                let status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
                (SWITCHED, Fate::Unknown, Some(UnknownCause::Status(status)))
            }
        };
        // A request that may have been executed must be retried with the same key; one that was not
        // sent may be.
        let same_key = problem.same_key || operation.is_some();
        let problem = ProblemDetails { same_key, operation_id: operation, ..problem };
        let mut response = respond(&problem, format);
        response.extensions_mut().insert(fate);
        if let Some(cause) = cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

const TOO_SLOW: ProblemDetails<'static> = ProblemDetails::new(
    StatusCode::REQUEST_TIMEOUT,
    "REQUEST_TOO_SLOW",
    "The request is too slow",
    "The request body did not arrive in time. The service may have received the beginning of it.",
);

const BROKEN: ProblemDetails<'static> = ProblemDetails::new(
    StatusCode::BAD_REQUEST,
    "INVALID_REQUEST_BODY",
    "The request body did not arrive whole",
    "The request body ended early, or its chunks are malformed. The service may have received \
             the beginning of it.",
);

const NOT_SENT: ProblemDetails<'static> = ProblemDetails {
    retryable: true,
    same_key: true,
    ..ProblemDetails::new(
        StatusCode::BAD_GATEWAY,
        "UPSTREAM_UNREACHABLE",
        NO_ANSWER,
        "The service behind the gateway could not be reached. The request was not sent to it.",
    )
};

const CUT: ProblemDetails<'static> = unanswered(
    StatusCode::BAD_GATEWAY,
    "The request was sent to the service behind the gateway, and no complete response came back. \
     It may have been executed.",
);

const LATE: ProblemDetails<'static> = unanswered(
    StatusCode::GATEWAY_TIMEOUT,
    "The service behind the gateway did not answer in time. The request may have been executed.",
);

const SWITCHED: ProblemDetails<'static> = unanswered(
    StatusCode::BAD_GATEWAY,
    "The upstream switched protocols without an upgrade request.",
);

const NO_ANSWER: &str = "The service did not answer";

const fn unanswered(status: StatusCode, detail: &'static str) -> ProblemDetails<'static> {
    ProblemDetails::new(status, "UPSTREAM_UNANSWERED", NO_ANSWER, detail)
}
