//! Every refusal, once: RFC 9457 problem details with a code a program can act on.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use onceward_core::OperationId;
use serde::{Serialize, Serializer};

/// Where the codes are explained, each under its own anchor.
pub const PROBLEM_DOCS: &str = "https://github.com/onceward/onceward/blob/main/docs/errors.md";

/// What a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The operation requires a key and the request has none.
    MissingKey,
    /// The header is not a key.
    InvalidKey,
    /// It cannot be told whose data it is about.
    InvalidTenant,
    /// It cannot be told who is asking.
    InvalidCaller,
    /// The credentials are missing or do not hold.
    InvalidCredentials,
    /// The request's body did not arrive whole.
    InvalidBody,
    /// The key belongs to another request.
    KeyReused,
    /// The key was used with other credentials.
    OtherCredentials,
    /// The business reference is not one.
    InvalidReference,
    /// The business reference belongs to another request.
    ReferenceTaken,
    /// The first attempt is still running.
    InProgress,
    /// Nobody can prove what happened.
    OutcomeUnknown,
    /// The key is past its retention.
    KeyExpired,
    /// It was done, and its response was not kept.
    NotReplayable,
    /// Too many keys.
    QuotaExceeded,
    /// The store cannot be asked; nothing was executed.
    StoreUnavailable,
    /// The store has no room for new keys; nothing was executed.
    StoreFull,
    /// It failed, and everything it had done was rolled back.
    RolledBack,
    /// The body is larger than allowed.
    RequestTooLarge,
    /// There is no such operation for this caller.
    OperationNotFound,
}

/// One row of the table.
struct Row {
    code: &'static str,
    status: StatusCode,
    title: &'static str,
    detail: &'static str,
    retryable: bool,
    same_key: bool,
}

const fn row(code: &'static str, status: StatusCode, title: &'static str) -> Row {
    Row { code, status, title, detail: "", retryable: false, same_key: false }
}

impl Row {
    const fn detail(self, detail: &'static str) -> Self {
        Self { detail, ..self }
    }

    /// The client may send the same request again, under the same key.
    const fn retry(self) -> Self {
        Self { retryable: true, same_key: true, ..self }
    }

    /// The same key is safe, and a new one is not: it could run the request a second time.
    const fn same_key(self) -> Self {
        Self { same_key: true, ..self }
    }
}

impl Code {
    /// All codes, in the order of the protocol's table.
    pub const ALL: [Code; 20] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::InvalidTenant,
        Self::InvalidCaller,
        Self::InvalidCredentials,
        Self::InvalidBody,
        Self::KeyReused,
        Self::OtherCredentials,
        Self::InvalidReference,
        Self::ReferenceTaken,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::KeyExpired,
        Self::NotReplayable,
        Self::QuotaExceeded,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::RolledBack,
        Self::RequestTooLarge,
        Self::OperationNotFound,
    ];

    /// The code as programs see it.
    pub const fn as_str(self) -> &'static str {
        self.row().code
    }

    /// The status that goes with it, where no switch changes that.
    pub const fn status(self) -> StatusCode {
        self.row().status
    }

    /// What it is about, in words.
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// What to do about it, where that is always the same.
    pub const fn detail(self) -> &'static str {
        self.row().detail
    }

    /// Whether sending the same request again, under the same key, can help.
    pub const fn is_retryable(self) -> bool {
        self.row().retryable
    }

    const fn row(self) -> Row {
        match self {
            Self::MissingKey => row(
                "MISSING_IDEMPOTENCY_KEY",
                StatusCode::BAD_REQUEST,
                "This operation requires an idempotency key",
            )
            .detail("Send a unique value, such as a UUID, and the same one with every retry."),
            Self::InvalidKey => row(
                "INVALID_IDEMPOTENCY_KEY",
                StatusCode::BAD_REQUEST,
                "The idempotency key is not valid",
            ),
            Self::InvalidTenant => {
                row("INVALID_TENANT", StatusCode::BAD_REQUEST, "The tenant is missing or not valid")
            }
            Self::InvalidCaller => {
                row("INVALID_CALLER", StatusCode::BAD_REQUEST, "The caller is missing or not valid")
            }
            Self::InvalidCredentials => row(
                "INVALID_CREDENTIALS",
                StatusCode::UNAUTHORIZED,
                "The credentials are missing or not valid",
            ),
            Self::InvalidBody => row(
                "INVALID_REQUEST_BODY",
                StatusCode::BAD_REQUEST,
                "The request body did not arrive whole",
            )
            .detail("Nothing was executed. Send the request again with the same key.")
            .retry(),
            Self::KeyReused => row(
                "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The idempotency key was used for a different request",
            )
            .detail("A new request needs a new key; a retry must repeat the request unchanged."),
            Self::OtherCredentials => row(
                "IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS",
                StatusCode::FORBIDDEN,
                "The idempotency key was used with other credentials",
            )
            .detail(
                "Nothing was executed. Retry with the credentials of the first request; a new key \
                 would run it a second time. Where credentials change between attempts, the \
                 service has to name its callers in another way (scope.caller).",
            )
            .same_key(),
            Self::InvalidReference => row(
                "INVALID_BUSINESS_REFERENCE",
                StatusCode::BAD_REQUEST,
                "The business reference is not valid",
            ),
            Self::ReferenceTaken => row(
                "BUSINESS_REFERENCE_TAKEN",
                StatusCode::CONFLICT,
                "The business reference belongs to another request",
            )
            .detail("It will not be executed again. Look at the operation that it belongs to."),
            Self::InProgress => row(
                "IDEMPOTENCY_REQUEST_IN_PROGRESS",
                StatusCode::CONFLICT,
                "A request with this idempotency key is in progress",
            )
            .detail("Send the same request with the same key again, after the delay.")
            .retry(),
            Self::OutcomeUnknown => row(
                "IDEMPOTENCY_OUTCOME_UNKNOWN",
                StatusCode::CONFLICT,
                "It is not known whether the operation took place",
            )
            .detail(
                "Keep this key: the same request with it never runs a second time, and one with a \
                 new key could. Look at the operation, or look its resource up.",
            )
            .same_key(),
            Self::KeyExpired => row(
                "IDEMPOTENCY_KEY_EXPIRED",
                StatusCode::CONFLICT,
                "The idempotency key has expired",
            )
            .detail("Look the resource up first; if it is not there, send a new key."),
            Self::NotReplayable => row(
                "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE",
                StatusCode::CONFLICT,
                "The operation was done, and its response was not kept",
            )
            .detail("It will not be executed again. Look the resource up."),
            Self::QuotaExceeded => row(
                "IDEMPOTENCY_QUOTA_EXCEEDED",
                StatusCode::TOO_MANY_REQUESTS,
                "There are too many idempotency keys",
            )
            .detail("Nothing was executed. Send the same request again, after the delay.")
            .retry(),
            Self::StoreUnavailable => row(
                "IDEMPOTENCY_STORE_UNAVAILABLE",
                StatusCode::SERVICE_UNAVAILABLE,
                "Idempotency cannot be guaranteed at the moment",
            )
            .detail("Nothing was executed. Send the same request with the same key again.")
            .retry(),
            Self::StoreFull => row(
                "IDEMPOTENCY_STORE_FULL",
                StatusCode::SERVICE_UNAVAILABLE,
                "There is no room for new idempotency keys",
            )
            .detail("Nothing was executed. Send the same request with the same key again.")
            .retry(),
            Self::RolledBack => row(
                "IDEMPOTENCY_ROLLED_BACK",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The operation failed and was rolled back",
            )
            .detail("Nothing has changed. Send the same request with the same key again.")
            .retry(),
            Self::RequestTooLarge => row(
                "REQUEST_TOO_LARGE",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The request body is too large",
            ),
            Self::OperationNotFound => {
                row("OPERATION_NOT_FOUND", StatusCode::NOT_FOUND, "There is no such operation")
                    .detail("It was never begun, it is forgotten, or it is somebody else's.")
            }
        }
    }
}

/// How refusals are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemFormat {
    /// Where the codes are explained ([`PROBLEM_DOCS`]).
    pub docs: String,
    /// The path under which operations have their status pages (`/onceward`).
    pub operations_at: String,
    /// Adds what Stripe's SDKs read (no): a member `error` with type, code and message, without
    /// which stripe-node takes a refusal for a success, and the header `Stripe-Should-Retry`.
    pub stripe_error: bool,
}

impl Default for ProblemFormat {
    fn default() -> Self {
        let (docs, operations_at) = (PROBLEM_DOCS.to_owned(), "/onceward".to_owned());
        Self { docs, operations_at, stripe_error: false }
    }
}

impl ProblemFormat {
    /// The path of an operation's status page.
    pub(crate) fn page(&self, operation: OperationId) -> String {
        format!("{}/operations/{operation}", self.operations_at)
    }
}

/// A refusal as it is written: the members of RFC 9457, and what a program acts on. Servers
/// around the layer write their own refusals by it, so that all look alike.
#[derive(Debug, Clone, Serialize)]
pub struct ProblemDetails<'a> {
    /// The code as programs see it.
    pub code: &'a str,
    /// A summary.
    pub title: &'a str,
    /// The HTTP status.
    #[serde(serialize_with = "as_number")]
    pub status: StatusCode,
    /// What is wrong, and what to do.
    pub detail: &'a str,
    /// Whether the same request can succeed later.
    pub retryable: bool,
    /// Whether the client may send it again with the same key.
    pub same_key: bool,
    /// The operation that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// The status of the first response, which is not stored.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_number")]
    pub original_status: Option<StatusCode>,
    /// The parts in which the request differs from the first one.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub differs: &'a [String],
}

fn as_number<S: Serializer>(status: &StatusCode, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u16(status.as_u16())
}

fn as_optional_number<S: Serializer>(
    status: &Option<StatusCode>,
    out: S,
) -> Result<S::Ok, S::Error> {
    status.map(|status| status.as_u16()).serialize(out)
}

/// The whole body of a refusal.
#[derive(Serialize)]
struct Written<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    details: &'a ProblemDetails<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<StripeError<'a>>,
}

/// A refusal as Stripe's SDKs read it.
#[derive(Serialize)]
struct StripeError<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
    doc_url: &'a str,
}

/// Marks a response as a refusal of Onceward, as an extension: servers around the layer tell it
/// from a response of the service by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal;

const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

impl ProblemDetails<'_> {
    /// The response.
    pub fn response(&self, format: &ProblemFormat) -> Response<Bytes> {
        let address = format!("{}#{}", format.docs, self.code.to_ascii_lowercase());
        let body = Written {
            r#type: &address,
            details: self,
            instance: self.operation.map(|operation| format.page(operation)),
            error: format.stripe_error.then(|| self.stripe_error(&address)),
        };
        let mut response = Response::new(serde_json::to_vec(&body).unwrap_or_default().into());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Refusal);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(link) = HeaderValue::try_from(format!("<{address}>; rel=\"describedby\"")) {
            headers.insert(header::LINK, link);
        }
        if format.stripe_error {
            let retry = if self.retryable { "true" } else { "false" };
            headers.insert(STRIPE_SHOULD_RETRY, HeaderValue::from_static(retry));
        }
        response
    }

    /// `idempotency_error` is what Stripe says of a key that was used for another request.
    fn stripe_error<'a>(&'a self, doc_url: &'a str) -> StripeError<'a> {
        let r#type = match self.status {
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => "idempotency_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "api_error",
        };
        let message = if self.detail.is_empty() { self.title } else { self.detail };
        StripeError { r#type, code: self.code, message, doc_url }
    }
}

/// One refusal on its way to the client. Never holds a key or a payload.
#[derive(Debug, Clone)]
pub struct Problem(Box<Told>);

#[derive(Debug, Clone)]
struct Told {
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
    /// The refusal with the words of the table.
    // Cold: whatever leads here is laid out beside the way that nearly all requests take.
    #[cold]
    pub fn new(code: Code) -> Self {
        let row = code.row();
        Self(Box::new(Told {
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

    /// Says what exactly is wrong. Must not repeat what the client sent.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Answers with another status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// Names the operation.
    #[must_use]
    pub fn operation(mut self, operation: OperationId) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Says when to come again.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    /// Says that the same request can succeed later, by the same key, though the code alone does
    /// not promise it: a resolver is asking what happened.
    #[must_use]
    pub fn being_resolved(mut self, delay: Duration) -> Self {
        self.0.retryable = true;
        self.retry_after(delay).detail(
            "Send the same request with the same key again, after the delay: it is being found \
             out what happened. A new key could run the request a second time.",
        )
    }

    /// Says what the first response was, which is not kept.
    #[must_use]
    pub fn original(mut self, status: StatusCode, location: Option<HeaderValue>) -> Self {
        self.0.original_status = Some(status);
        self.0.location = location;
        self
    }

    /// Names the parts in which the request differs from the first one.
    #[must_use]
    pub fn differs(mut self, parts: Vec<String>) -> Self {
        self.0.differs = parts;
        self
    }

    /// What it is about.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The response.
    pub fn into_response(self, format: &ProblemFormat) -> Response<Bytes> {
        let row = self.0.code.row();
        let told = self.0;
        let details = ProblemDetails {
            code: row.code,
            title: row.title,
            status: told.status,
            detail: &told.detail,
            retryable: told.retryable,
            same_key: row.same_key,
            operation: told.operation,
            original_status: told.original_status,
            differs: &told.differs,
        };
        let mut response = details.response(format);
        let headers = response.headers_mut();
        if let Some(location) = told.location {
            headers.insert(header::LOCATION, location);
        }
        if let Some(delay) = told.retry_after {
            headers.insert(header::RETRY_AFTER, whole_seconds(delay));
        }
        if told.code == Code::InvalidCredentials {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A delay in whole seconds, at least one: zero would ask for a storm of retries.
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
    fn every_code_has_its_own_type_and_tells_its_status() {
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
    fn an_unknown_outcome_asks_for_the_same_key_and_for_patience_only_where_it_helps() {
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
    fn stripes_sdks_are_told_that_it_failed_and_whether_to_retry() {
        let format = ProblemFormat { stripe_error: true, ..ProblemFormat::default() };
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
