//! Every refusal, once: RFC 9457 problem details with a code a program can act on.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use onceward_core::OperationId;
use serde::Serialize;

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
}

impl Code {
    /// All codes, in the order of the protocol's table.
    pub const ALL: [Code; 19] = [
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
            ),
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
            .detail("Look at the operation or its resource before you do anything again."),
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

/// One refusal on its way to the client. Never holds a key or a payload.
#[derive(Debug, Clone)]
pub struct Problem(Box<Told>);

#[derive(Debug, Clone)]
struct Told {
    code: Code,
    status: StatusCode,
    detail: Cow<'static, str>,
    operation: Option<OperationId>,
    retry_after: Option<Duration>,
    location: Option<HeaderValue>,
    original_status: Option<StatusCode>,
    differs: Vec<String>,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
    retryable: bool,
    same_key: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<OperationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_status: Option<u16>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    differs: &'a [String],
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

    /// The response, explained at `docs`.
    pub fn into_response(self, docs: &str) -> Response<Bytes> {
        let row = self.0.code.row();
        let address = format!("{docs}#{}", row.code.to_ascii_lowercase());
        let link = format!("<{address}>; rel=\"describedby\"");
        let body = ProblemBody {
            r#type: address,
            title: row.title,
            status: self.0.status.as_u16(),
            code: row.code,
            detail: &self.0.detail,
            retryable: row.retryable,
            same_key: row.same_key,
            operation: self.0.operation,
            original_status: self.0.original_status.map(|status| status.as_u16()),
            differs: &self.0.differs,
        };
        let mut response = Response::new(serde_json::to_vec(&body).unwrap_or_default().into());
        *response.status_mut() = self.0.status;
        let mut set = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        };
        let fixed = |text| Some(HeaderValue::from_static(text));
        set(header::CONTENT_TYPE, fixed("application/problem+json"));
        set(header::CACHE_CONTROL, fixed("no-store"));
        set(header::LINK, HeaderValue::from_str(&link).ok());
        set(header::LOCATION, self.0.location);
        set(header::RETRY_AFTER, self.0.retry_after.map(whole_seconds));
        if self.0.code == Code::InvalidCredentials {
            set(header::WWW_AUTHENTICATE, fixed("Bearer"));
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
    use std::collections::HashSet;

    #[test]
    fn every_code_has_its_own_type_and_tells_its_status() {
        let mut types = HashSet::new();
        for code in Code::ALL {
            let response = Problem::new(code).detail("because").into_response("https://docs");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["status"], response.status().as_u16());
            assert_eq!(body["code"], code.as_str());
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert!(response.headers()["link"].to_str().unwrap().ends_with("rel=\"describedby\""));
            assert!(types.insert(body["type"].clone()), "{code:?}");
        }
    }

    #[test]
    fn delays_are_whole_seconds_and_never_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), "1");
        assert_eq!(whole_seconds(Duration::from_millis(1500)), "2");
        assert_eq!(whole_seconds(Duration::from_secs(3)), "3");
    }
}
