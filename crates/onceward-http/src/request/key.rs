//! Parsing of the idempotency key.

use std::borrow::Cow;

use http::HeaderMap;
use onceward_core::Key;
use serde_json::Value;
use sfv::{BareItem, Parser};

use super::canonical::is_clean;
use crate::problem::{Code, Problem};
use crate::rules::{KeyFormat, KeyFrom, KeyRules, KeySyntax};

/// The key of a request, as far as its head has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadKey {
    /// The key.
    Key(Key),
    /// The head has no key, or a malformed one, so the request is refused.
    Refused,
    /// The key is in the body, if there is one.
    InBody,
}

impl HeadKey {
    pub(crate) fn of(headers: &HeaderMap, rules: &KeyRules) -> Self {
        match (&rules.from, key_in_headers(headers, rules)) {
            (KeyFrom::Body(_), _) => Self::InBody,
            (KeyFrom::Header(_), Ok(Some(key))) => Self::Key(key),
            (KeyFrom::Header(_), Ok(None) | Err(_)) => Self::Refused,
        }
    }
}

/// Returns the key in a request's headers; `None` if there is none, or if the key is in the body.
pub(crate) fn key_in_headers(
    headers: &HeaderMap,
    rules: &KeyRules,
) -> Result<Option<Key>, Problem> {
    let KeyFrom::Header(name) = &rules.from else { return Ok(None) };
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(invalid("the header occurs more than once; send one key a request"));
    }
    parse_key(line.as_bytes(), rules).map(Some).map_err(|detail| invalid(&detail))
}

/// Returns the key in a decoded body; `None` if there is none, or if the key is in a header.
///
/// A body with a repeated member is refused: the service may read the other one.
pub(crate) fn key_in_body(body: &[u8], rules: &KeyRules) -> Result<Option<Key>, Problem> {
    let KeyFrom::Body(pointer) = &rules.from else { return Ok(None) };
    let Ok(document) = serde_json::from_slice::<Value>(body) else { return Ok(None) };
    if !is_clean(body) {
        return Err(invalid(
            "the body has a member twice, so its key is ambiguous; send each member once",
        ));
    }
    match document.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => checked(text, rules).map(Some).map_err(|it| invalid(&it)),
        Some(_) => Err(invalid(&format!("the member {pointer} of the body is not a text"))),
    }
}

/// Parses one value of the header. The error does not repeat the value.
pub(crate) fn parse_key(value: &[u8], rules: &KeyRules) -> Result<Key, String> {
    let text = match (rules.syntax, value.first()) {
        (KeySyntax::SfString, _) | (KeySyntax::Lenient, Some(b'"')) => quoted(value)?,
        (KeySyntax::Bare | KeySyntax::Lenient, _) => bare(value)?,
    };
    checked(&text, rules)
}

fn checked(text: &str, rules: &KeyRules) -> Result<Key, String> {
    let length = text.len();
    if length < rules.min || length > rules.max {
        let (min, max) = (rules.min, rules.max);
        return Err(format!("the key has {length} characters; send {min} to {max}"));
    }
    if rules.format == KeyFormat::Uuid && uuid::Uuid::try_parse(text).is_err() {
        return Err("the key is not a UUID; this operation takes only UUIDs".into());
    }
    Key::new(text).map_err(|invalid| invalid.to_string())
}

fn quoted(value: &[u8]) -> Result<Cow<'_, str>, String> {
    let item = Parser::new(value)
        .parse::<sfv::Item>()
        .map_err(|error| format!("the header is not a structured-field string: {error}"))?;
    match item.bare_item {
        BareItem::String(text) => Ok(Cow::Owned(text.into())),
        _ => Err("the header is not a quoted string, as in \"8e03978e-40d5-43e8\"".into()),
    }
}

fn bare(value: &[u8]) -> Result<Cow<'_, str>, String> {
    let refused = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b',' | b'"');
    // One pass without branches; the position is only needed for the error.
    let clean = !value.iter().fold(false, |found, byte| found | refused(byte));
    match str::from_utf8(value) {
        Ok(text) if clean => Ok(Cow::Borrowed(text)),
        _ => {
            let position = value.iter().position(refused).unwrap_or_default();
            Err(format!(
                "an unquoted key is visible ASCII without blanks, commas and quotes; \
                 the character at position {position} is not allowed"
            ))
        }
    }
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::InvalidKey).detail(detail.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str, syntax: KeySyntax) -> Result<String, String> {
        let rules = KeyRules { syntax, ..KeyRules::default() };
        parse_key(value.as_bytes(), &rules).map(|key| key.expose().to_owned())
    }

    #[test]
    fn quoted_and_bare_name_the_same_key() {
        assert_eq!(key("\"k-1\"", KeySyntax::Lenient).unwrap(), "k-1");
        assert_eq!(key("k-1", KeySyntax::Lenient).unwrap(), "k-1");
        assert_eq!(key(r#""a\"b""#, KeySyntax::Lenient).unwrap(), "a\"b");
    }

    #[test]
    fn each_strict_syntax_refuses_the_other() {
        assert!(key("k", KeySyntax::SfString).is_err());
        assert!(key("\"k\"", KeySyntax::Bare).is_err());
        assert!(key("12", KeySyntax::SfString).unwrap_err().contains("quoted string"));
    }

    #[test]
    fn a_malformed_key_is_refused_and_not_repeated() {
        let long = format!("canary{}", "x".repeat(250));
        for bad in [
            "",
            "\"\"",
            "\"   \"",
            "\"canary",
            "\"canary\\x\"",
            "\"canary\u{7f}\"",
            "canary, canary",
            "canary canary",
            "caf\u{e9}canary",
            &long,
        ] {
            let error = key(bad, KeySyntax::Lenient).unwrap_err();
            assert!(!error.contains("canary"), "{bad:?} → {error}");
        }
        assert!(key(&"x".repeat(255), KeySyntax::Lenient).is_ok());
    }

    #[test]
    fn a_key_in_a_body_is_a_text_at_its_pointer() {
        let rules = KeyRules { from: KeyFrom::Body("/meta/key".into()), ..KeyRules::default() };
        let key = |body: &str| key_in_body(body.as_bytes(), &rules);
        assert_eq!(key(r#"{"meta":{"key":"k-1"}}"#).unwrap().unwrap().expose(), "k-1");
        for none in ["", "not json", "{}", r#"{"meta":{"key":null}}"#, r#"{"key":"k"}"#] {
            assert!(key(none).unwrap().is_none(), "{none}");
        }
        for bad in [
            r#"{"meta":{"key":7}}"#,
            r#"{"meta":{"key":""}}"#,
            r#"{"meta":{"key":"a","key":"b"}}"#,
            r#"{"meta":{"key":"a"},"x":1,"x":2}"#,
        ] {
            assert!(key(bad).is_err(), "{bad}");
        }
        assert!(key_in_headers(&HeaderMap::new(), &rules).unwrap().is_none());
    }

    #[test]
    fn lengths_and_the_uuid_format_are_settings() {
        let rules = KeyRules { min: 16, format: KeyFormat::Uuid, ..KeyRules::default() };
        assert!(parse_key(b"short", &rules).unwrap_err().contains("5 characters; send 16 to 255"));
        assert!(parse_key(b"not-a-uuid-at-all", &rules).unwrap_err().contains("not a UUID"));
        assert!(parse_key(b"8e03978e-40d5-43e8-bc93-6894a57f9324", &rules).is_ok());
    }
}
