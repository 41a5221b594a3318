//! Error responses of the APIs (RFC 9457).
//!
//! Owned and parsed by the CLI's client, and part of the OpenAPI documents; a refusal of the layer and
//! the gateway ([`ProblemDetails`](onceward_http::ProblemDetails)) is only written, mostly from
//! constants. The members that both have are the same.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use onceward_core::{OperationId, StoreError, StoreErrorKind};
use onceward_http::Code;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Role;

/// An error response (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ApiProblem {
    /// The URL that explains the code.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// A summary of the code.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The error code, for programs.
    pub(crate) code: String,
    /// The error, and what to do about it.
    pub(crate) detail: String,
    /// True if the same request can succeed later.
    pub(crate) retryable: bool,
    #[serde(flatten)]
    extensions: Box<Extensions>,
}

/// Members that some problems have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct Extensions {
    /// The id of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    operation_id: Option<String>,
    /// Delay before the request is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// The parts in which a request differs from the first one under its key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differs: Vec<String>,
}

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, code: &str, title: &str) -> Self {
        let kind = format!("{}#{}", onceward_http::PROBLEM_DOCS, code.to_lowercase());
        let (title, code) = (title.to_owned(), code.to_owned());
        Self {
            kind,
            title,
            status: status.as_u16(),
            code,
            detail: String::new(),
            retryable: false,
            extensions: Box::default(),
        }
    }

    /// A problem of the protocol, with the title and detail of its code.
    pub(crate) fn of(code: Code) -> Self {
        let problem = Self::new(code.status(), code.as_str(), code.title()).detail(code.detail());
        Self { retryable: code.is_retryable(), ..problem }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub(crate) fn operation(mut self, operation: &OperationId) -> Self {
        self.extensions.operation_id = Some(operation.to_string());
        self
    }

    pub(crate) fn retry_after(mut self, delay: Duration) -> Self {
        self.extensions.retry_after_ms = Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self.retryable()
    }

    pub(crate) fn differs(mut self, parts: Vec<String>) -> Self {
        self.extensions.differs = parts;
        self
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "TOKEN_NEEDED", "A token is required")
            .detail("Send `Authorization: Bearer TOKEN` with a token of [[tokens]].")
    }

    pub(crate) fn forbidden(role: Role) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ROLE_NEEDED", "The token does not allow this")
            .detail(format!("The role {} is required.", format!("{role:?}").to_lowercase()))
    }

    /// Nothing exists there, or nothing that this caller may see. Both get the same response.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "Not found").detail(what)
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", "The request is not valid")
            .detail(detail)
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.status
    }
}

/// The response holds nothing of the store's own message, which may name its address.
impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the store failed");
        if error.kind == StoreErrorKind::Full {
            return Self::of(Code::StoreFull).retry_after(Duration::from_secs(1));
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", "The store is unavailable")
            .detail(format!("{} ({}); send the request again.", error.kind, error.effect))
            .retry_after(Duration::from_secs(1))
    }
}

impl fmt::Display for ApiProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title, self.detail)
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let retry_after = self.extensions.retry_after_ms.map(|delay| delay.div_ceil(1000).max(1));
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
