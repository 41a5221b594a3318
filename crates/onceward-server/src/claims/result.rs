//! Results of operations, as workers send and receive them.

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use onceward_core::{Content, Outcome, Tag};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::ApiProblem;

/// Codec tag of bytes with a content type: its length (two bytes, big endian), itself, the bytes.
const BYTES_TAG: Tag = Tag::from_static("bytes/v1");
/// Content type of bytes that come without one.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";
/// Longer than any content type in use.
const CONTENT_TYPE_MAX: usize = 255;

/// Accepts set trailing bits in the last character: not all encoders clear them.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A result that is not JSON.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BytesBody {
    /// The bytes.
    #[schema(
        content_encoding = "base64",
        pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
    )]
    base64: String,
    /// The content type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[!-~][ -~]*$", nullable = false)]
    content_type: Option<String>,
    /// The codec, if this API did not write them: `http/v1` is a response stored by the gateway.
    /// Ignored in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, read_only)]
    codec: Option<String>,
    /// True if they are only a summary or a reference, because the whole result was not stored.
    /// Ignored in requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(read_only)]
    partial: bool,
}

/// A result: JSON, or bytes.
#[derive(Default)]
pub(super) struct ClaimResult {
    pub(super) result: Option<Box<RawValue>>,
    pub(super) bytes: Option<BytesBody>,
}

impl ClaimResult {
    /// The outcome to store. JSON is stored as it was written; no result is `null`.
    pub(super) fn into_outcome(self) -> Result<Outcome, ApiProblem> {
        match (self.result, self.bytes) {
            (Some(_), Some(_)) => Err(ApiProblem::bad_request("send either result or bytes")),
            (Some(json), None) => Ok(Outcome::whole(Tag::JSON, json.get().to_owned())),
            (None, None) => Ok(Outcome::whole(Tag::JSON, "null")),
            (None, Some(bytes)) => bytes.into_outcome(),
        }
    }

    /// The result in a stored outcome.
    pub(super) fn of(outcome: &Outcome) -> Self {
        match json_of(outcome) {
            Some(json) => Self { result: Some(json), bytes: None },
            None => Self { result: None, bytes: Some(BytesBody::of(outcome)) },
        }
    }
}

fn json_of(outcome: &Outcome) -> Option<Box<RawValue>> {
    let whole = outcome.content == Content::Whole && outcome.tag == Tag::JSON;
    let text = whole.then(|| String::from_utf8(outcome.bytes.to_vec()).ok())??;
    RawValue::from_string(text).ok()
}

impl BytesBody {
    fn into_outcome(self) -> Result<Outcome, ApiProblem> {
        let bytes = BASE64.decode(&self.base64);
        let bytes = bytes.map_err(|_| ApiProblem::bad_request("bytes.base64 is not base64"))?;
        let content_type = self.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
        let printable = content_type.bytes().all(|it| matches!(it, b' '..=b'~'));
        let valid = printable && !content_type.starts_with(' ');
        if !valid || !(1..=CONTENT_TYPE_MAX).contains(&content_type.len()) {
            let message = "bytes.content_type must be a content type, such as \"image/png\"";
            return Err(ApiProblem::bad_request(message));
        }
        let length = (content_type.len() as u16).to_be_bytes();
        Ok(Outcome::whole(BYTES_TAG, [&length, content_type.as_bytes(), &bytes].concat()))
    }

    fn of(outcome: &Outcome) -> Self {
        let written_here = (outcome.tag == BYTES_TAG).then(|| split(&outcome.bytes)).flatten();
        let partial = outcome.content != Content::Whole;
        let (content_type, codec, bytes) = match written_here {
            Some((content_type, bytes)) => (Some(content_type.to_owned()), None, bytes),
            None => (None, Some(outcome.tag.as_str().to_owned()), &*outcome.bytes),
        };
        Self { base64: BASE64.encode(bytes), content_type, codec, partial }
    }
}

fn split(stored: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = stored.split_first_chunk()?;
    let (content_type, bytes) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((std::str::from_utf8(content_type).ok()?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(base64: &str, content_type: Option<&str>) -> ClaimResult {
        let content_type = content_type.map(str::to_owned);
        let bytes = BytesBody { base64: base64.into(), content_type, codec: None, partial: false };
        ClaimResult { bytes: Some(bytes), ..ClaimResult::default() }
    }

    #[test]
    fn json_comes_back_as_it_was_written() {
        let text = r#"{"b": 1.0, "a": 9007199254740993}"#;
        let result = Some(RawValue::from_string(text.into()).unwrap());
        let outcome = ClaimResult { result, ..ClaimResult::default() }.into_outcome().unwrap();
        assert_eq!(ClaimResult::of(&outcome).result.unwrap().get(), text);
        assert_eq!(
            ClaimResult::of(&ClaimResult::default().into_outcome().unwrap()).result.unwrap().get(),
            "null"
        );
    }

    #[test]
    fn bytes_come_back_with_what_they_are() {
        for (content_type, expected) in
            [(Some("image/png"), "image/png"), (None, DEFAULT_CONTENT_TYPE)]
        {
            let outcome = bytes("AAH/", content_type).into_outcome().unwrap();
            let back = ClaimResult::of(&outcome).bytes.unwrap();
            assert_eq!(
                (back.base64.as_str(), back.content_type.as_deref()),
                ("AAH/", Some(expected))
            );
            assert!(back.codec.is_none() && !back.partial);
        }
    }

    #[test]
    fn what_others_have_stored_is_named() {
        let theirs = ClaimResult::of(&Outcome::omitted(onceward_http::TAG, "x")).bytes.unwrap();
        assert_eq!((theirs.codec.as_deref(), theirs.partial), (Some("http/v1"), true));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for wrong in [bytes("?", None), bytes("", Some("")), bytes("", Some("a\nb"))] {
            assert_eq!(wrong.into_outcome().unwrap_err().status, 400);
        }
    }
}
