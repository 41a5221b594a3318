//! What a README promises about an answer.

use serde_json::Value;

use crate::answer::Answer;

/// One line `# → …` of a README.
#[derive(Debug, Clone, PartialEq)]
pub enum Promise {
    /// `201 Created`
    Status(String),
    /// `Idempotent-Replayed: true`
    Header(String, String),
    /// `no Idempotent-Replayed`
    NoHeader(String),
    /// `{"status":"pending"}`: these members, among others.
    Json(Value),
    /// `the same body`: as the command before.
    SameBody,
    /// `another body`: not that of the command before.
    AnotherBody,
}

impl Promise {
    /// Reads what stands behind the arrow.
    pub fn read(text: &str) -> Result<Self, String> {
        let invalid =
            |why: &dyn std::fmt::Display| format!("cannot read the promise {text:?}: {why}");
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
            _ => Err(invalid(&"it is no status, header, JSON or word about the body")),
        }
    }

    /// Whether an answer keeps it; `before` is the answer to the command before.
    pub fn holds(&self, answer: &Answer, before: Option<&Answer>) -> bool {
        match self {
            Self::Status(line) => *line == format!("{} {}", answer.status, answer.reason),
            Self::Header(name, value) => answer.header(name) == Some(value),
            Self::NoHeader(name) => answer.header(name).is_none(),
            Self::Json(promised) => contains(&answer.json(), promised),
            Self::SameBody => before.is_some_and(|before| before.body == answer.body),
            Self::AnotherBody => before.is_some_and(|before| before.body != answer.body),
        }
    }
}

/// Whether JSON has all that is promised. Objects may have more members; lists may not have
/// more items: how many there are is often the point.
fn contains(value: &Value, promised: &Value) -> bool {
    match (value, promised) {
        (Value::Object(value), Value::Object(promised)) => promised
            .iter()
            .all(|(name, promised)| value.get(name).is_some_and(|it| contains(it, promised))),
        (Value::Array(value), Value::Array(promised)) => {
            value.len() == promised.len()
                && value.iter().zip(promised).all(|(value, promised)| contains(value, promised))
        }
        _ => value == promised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(promise: &str, body: &str, before: &str) -> bool {
        let answer = |body: &str| {
            let head = "HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\n\r\n";
            Answer::of_curl(&format!("{head}{body}")).unwrap()
        };
        Promise::read(promise).unwrap().holds(&answer(body), Some(&answer(before)))
    }

    #[test]
    fn true_promises_hold_and_lies_do_not() {
        let order = r#"{"id":1,"lines":[{"sku":"a"}]}"#;
        for (promise, truth) in [
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
            assert_eq!(holds(promise, order, order), truth, "{promise}");
        }
        assert!(!holds("the same body", order, "other") && holds("another body", order, "other"));
        assert!(!holds("{}", "not JSON", ""));
    }

    #[test]
    fn the_first_command_has_no_body_before_it() {
        let answer = Answer::of_curl("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(!Promise::SameBody.holds(&answer, None));
        assert!(!Promise::AnotherBody.holds(&answer, None));
    }

    #[test]
    fn a_promise_that_nobody_can_check_is_refused() {
        for text in ["", "it works", "same body", "no such header here", "{\"id\":", "a b: c"] {
            assert!(Promise::read(text).is_err(), "{text}");
        }
    }
}
