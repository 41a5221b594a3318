//! The gateway's own error responses (RFC 9457).

use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use onceward_core::OperationId;
use onceward_http::{ProblemDetails, ProblemFormat};

use super::proxy::ResponseBody;

/// A response of the gateway itself: [`ProblemDetails`] without the members that only the protocol
/// sets, so that most of these responses are constants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) title: &'a str,
    pub(super) detail: &'a str,
    /// True if the same request can succeed later.
    pub(super) retryable: bool,
    /// True if it may be sent again with the same key.
    pub(super) same_key: bool,
    /// The id of the operation.
    pub(super) operation: Option<OperationId>,
}

impl Problem<'_> {
    pub(super) fn response(self, format: &ProblemFormat) -> Response<ResponseBody> {
        let Self { status, code, title, detail, retryable, same_key, operation } = self;
        let details = ProblemDetails {
            code,
            title,
            status,
            detail,
            retryable,
            same_key,
            operation,
            original_status: None,
            differs: &[],
        };
        details.response(format).map(|body| Either::Right(Full::new(body)))
    }
}
