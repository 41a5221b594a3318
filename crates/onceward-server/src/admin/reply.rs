//! HTTP replies as operators write and read them.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{Response, StatusCode};
use onceward_core::Outcome;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::ApiProblem;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An HTTP reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    /// The HTTP status.
    #[schema(minimum = 200, maximum = 599)]
    pub(crate) status: u16,
    /// The headers, in order. A name may occur more than once.
    #[serde(default)]
    #[schema(max_items = 127)]
    pub(crate) headers: Vec<HeaderLine>,
    /// The body, in base64.
    #[serde(default)]
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
    pub(crate) body_base64: String,
}

/// One header line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderLine {
    /// The name.
    #[schema(pattern = "^[A-Za-z][A-Za-z0-9-]*$")]
    pub(crate) name: String,
    /// The value.
    #[schema(pattern = "^([!-~]([ -~]*[!-~])?)?$")]
    pub(crate) value: String,
}

/// Largest number of headers of a stored reply.
const HEADERS_MAX: usize = 127;

impl Reply {
    /// A reply with a body.
    pub(crate) fn new(status: u16, headers: Vec<HeaderLine>, body: &[u8]) -> Self {
        Self { status, headers, body_base64: BASE64.encode(body) }
    }

    /// The body, decoded.
    pub(crate) fn body(&self) -> Result<Vec<u8>, ApiProblem> {
        let invalid = |why| ApiProblem::bad_request(format!("body_base64: {why}"));
        BASE64.decode(&self.body_base64).map_err(invalid)
    }

    /// The outcome to store, which the HTTP layer replays.
    pub(super) fn outcome(&self) -> Result<Outcome, ApiProblem> {
        let (status, body) = (self.final_status()?, self.body()?);
        let bodiless =
            [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
        if bodiless.contains(&status) && !body.is_empty() {
            return Err(ApiProblem::bad_request(format!(
                "body_base64: a reply with status {status} has no body"
            )));
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(ApiProblem::bad_request(format!("headers: more than {HEADERS_MAX}")));
        }
        let mut response = Response::builder().status(status);
        for HeaderLine { name, value } in &self.headers {
            response = response.header(name.to_ascii_lowercase(), value.trim());
        }
        let invalid = |why: http::Error| ApiProblem::bad_request(format!("headers: {why}"));
        let response = response.body(Bytes::from(body)).map_err(invalid)?;
        onceward_http::outcome_of_all(response)
            .map_err(|why| ApiProblem::bad_request(why.to_string()))
    }

    /// The reply in a stored outcome; `None` if the HTTP layer did not write it.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        let response = onceward_http::response_of(outcome)?;
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| HeaderLine {
            name: name.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        let headers = response.headers().iter().map(header).collect();
        Some(Self::new(response.status().as_u16(), headers, response.body()))
    }

    fn final_status(&self) -> Result<StatusCode, ApiProblem> {
        let status = StatusCode::from_u16(self.status).ok();
        status.filter(|it| (200..600).contains(&it.as_u16())).ok_or_else(|| {
            ApiProblem::bad_request(format!("status: {} is not 200 to 599", self.status))
        })
    }
}

/// Bytes of an outcome that is no HTTP reply.
pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, value: &str) -> HeaderLine {
        HeaderLine { name: name.into(), value: value.into() }
    }

    #[test]
    fn what_an_operator_writes_is_what_is_stored() {
        let headers = vec![line("content-type", "text/plain"), line("X-Receipt", "7")];
        let outcome = Reply::new(201, headers, b"a\0b").outcome().unwrap();
        let read = Reply::of(&outcome).unwrap();
        assert_eq!((read.status, read.body().unwrap()), (201, b"a\0b".to_vec()));
        assert_eq!(read.headers[1], line("x-receipt", "7"));
    }

    #[test]
    fn what_cannot_be_replayed_is_refused_by_its_name() {
        for (reply, reason) in [
            (Reply::new(99, Vec::new(), b""), "99"),
            (Reply::new(600, Vec::new(), b""), "600"),
            (Reply::new(204, Vec::new(), b"a"), "no body"),
            (Reply::new(201, vec![line("set-cookie", "a")], b""), "set-cookie"),
            (Reply::new(201, vec![line("a b", "a")], b""), "headers"),
            (Reply::new(201, vec![line("a", "b\r\nc: d")], b""), "headers"),
            (Reply { status: 201, headers: Vec::new(), body_base64: "?".into() }, "body_base64"),
        ] {
            let problem = reply.outcome().unwrap_err();
            assert!(problem.detail.contains(reason), "{problem}");
        }
    }
}
