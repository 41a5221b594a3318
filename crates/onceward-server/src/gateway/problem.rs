//! The gateway's own responses.

use http::Response;
use http_body_util::{Either, Full};
use onceward_http::{ProblemDetails, ProblemFormat};

use super::proxy::ResponseBody;

/// Builds one of the gateway's own error responses (RFC 9457).
pub(super) fn respond(
    problem: &ProblemDetails<'_>,
    format: &ProblemFormat,
) -> Response<ResponseBody> {
    problem.response(format).map(|body| Either::Right(Full::new(body)))
}
