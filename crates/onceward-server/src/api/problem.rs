//! Refusals of the APIs (RFC 9457), and JSON that is told what is wrong with it.

use std::fmt;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use onceward_core::StoreError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::tokens::Role;

/// Why an API does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ApiProblem {
    /// Where the code is explained.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// What it is about.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// What a program acts on.
    pub(crate) code: String,
    /// What is wrong here, and what to do.
    pub(crate) detail: String,
    /// Whether the same request can succeed later.
    pub(crate) retryable: bool,
}

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, code: &str, title: &str) -> Self {
        let kind = format!("{}#{}", onceward_http::PROBLEM_DOCS, code.to_lowercase());
        let (title, code) = (title.to_owned(), code.to_owned());
        Self { kind, title, status: status.as_u16(), code, detail: String::new(), retryable: false }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "TOKEN_NEEDED", "A token is needed")
            .detail("Send Authorization: Bearer and a token that [[tokens]] names.")
    }

    pub(crate) fn forbidden(role: Role) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ROLE_NEEDED", "The token does not allow this")
            .detail(format!("It takes the role {}.", format!("{role:?}").to_lowercase()))
    }

    /// Not there, or not for this caller: nobody learns which.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such thing").detail(what)
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

/// A store that does not answer is told without its own words, which may say where it is.
impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the store");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", "The store is unavailable")
            .detail(format!("{} ({}); send it again.", error.kind, error.effect))
            .retryable()
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
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// A JSON body; what is wrong with it is told as a problem.
#[derive(Debug)]
pub(crate) struct Payload<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Payload<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
    S: Send + Sync,
{
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(payload)) => Ok(Self(payload)),
            Err(rejection) => {
                let (status, text) = (rejection.status(), rejection.body_text());
                let problem = ApiProblem::bad_request(text);
                Err(ApiProblem { status: status.as_u16(), ..problem })
            }
        }
    }
}
