//! JSON bodies, which are told what is wrong with them and never what is in them.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use onceward_http::Code;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use super::problem::ApiProblem;

/// Longest time for a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How large a body may be; a layer for routers whose handlers take a [`Payload`].
pub(crate) fn body_limit(bytes_max: u64) -> DefaultBodyLimit {
    DefaultBodyLimit::max(usize::try_from(bytes_max).unwrap_or(usize::MAX))
}

/// A JSON body; what is wrong with it is told as a problem.
pub(crate) struct Payload<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Payload<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let body = timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await;
        let body = body.map_err(|_late| too_slow())?.map_err(|error| broken(&error))?;
        read_json(&body).map(Self)
    }
}

/// Reads a value. Serde's messages quote what they found, which may be a secret, so only what
/// was expected is told.
pub(crate) fn read_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiProblem> {
    serde_json::from_slice(text).map_err(|error| {
        let place = format!("at line {} column {}", error.line(), error.column());
        let wrong = match error.classify() {
            Category::Data => expected(&error.to_string()),
            Category::Syntax | Category::Eof | Category::Io => "this is not JSON".into(),
        };
        ApiProblem::bad_request(format!("{wrong} ({place})"))
    })
}

fn expected(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    if message.starts_with("missing field") || message.starts_with("duplicate field") {
        return message.to_owned();
    }
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("unknown field") => {
            format!(
                "there is a field that is not one of {}",
                expected.trim_start_matches("one of ")
            )
        }
        Some((_, expected)) => format!("expected {expected}"),
        None => "a value is not as it must be".into(),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn not_json() -> ApiProblem {
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    ApiProblem::new(status, "UNSUPPORTED_MEDIA_TYPE", "The body is not called JSON")
        .detail("Send Content-Type: application/json.")
}

fn too_slow() -> ApiProblem {
    ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TOO_SLOW", "The body came too slowly")
        .detail("Nothing was done. Send it again.")
        .retryable()
}

fn broken(error: &BytesRejection) -> ApiProblem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiProblem::of(Code::RequestTooLarge).detail("See request_max_bytes in onceward.toml.")
        }
        _ => ApiProblem::of(Code::InvalidBody).detail("Nothing was done. Send it again."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        #[serde(rename = "key")]
        _key: String,
    }

    fn told(text: &str) -> String {
        read_json::<Body>(text.as_bytes()).unwrap_err().detail
    }

    #[test]
    fn what_is_wrong_is_told_and_what_was_sent_is_not() {
        assert_eq!(told(r#"{"key": 4711}"#), "expected a string (at line 1 column 12)");
        assert_eq!(told("{}"), "missing field `key` (at line 1 column 2)");
        assert!(told(r#"{"canary": 1}"#).starts_with("there is a field that is not one of `key`"));
        assert!(told("canary").starts_with("this is not JSON"));
        for text in [r#"{"key": ["canary"]}"#, r#"{"key": "canary" canary"#, r#""canary""#] {
            assert!(!told(text).contains("canary"), "{text}");
        }
    }
}
