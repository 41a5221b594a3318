//! The gateway's own responses, and the table of their codes.

use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use onceward_http::{ProblemDetails, ProblemFormat};

use super::proxy::ResponseBody;

/// Error code of a response of the gateway itself. The codes of the protocol are
/// [`onceward_http::Code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatewayCode {
    /// No connection to the upstream; nothing was sent.
    UpstreamUnreachable,
    /// The request was sent, and no complete response came back.
    UpstreamUnanswered,
    /// The authorization service did not decide.
    AuthorizationUnavailable,
    /// The memory for bodies is in use.
    Busy,
    /// The drain time is over.
    Stopping,
    /// The request has passed this gateway before.
    Loop,
    /// The body of a request without a key did not arrive in time.
    TooSlow,
    /// The target or the host is ambiguous or invalid.
    InvalidTarget,
    /// CONNECT.
    MethodNotAllowed,
    /// The key belongs to another region, and requests are not forwarded.
    OtherRegion,
    /// The key names no region.
    NoRegion,
    /// The key names a region that is not configured.
    UnknownRegion,
    /// No connection to the key's home region; nothing was sent.
    HomeUnreachable,
    /// The request was forwarded to the key's home region, and no complete response came back.
    HomeUnanswered,
    /// Another gateway forwarded the request, and it does not belong here.
    RegionMisrouted,
}

impl GatewayCode {
    /// All codes, in the order of `docs/errors.md`.
    pub(crate) const ALL: [Self; 15] = [
        Self::UpstreamUnreachable,
        Self::UpstreamUnanswered,
        Self::AuthorizationUnavailable,
        Self::Busy,
        Self::Stopping,
        Self::Loop,
        Self::TooSlow,
        Self::InvalidTarget,
        Self::MethodNotAllowed,
        Self::OtherRegion,
        Self::NoRegion,
        Self::UnknownRegion,
        Self::HomeUnreachable,
        Self::HomeUnanswered,
        Self::RegionMisrouted,
    ];

    /// The refusal of a protected request, or of any request if the code does not depend on that.
    pub(crate) const fn details(self) -> ProblemDetails<'static> {
        match self {
            Self::UpstreamUnreachable => retry(ProblemDetails::new(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_UNREACHABLE",
                "The service did not answer",
                "The service behind the gateway could not be reached. The request was not sent to \
                 it.",
            )),
            Self::UpstreamUnanswered => same_key(ProblemDetails::new(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_UNANSWERED",
                "The service did not answer",
                "The request was sent to the service behind the gateway, and no complete response \
                 came back. It may have been executed.",
            )),
            Self::AuthorizationUnavailable => retry(ProblemDetails::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "AUTHORIZATION_UNAVAILABLE",
                "Authorization is unavailable",
                "Nothing was executed.",
            )),
            Self::Busy => retry(ProblemDetails::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "GATEWAY_BUSY",
                "The gateway is busy",
                "Too many large requests are being read. Nothing was executed; send it again with \
                 the same key.",
            )),
            Self::Stopping => retry(ProblemDetails::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "GATEWAY_STOPPING",
                "The gateway is stopping",
                "The gateway stopped before the service had answered. The operation may have been \
                 executed. Send the same request again with the same key to get its outcome.",
            )),
            Self::Loop => same_key(ProblemDetails::new(
                StatusCode::LOOP_DETECTED,
                "LOOP_DETECTED",
                "The request came back to the gateway",
                "An address that the gateway forwards to leads back to the gateway. The request was \
                 not forwarded again.",
            )),
            Self::TooSlow => ProblemDetails::new(
                StatusCode::REQUEST_TIMEOUT,
                "REQUEST_TOO_SLOW",
                "The request is too slow",
                "The request body did not arrive in time. The service may have received the \
                 beginning of it.",
            ),
            Self::InvalidTarget => same_key(ProblemDetails::new(
                StatusCode::BAD_REQUEST,
                "INVALID_TARGET",
                "The request target is invalid",
                "",
            )),
            Self::MethodNotAllowed => same_key(ProblemDetails::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                "Method not allowed",
                "CONNECT is not served.",
            )),
            // The details of the following name the regions, so each response has its own.
            Self::OtherRegion => same_key(ProblemDetails::new(
                StatusCode::MISDIRECTED_REQUEST,
                "IDEMPOTENCY_KEY_OF_ANOTHER_REGION",
                "The idempotency key belongs to another region",
                "",
            )),
            Self::NoRegion => ProblemDetails::new(
                StatusCode::BAD_REQUEST,
                "IDEMPOTENCY_KEY_WITHOUT_REGION",
                "The idempotency key names no region",
                "",
            ),
            Self::UnknownRegion => same_key(ProblemDetails::new(
                StatusCode::BAD_REQUEST,
                "IDEMPOTENCY_KEY_OF_UNKNOWN_REGION",
                "The idempotency key names an unknown region",
                "",
            )),
            Self::HomeUnreachable => retry(ProblemDetails::new(
                StatusCode::BAD_GATEWAY,
                "HOME_REGION_UNREACHABLE",
                "The home region of the idempotency key cannot be reached",
                "",
            )),
            Self::HomeUnanswered => retry(ProblemDetails::new(
                StatusCode::BAD_GATEWAY,
                "HOME_REGION_UNANSWERED",
                "The home region of the idempotency key did not answer",
                "",
            )),
            Self::RegionMisrouted => same_key(ProblemDetails::new(
                StatusCode::MISDIRECTED_REQUEST,
                "REGION_MISROUTED",
                "The request was forwarded to the wrong region",
                "",
            )),
        }
    }

    /// A second status that responses with this code can have.
    pub(crate) const fn other_status(self) -> Option<StatusCode> {
        match self {
            Self::UpstreamUnanswered | Self::HomeUnanswered => Some(StatusCode::GATEWAY_TIMEOUT),
            _ => None,
        }
    }
}

const fn same_key(problem: ProblemDetails<'static>) -> ProblemDetails<'static> {
    ProblemDetails { same_key: true, ..problem }
}

const fn retry(problem: ProblemDetails<'static>) -> ProblemDetails<'static> {
    ProblemDetails { retryable: true, same_key: true, ..problem }
}

/// Builds one of the gateway's own error responses (RFC 9457).
pub(super) fn respond(
    problem: &ProblemDetails<'_>,
    format: &ProblemFormat,
) -> Response<ResponseBody> {
    problem.response(format).map(|body| Either::Right(Full::new(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_explained_with_its_statuses() {
        let docs = include_str!("../../../../docs/errors.md");
        for code in GatewayCode::ALL {
            let details = code.details();
            let heading = format!("\n### `{}`\n\n", details.code);
            let section = docs.split(&heading).nth(1).unwrap_or_else(|| panic!("{code:?}"));
            let other = code.other_status().map(|status| format!(" or {}", status.as_u16()));
            let statuses = format!("{}{}.", details.status.as_u16(), other.unwrap_or_default());
            assert!(section.starts_with(&statuses), "{code:?} begins with {statuses}");
        }
    }
}
