//! The JSON body and the headers of a refusal.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use onceward_core::OperationId;
use serde::{Serialize, Serializer};

/// The page that explains the codes, each under its own anchor.
pub const PROBLEM_DOCS: &str = "https://github.com/onceward/onceward/blob/main/docs/errors.md";

/// Format of refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemFormat {
    /// The page that explains the codes ([`PROBLEM_DOCS`]).
    pub docs: String,
    /// Path prefix of the status pages of operations (`/onceward`).
    pub operations_at: String,
    /// Adds the fields that Stripe's SDKs read (no): a member `error` with type, code and message,
    /// without which stripe-node takes a refusal for a success, and the header
    /// `Stripe-Should-Retry`.
    pub stripe_errors: bool,
}

impl Default for ProblemFormat {
    fn default() -> Self {
        let (docs, operations_at) = (PROBLEM_DOCS.to_owned(), "/onceward".to_owned());
        Self { docs, operations_at, stripe_errors: false }
    }
}

impl ProblemFormat {
    /// Returns the path of an operation's status page.
    pub(crate) fn page(&self, operation: OperationId) -> String {
        format!("{}/operations/{operation}", self.operations_at)
    }
}

/// The members of a refusal: those of RFC 9457, and those that programs act on. Servers around
/// the layer write their own refusals with it, so that all have the same form.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ProblemDetails<'a> {
    /// The error code, for programs.
    pub code: &'a str,
    /// A summary of the code.
    pub title: &'a str,
    /// The HTTP status.
    #[serde(serialize_with = "as_number")]
    pub status: StatusCode,
    /// The error, and what to do about it.
    pub detail: &'a str,
    /// True if the same request can succeed later.
    pub retryable: bool,
    /// True if the client may send it again with the same key.
    pub same_key: bool,
    /// The id of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// The status of the first response, whose body was not stored.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_number")]
    pub original_status: Option<StatusCode>,
    /// The parts in which the request differs from the first one.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub differs: &'a [String],
    /// The region that the key belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<&'a str>,
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

/// The JSON body of a refusal.
#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    details: &'a ProblemDetails<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<StripeError<'a>>,
}

/// The member `error` that Stripe's SDKs read.
#[derive(Serialize)]
struct StripeError<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
    doc_url: &'a str,
}

/// Response extension that marks a refusal of Onceward, so that servers around the layer can tell
/// it from a response of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal;

const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

impl<'a> ProblemDetails<'a> {
    /// A refusal that is not retryable and names no operation.
    pub const fn new(status: StatusCode, code: &'a str, title: &'a str, detail: &'a str) -> Self {
        Self {
            code,
            title,
            status,
            detail,
            retryable: false,
            same_key: false,
            operation_id: None,
            original_status: None,
            differs: &[],
            region: None,
        }
    }

    /// Builds the response.
    pub fn response(&self, format: &ProblemFormat) -> Response<Bytes> {
        let address = format!("{}#{}", format.docs, self.code.to_ascii_lowercase());
        let body = ProblemBody {
            r#type: &address,
            details: self,
            instance: self.operation_id.map(|operation| format.page(operation)),
            error: format.stripe_errors.then(|| self.stripe_error(&address)),
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
        if format.stripe_errors {
            let retry = if self.retryable { "true" } else { "false" };
            headers.insert(STRIPE_SHOULD_RETRY, HeaderValue::from_static(retry));
        }
        response
    }

    /// Stripe's type of an error: `idempotency_error` for a key that was used for another request.
    fn stripe_error<'b>(&'b self, doc_url: &'b str) -> StripeError<'b> {
        let r#type = match self.status {
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => "idempotency_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "api_error",
        };
        let message = if self.detail.is_empty() { self.title } else { self.detail };
        StripeError { r#type, code: self.code, message, doc_url }
    }
}
