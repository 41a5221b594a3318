//! Refusals of the gateway itself (RFC 9457).

use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use onceward_core::OperationId;
use onceward_http::{ProblemDetails, ProblemFormat};

use super::proxy::ResponseBody;

/// Why the upstream's answer is not there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) title: &'a str,
    pub(super) detail: &'a str,
    /// The same request can succeed later.
    pub(super) retryable: bool,
    /// It may be sent again under the same key.
    pub(super) same_key: bool,
    /// The operation that it is about.
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
