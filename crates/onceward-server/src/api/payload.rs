//! JSON bodies. An error names the field and what is expected, and never quotes what was sent.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use onceward_http::Code;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};
use tokio::time::timeout;

use super::problem::ApiProblem;

/// Time limit for a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body limit: a layer for routers whose handlers take a [`Payload`].
pub(crate) fn body_limit(bytes_max: u64) -> DefaultBodyLimit {
    DefaultBodyLimit::max(usize::try_from(bytes_max).unwrap_or(usize::MAX))
}

/// A JSON body. An invalid one is answered with a problem.
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

/// Parses a value. The problem names the field and what is expected there. Serde's own messages
/// quote the value, which may be a secret, so they are not passed on.
pub(crate) fn read_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiProblem> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut json);
    let value = read.map_err(|error| {
        ApiProblem::bad_request(match error.inner().classify() {
            Category::Data => expected(&field(error.path()), &error.inner().to_string()),
            Category::Syntax | Category::Eof | Category::Io => not_json_at(error.inner()),
        })
    })?;
    json.end().map_err(|error| ApiProblem::bad_request(not_json_at(&error)))?;
    Ok(value)
}

fn not_json_at(error: &serde_json::Error) -> String {
    format!("The body is not JSON: see line {} column {}.", error.line(), error.column())
}

/// The path of a field, such as `items[2].key`. Empty for the body itself, and for a path with a
/// name that the client made up.
fn field(path: &Path) -> String {
    let ours = |segment: &Segment| match segment {
        Segment::Seq { .. } => true,
        Segment::Map { key } => key.bytes().all(|it| it.is_ascii_lowercase() || it == b'_'),
        Segment::Enum { .. } | Segment::Unknown => false,
    };
    if path.iter().all(ours) && path.iter().count() > 0 { path.to_string() } else { String::new() }
}

fn expected(field: &str, message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let place = if field.is_empty() { "The body".to_owned() } else { format!("`{field}`") };
    for (begins, verb) in [("missing field ", "is missing"), ("duplicate field ", "occurs twice")] {
        if let Some(name) = message.strip_prefix(begins) {
            return format!("The field {name} {verb}.");
        }
    }
    match message.rsplit_once(", expected ") {
        Some((found, known)) if found.starts_with("unknown field") => {
            format!("There is an unknown field; expected {}.", known.trim_start_matches("one of "))
        }
        Some((_, expected)) => format!("{place} must be {expected}."),
        None => format!("{place} has an invalid value."),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn not_json() -> ApiProblem {
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    ApiProblem::new(status, "UNSUPPORTED_MEDIA_TYPE", "The content type is not application/json")
        .detail("Send Content-Type: application/json.")
}

fn too_slow() -> ApiProblem {
    ApiProblem::new(
        StatusCode::REQUEST_TIMEOUT,
        "REQUEST_TOO_SLOW",
        "The body did not arrive in time",
    )
    .detail("Nothing was done. Send the request again.")
    .retryable()
}

fn broken(error: &BytesRejection) -> ApiProblem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiProblem::of(Code::RequestTooLarge)
            .detail("The limit is request_max_bytes in onceward.toml."),
        _ => ApiProblem::of(Code::InvalidBody).detail("Nothing was done. Send the request again."),
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

    fn error(text: &str) -> String {
        read_json::<Body>(text.as_bytes()).unwrap_err().detail
    }

    #[test]
    fn what_is_wrong_is_told_and_what_was_sent_is_not() {
        assert_eq!(error(r#"{"key": 4711}"#), "`key` must be a string.");
        assert_eq!(error("{}"), "The field `key` is missing.");
        assert_eq!(error(r#"{"key": "a", "key": "b"}"#), "The field `key` occurs twice.");
        assert_eq!(error(r#"{"canary": 1}"#), "There is an unknown field; expected `key`.");
        assert_eq!(error("canary"), "The body is not JSON: see line 1 column 1.");
        assert_eq!(error(r#"{"key":"a"} canary"#), "The body is not JSON: see line 1 column 13.");
        for text in [r#"{"key": ["canary"]}"#, r#"{"key": "canary" canary"#, r#""canary""#] {
            assert!(!error(text).contains("canary"), "{text}");
        }
    }
}
