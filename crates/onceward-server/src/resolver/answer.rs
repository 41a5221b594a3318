//! What an operation came to, in the words of whoever knows.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use onceward_core::{BoxError, Outcome};
use serde::Deserialize;
use serde_json::Value;

/// The answer that the operation's first request would have got.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    #[serde(default = "ok")]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// A text is the body; any other value is the body as JSON.
    pub(super) body: Option<Value>,
    /// Or the body's bytes.
    pub(super) body_base64: Option<String>,
}

fn ok() -> u16 {
    200
}

impl Answer {
    /// What retries get.
    pub(super) fn outcome(self) -> Result<Outcome, BoxError> {
        let (body, content_type) = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err("there are both body and body_base64".into()),
            (None, None) => (Bytes::new(), None),
            (None, Some(text)) => (STANDARD.decode(text)?.into(), None),
            (Some(Value::String(text)), None) => (text.into(), Some("text/plain; charset=utf-8")),
            (Some(value), None) => (serde_json::to_vec(&value)?.into(), Some("application/json")),
        };
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name.to_ascii_lowercase(), value);
        }
        let mut response = response.body(body)?;
        if response.status().is_informational() {
            return Err(format!("{} is not the status of an answer", self.status).into());
        }
        if let Some(content_type) = content_type
            && !response.headers().contains_key(CONTENT_TYPE)
        {
            response.headers_mut().insert(CONTENT_TYPE, content_type.parse()?);
        }
        Ok(onceward_http::outcome_of_all(response)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(text: &str) -> Result<Response<Bytes>, BoxError> {
        let outcome = serde_json::from_str::<Answer>(text)?.outcome()?;
        Ok(onceward_http::response_of(&outcome).unwrap())
    }

    #[test]
    fn texts_values_and_bytes_are_bodies() {
        let json = response(r#"{"status":201,"body":{"id":7},"headers":{"Location":"/p/7"}}"#);
        let json = json.unwrap();
        assert_eq!((json.status().as_u16(), &json.body()[..]), (201, &br#"{"id":7}"#[..]));
        assert_eq!(json.headers()["content-type"], "application/json");
        assert_eq!(json.headers()["location"], "/p/7");
        let text = response(r#"{"body":"paid","headers":{"content-type":"text/csv"}}"#).unwrap();
        assert_eq!((text.status().as_u16(), &text.body()[..]), (200, &b"paid"[..]));
        assert_eq!(text.headers()["content-type"], "text/csv");
        let bytes = response(r#"{"body_base64":"AAE="}"#).unwrap();
        assert_eq!(&bytes.body()[..], [0, 1]);
        assert_eq!(&response(r#"{"status":204}"#).unwrap().body()[..], b"");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            "[]",
            r#"{"statuss":201}"#,
            r#"{"status":99}"#,
            r#"{"status":103}"#,
            r#"{"body":"a","body_base64":"AAE="}"#,
            r#"{"body_base64":"?"}"#,
            r#"{"headers":{"set-cookie":"a"}}"#,
            r#"{"headers":{"a b":"a"}}"#,
        ] {
            assert!(response(text).is_err(), "{text}");
        }
    }
}
