//! A resolver's answer about an operation.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AGE, CONTENT_TYPE};
use http::{Response, StatusCode};
use onceward_core::{BoxError, Outcome, Tag};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// The form of an answer, for errors.
pub(super) const EXPECTED: &str =
    "a JSON body with `outcome`: \"happened\", \"did_not_happen\" or \"unknown\"";

/// The answer of a URL. Only a resolver answers with these words: a missing route, an error page
/// or a login form is not an answer.
#[derive(Debug)]
pub(super) enum Resolution {
    Happened(Answer),
    DidNotHappen,
    Unknown,
}

#[derive(Deserialize)]
struct Said {
    outcome: Word,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Happened,
    DidNotHappen,
    Unknown,
}

impl Resolution {
    /// Reads an answer, or returns what is wrong with it. Never quotes the body, which may
    /// contain anything.
    pub(super) fn read(response: &Response<Bytes>) -> Result<Self, String> {
        let status = response.status();
        if !matches!(status, StatusCode::OK | StatusCode::NOT_FOUND) {
            return Err(format!("{status}; expected 200 with {EXPECTED}"));
        }
        let said = serde_json::from_slice::<Said>(response.body());
        let Said { outcome } = said.map_err(|_| format!("{status}; expected {EXPECTED}"))?;
        if response.headers().contains_key(AGE) {
            return Err(format!("{status} from a cache (it has `Age`), which may be out of date"));
        }
        match outcome {
            Word::Happened if status != StatusCode::OK => {
                Err(format!("{status} with `outcome` \"happened\"; expected 200"))
            }
            Word::Happened => serde_json::from_slice(response.body())
                .map(Self::Happened)
                .map_err(|why| format!("{status} with `outcome` \"happened\", and {why}")),
            Word::DidNotHappen => Ok(Self::DidNotHappen),
            Word::Unknown => Ok(Self::Unknown),
        }
    }
}

/// The response to the operation's first request, or its worker's result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    #[serde(default, rename = "outcome")]
    _outcome: IgnoredAny,
    #[serde(default = "ok")]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// A string is the body itself; any other value is the body as JSON.
    pub(super) body: Option<Value>,
    /// The body's bytes, instead of `body`.
    pub(super) body_base64: Option<String>,
    /// A worker's result, instead of status, headers and body. Kept as written.
    result: Option<Box<RawValue>>,
}

fn ok() -> u16 {
    200
}

impl Default for Answer {
    fn default() -> Self {
        let (headers, status) = (BTreeMap::new(), ok());
        Self { _outcome: IgnoredAny, status, headers, body: None, body_base64: None, result: None }
    }
}

impl Answer {
    /// The outcome that retries get.
    pub(super) fn outcome(self) -> Result<Outcome, BoxError> {
        if let Some(result) = self.result {
            if self.body.is_some() || self.body_base64.is_some() || !self.headers.is_empty() {
                return Err("`result` excludes `headers`, `body` and `body_base64`".into());
            }
            return Ok(Outcome::whole(Tag::JSON, result.get().to_owned()));
        }
        let (body, content_type) = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err("`body` and `body_base64` exclude each other".into()),
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
            return Err(format!("`status` {} is not that of a final response", self.status).into());
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

    fn resolution(status: u16, body: &str) -> Result<Resolution, String> {
        let response = Response::builder().status(status);
        Resolution::read(&response.body(Bytes::copy_from_slice(body.as_bytes())).unwrap())
    }

    #[test]
    fn only_what_a_resolver_would_send_is_an_answer() {
        let word = |word: &str| format!(r#"{{"outcome":"{word}"}}"#);
        assert!(matches!(resolution(200, &word("did_not_happen")), Ok(Resolution::DidNotHappen)));
        assert!(matches!(resolution(404, &word("did_not_happen")), Ok(Resolution::DidNotHappen)));
        assert!(matches!(resolution(200, &word("unknown")), Ok(Resolution::Unknown)));
        assert!(matches!(resolution(200, &word("happened")), Ok(Resolution::Happened(_))));
        for (status, body) in [
            (404, ""),
            (404, r#"{"detail":"Not Found"}"#),
            (404, "<html>Not Found</html>"),
            (404, &*word("happened")),
            (200, ""),
            (200, "{}"),
            (200, r#"{"status":201}"#),
            (200, &*word("failed")),
            (200, &*word("Did_Not_Happen")),
            (204, ""),
            (302, &*word("did_not_happen")),
            (500, &*word("did_not_happen")),
        ] {
            let why = resolution(status, body).unwrap_err();
            assert!(why.starts_with(&status.to_string()), "{status} {body}: {why}");
            assert!(why.contains("expected"), "{status} {body}: {why}");
        }
        let cached = Response::builder().header(AGE, "7").body(word("did_not_happen").into());
        assert!(Resolution::read(&cached.unwrap()).unwrap_err().contains("cache"));
    }

    #[test]
    fn a_workers_result_is_kept_as_it_is_written() {
        let result = r#"{"b": 1.0, "a": 9007199254740993}"#;
        let text = format!(r#"{{"outcome":"happened","result":{result}}}"#);
        let outcome = serde_json::from_str::<Answer>(&text).unwrap().outcome().unwrap();
        assert_eq!((outcome.tag, &*outcome.bytes), (Tag::JSON, result.as_bytes()));
        let both = r#"{"result":1,"body":2}"#;
        assert!(serde_json::from_str::<Answer>(both).unwrap().outcome().is_err());
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
