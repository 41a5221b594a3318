//! An expectation of a README about a response.

use serde_json::Value;

use crate::response::Response;

/// A line `# → …` of a README.
#[derive(Debug, Clone, PartialEq)]
pub enum Expectation {
    /// `201 Created`: status code and reason.
    Status(String),
    /// `Idempotent-Replayed: true`: a header and its value.
    Header(String, String),
    /// `no Idempotent-Replayed`: the header is absent.
    NoHeader(String),
    /// `{"status":"pending"}`: the JSON body has at least these members.
    Json(Value),
    /// `the same body`: equal to the body of the previous response.
    SameBody,
    /// `another body`: different from the body of the previous response.
    AnotherBody,
}

impl Expectation {
    /// Parses the text after the arrow.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid =
            |why: &dyn std::fmt::Display| format!("cannot parse the expectation {text:?}: {why}");
        if text.starts_with(['{', '[']) {
            return serde_json::from_str(text).map(Self::Json).map_err(|error| invalid(&error));
        }
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(Self::Status(text.to_owned()));
        }
        let is_name = |name: &str| !name.is_empty() && !name.contains(' ');
        match (text, text.split_once(": "), text.strip_prefix("no ")) {
            ("the same body", ..) => Ok(Self::SameBody),
            ("another body", ..) => Ok(Self::AnotherBody),
            (_, Some((name, value)), _) if is_name(name) => {
                Ok(Self::Header(name.to_owned(), value.to_owned()))
            }
            (_, None, Some(name)) if is_name(name) => Ok(Self::NoHeader(name.to_owned())),
            _ => Err(invalid(
                &"expected a status, a header, JSON, `the same body` or `another body`",
            )),
        }
    }

    /// Returns true if a response meets the expectation.
    pub fn matches(&self, response: &Response, previous: Option<&Response>) -> bool {
        match self {
            Self::Status(line) => *line == format!("{} {}", response.status, response.reason),
            Self::Header(name, value) => response.header(name) == Some(value),
            Self::NoHeader(name) => response.header(name).is_none(),
            Self::Json(expected) => contains(&response.json(), expected),
            Self::SameBody => previous.is_some_and(|previous| previous.body == response.body),
            Self::AnotherBody => previous.is_some_and(|previous| previous.body != response.body),
        }
    }
}

/// Returns true if JSON contains the expected value. Objects may have more members. Arrays may not
/// have more items, because their number is often what a command shows.
fn contains(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(value), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| value.get(name).is_some_and(|it| contains(it, expected))),
        (Value::Array(value), Value::Array(expected)) => {
            value.len() == expected.len()
                && value.iter().zip(expected).all(|(value, expected)| contains(value, expected))
        }
        _ => value == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expectation: &str, body: &str, previous: &str) -> bool {
        let response = |body: &str| {
            let head = "HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\n\r\n";
            Response::from_curl(&format!("{head}{body}")).unwrap()
        };
        let expectation = Expectation::parse(expectation).unwrap();
        expectation.matches(&response(body), Some(&response(previous)))
    }

    #[test]
    fn expectations_match_exactly_the_responses_that_meet_them() {
        let order = r#"{"id":1,"lines":[{"sku":"a"}]}"#;
        for (expectation, expected) in [
            ("201 Created", true),
            ("200 OK", false),
            ("201 OK", false),
            ("201", false),
            ("Idempotent-Replayed: true", true),
            ("idempotent-replayed: true", true),
            ("Idempotent-Replayed: false", false),
            ("Retry-After: 1", false),
            ("no Retry-After", true),
            ("no Idempotent-Replayed", false),
            (r#"{"id":1}"#, true),
            (r#"{"id":2}"#, false),
            (r#"{"missing":null}"#, false),
            (r#"{"lines":[{}]}"#, true),
            (r#"{"lines":[]}"#, false),
            (r#"{"lines":[{"sku":"b"}]}"#, false),
            ("the same body", true),
            ("another body", false),
        ] {
            assert_eq!(matches(expectation, order, order), expected, "{expectation}");
        }
        assert!(!matches("the same body", order, "other"));
        assert!(matches("another body", order, "other"));
        assert!(!matches("{}", "not JSON", ""));
    }

    #[test]
    fn the_first_command_has_no_previous_body() {
        let response = Response::from_curl("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(!Expectation::SameBody.matches(&response, None));
        assert!(!Expectation::AnotherBody.matches(&response, None));
    }

    #[test]
    fn an_expectation_that_cannot_be_checked_is_an_error() {
        for text in ["", "it works", "same body", "no such header here", "{\"id\":", "a b: c"] {
            assert!(Expectation::parse(text).is_err(), "{text}");
        }
    }
}
