//! Requests that got no response of their destination, and whether they were sent.

use http::uri::Authority;
use http::{Response, StatusCode};
use onceward_core::{OperationId, UnknownCause};
use onceward_http::{Code, Fate, ProblemDetails, ProblemFormat};

use super::problem::{GatewayCode, respond};
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
            Self::TooSlow => return respond(&GatewayCode::TooSlow.details(), format),
            Self::Broken => return respond(&BROKEN, format),
            Self::NotSent => {
                (GatewayCode::UpstreamUnreachable.details(), Fate::NothingHappened, None)
            }
            Self::Cut => {
                let cut = GatewayCode::UpstreamUnanswered.details();
                (cut, Fate::Unknown, Some(UnknownCause::Cut))
            }
            Self::Late => (late(), Fate::Unknown, Some(UnknownCause::Timeout)),
            Self::SwitchedProtocols => {
                let status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
                (switched(), Fate::Unknown, Some(UnknownCause::Status(status)))
            }
        };
        // A request that may have been executed must be retried with the same key; one that was not
        // sent may be.
        let same_key = problem.retryable || operation.is_some();
        let problem = ProblemDetails { same_key, operation_id: operation, ..problem };
        let mut response = respond(&problem, format);
        response.extensions_mut().insert(fate);
        if let Some(cause) = cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

const BROKEN: ProblemDetails<'static> = ProblemDetails::new(
    Code::InvalidBody.status(),
    Code::InvalidBody.as_str(),
    Code::InvalidBody.title(),
    "The request body ended early, or its chunks are malformed. The service may have received \
             the beginning of it.",
);

fn late() -> ProblemDetails<'static> {
    ProblemDetails {
        status: StatusCode::GATEWAY_TIMEOUT,
        detail: "The service behind the gateway did not answer in time. The request may have been \
                 executed.",
        ..GatewayCode::UpstreamUnanswered.details()
    }
}

fn switched() -> ProblemDetails<'static> {
    ProblemDetails {
        detail: "The upstream switched protocols without an upgrade request.",
        ..GatewayCode::UpstreamUnanswered.details()
    }
}
