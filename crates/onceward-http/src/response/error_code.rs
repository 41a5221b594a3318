//! The error code of a response, from its JSON body.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use onceward_core::ErrorCode;
use serde::Deserialize;
use serde_json::Value;

use crate::body::decode;

/// Largest body that is searched. Error bodies are small, and the search must not delay a response.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The members of an error body that may have a code.
#[derive(Deserialize)]
struct ErrorBody {
    code: Option<Value>,
    error: Option<Value>,
}

/// Returns the code in a 4xx or 5xx response of type `application/json` or
/// `application/problem+json`: the member `code`, else `error.code`, if it is a short token.
pub(crate) fn error_code_of(head: &Parts, body: &[u8]) -> Option<ErrorCode> {
    let failed = head.status.is_client_error() || head.status.is_server_error();
    if !failed || body.len() > BODY_BYTES_MAX || !is_json(head) {
        return None;
    }
    let coding = head.headers.get(CONTENT_ENCODING).map_or(&b"identity"[..], |it| it.as_bytes());
    let body = decode(coding.trim_ascii(), body, BODY_BYTES_MAX).ok()?;
    let ErrorBody { code, error } = serde_json::from_slice(&body).ok()?;
    let token = |value: &Value| ErrorCode::new(value.as_str()?);
    code.as_ref().and_then(token).or_else(|| token(error?.get("code")?))
}

fn is_json(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let json: [&[u8]; 2] = [b"application/json", b"application/problem+json"];
    json.iter().any(|it| essence.eq_ignore_ascii_case(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(status: u16, kind: &str, body: &str) -> Option<String> {
        let response = http::Response::builder().status(status).header(CONTENT_TYPE, kind);
        let (head, ()) = response.body(()).unwrap().into_parts();
        error_code_of(&head, body.as_bytes()).map(|code| code.as_str().to_owned())
    }

    #[test]
    fn the_code_of_an_error_body_is_found() {
        let problem = "application/problem+json; charset=utf-8";
        assert_eq!(code(402, problem, r#"{"code":"declined"}"#).unwrap(), "declined");
        let nested = r#"{"code": 7, "error": {"code": "no_funds", "code_of": 1}}"#;
        assert_eq!(code(500, "Application/JSON", nested).unwrap(), "no_funds");
    }

    #[test]
    fn what_is_no_short_token_in_an_error_body_is_none() {
        let json = "application/json";
        for body in [
            r#"{"code":"two words"}"#,
            r#"{"error":"declined"}"#,
            r#"["code"]"#,
            r#"{"code":"declined""#,
            "",
            &format!(r#"{{"code":"x","pad":"{}"}}"#, "x".repeat(BODY_BYTES_MAX)),
        ] {
            assert_eq!(code(400, json, body), None, "{body:.60}");
        }
        assert_eq!(code(200, json, r#"{"code":"fine"}"#), None);
        assert_eq!(code(400, "text/plain", r#"{"code":"x"}"#), None);
    }
}
