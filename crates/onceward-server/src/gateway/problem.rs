//! Answers of the gateway's own (RFC 9457).

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};

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
}

impl Problem<'_> {
    pub(super) fn response(self) -> Response<ResponseBody> {
        let body = serde_json::json!({
            "type": format!("{}#{}", onceward_http::PROBLEM_DOCS, self.code.to_lowercase()),
            "title": self.title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
            "retryable": self.retryable,
            "same_key": self.same_key,
        });
        let mut response = Response::new(Either::Right(Full::from(body.to_string())));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
