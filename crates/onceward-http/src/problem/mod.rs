//! Refusals: RFC 9457 problem details with a code for programs.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Problem`], a refusal of the protocol |
//! | `code` | the table of codes: status, title, detail, retryable or not |
//! | `details` | the JSON body and the headers |

mod code;
mod details;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use onceward_core::OperationId;

pub use code::Code;
pub use details::{PROBLEM_DOCS, ProblemDetails, ProblemFormat, Refusal};

/// A refusal. Never contains a key or a payload.
#[derive(Debug, Clone)]
pub struct Problem(Box<Fields>);

#[derive(Debug, Clone)]
struct Fields {
    code: Code,
    status: StatusCode,
    detail: Cow<'static, str>,
    retryable: bool,
    operation: Option<OperationId>,
    retry_after: Option<Duration>,
    location: Option<HeaderValue>,
    original_status: Option<StatusCode>,
    differs: Vec<String>,
}

impl Problem {
    /// A refusal with the title and detail of its code.
    // Cold: keeps refusals out of the instruction cache of ordinary requests.
    #[cold]
    pub fn new(code: Code) -> Self {
        let row = code.row();
        Self(Box::new(Fields {
            code,
            status: row.status,
            detail: Cow::Borrowed(row.detail),
            retryable: row.retryable,
            operation: None,
            retry_after: None,
            location: None,
            original_status: None,
            differs: Vec::new(),
        }))
    }

    /// Sets the detail. It must not repeat what the client sent.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// A body of more than `bytes_max` bytes.
    pub(crate) fn request_too_large(bytes_max: usize) -> Self {
        Self::new(Code::RequestTooLarge).detail(format!(
            "This operation accepts bodies of at most {bytes_max} bytes, after decompression."
        ))
    }

    /// Sets another status: the code's second one, or the `mismatch_status` of the rules.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        let row = self.0.code.row();
        debug_assert!(
            self.0.code == Code::KeyReused
                || status == row.status
                || row.other_status == Some(status),
            "the table of codes has no status {status} for {}",
            row.code
        );
        self.0.status = status;
        self
    }

    /// Sets the operation.
    #[must_use]
    pub fn operation(mut self, operation: OperationId) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    /// Makes an unknown outcome retryable: a resolver is looking for evidence.
    #[must_use]
    pub fn being_resolved(mut self, delay: Duration) -> Self {
        self.0.retryable = true;
        self.retry_after(delay).detail(
            "Send the same request with the same key again, after the delay: the outcome is being \
             looked up. A new key could run the request a second time.",
        )
    }

    /// Sets status and `Location` of the first response, whose body was not stored.
    #[must_use]
    pub fn original(mut self, status: StatusCode, location: Option<HeaderValue>) -> Self {
        self.0.original_status = Some(status);
        self.0.location = location;
        self
    }

    /// Sets the parts in which the request differs from the first one.
    #[must_use]
    pub fn differs(mut self, parts: Vec<String>) -> Self {
        self.0.differs = parts;
        self
    }

    /// The error code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Builds the response.
    pub fn into_response(self, format: &ProblemFormat) -> Response<Bytes> {
        let row = self.0.code.row();
        let fields = self.0;
        let details = ProblemDetails {
            code: row.code,
            title: row.title,
            status: fields.status,
            detail: &fields.detail,
            retryable: fields.retryable,
            same_key: row.same_key,
            operation_id: fields.operation,
            original_status: fields.original_status,
            differs: &fields.differs,
            region: None,
        };
        let mut response = details.response(format);
        let headers = response.headers_mut();
        if let Some(location) = fields.location {
            headers.insert(header::LOCATION, location);
        }
        if let Some(delay) = fields.retry_after {
            headers.insert(header::RETRY_AFTER, whole_seconds(delay));
        }
        if fields.code == Code::InvalidCredentials {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Formats a delay in whole seconds, at least one: zero would ask for a storm of retries.
pub(crate) fn whole_seconds(delay: Duration) -> HeaderValue {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    seconds.max(1).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use std::collections::HashSet;

    #[test]
    fn every_code_has_its_own_type_and_status() {
        let (mut types, format) = (HashSet::new(), ProblemFormat::default());
        for code in Code::ALL {
            let response = Problem::new(code).detail("because").into_response(&format);
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["status"], response.status().as_u16());
            assert_eq!(body["code"], code.as_str());
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert!(response.headers()["link"].to_str().unwrap().ends_with("rel=\"describedby\""));
            assert!(types.insert(body["type"].clone()), "{code:?}");
        }
    }

    fn written(problem: Problem, format: &ProblemFormat) -> (HeaderMap, serde_json::Value) {
        let (head, body) = problem.into_response(format).into_parts();
        (head.headers, serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn an_unknown_outcome_keeps_its_key_and_is_retryable_only_while_it_is_resolved() {
        let format = ProblemFormat::default();
        let unknown = Problem::new(Code::OutcomeUnknown);
        let (headers, body) = written(unknown.clone(), &format);
        assert_eq!((&body["retryable"], &body["same_key"]), (&false.into(), &true.into()));
        assert!(!headers.contains_key("retry-after"));
        let (headers, body) = written(unknown.being_resolved(Duration::from_secs(2)), &format);
        assert_eq!((&body["retryable"], &body["same_key"]), (&true.into(), &true.into()));
        assert_eq!(headers["retry-after"], "2");
    }

    #[test]
    fn an_operation_is_the_instance() {
        let operation: OperationId = "01935d2a-7c3b-7aaa-8bbb-0123456789ab".parse().unwrap();
        let format = ProblemFormat { operations_at: "/ops".into(), ..ProblemFormat::default() };
        let (_, body) = written(Problem::new(Code::InProgress).operation(operation), &format);
        assert_eq!(body["instance"], format!("/ops/operations/{operation}"));
        let (_, body) = written(Problem::new(Code::MissingKey), &format);
        assert_eq!((body.get("instance"), body.get("error")), (None, None));
    }

    #[test]
    fn stripes_sdks_read_the_failure_and_whether_to_retry() {
        let format = ProblemFormat { stripe_errors: true, ..ProblemFormat::default() };
        for code in Code::ALL {
            let (headers, body) = written(Problem::new(code).detail("because"), &format);
            let retry = if code.is_retryable() { "true" } else { "false" };
            assert_eq!(headers["stripe-should-retry"], retry, "{code:?}");
            assert_eq!(body["error"]["code"], code.as_str());
            assert_eq!(body["error"]["message"], "because");
        }
        let (headers, _) = written(Problem::new(Code::InProgress), &ProblemFormat::default());
        assert!(!headers.contains_key("stripe-should-retry"));
    }

    #[test]
    fn delays_are_whole_seconds_and_never_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), "1");
        assert_eq!(whole_seconds(Duration::from_millis(1500)), "2");
        assert_eq!(whole_seconds(Duration::from_secs(3)), "3");
    }
}
