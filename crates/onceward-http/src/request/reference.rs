//! Parsing of the business reference.

use http::{HeaderMap, HeaderName};
use onceward_core::{BusinessReference, InvalidKey};
use serde_json::Value;

use crate::problem::{Code, Problem};
use crate::rules::{ReferenceFrom, ReferenceRules};

impl ReferenceRules {
    /// Returns the reference of a request with these headers and this decoded body, if it has one.
    pub(crate) fn find(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Option<BusinessReference>, Problem> {
        let text = match &self.from {
            ReferenceFrom::Header(name) => in_header(headers, name)?,
            ReferenceFrom::Body(pointer) => in_body(body, pointer)?,
        };
        let reference = text.map(|text| BusinessReference::new(&text, self.known)).transpose();
        reference.map_err(|error| self.invalid(&error))
    }

    /// Names the place of an invalid reference, never its text.
    fn invalid(&self, error: &InvalidKey) -> Problem {
        let place = match &self.from {
            ReferenceFrom::Header(name) => format!("the header {name}"),
            ReferenceFrom::Body(pointer) => format!("the member {pointer} of the body"),
        };
        let why = match error {
            InvalidKey::TooLong { length } => format!("it has {length} characters, 255 is most"),
            InvalidKey::Character { position, .. } => {
                format!("character {} is not printable ASCII", position + 1)
            }
            _ => "it is empty".to_owned(),
        };
        Problem::new(Code::InvalidReference).detail(format!("{place}: {why}"))
    }
}

fn in_header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let detail = format!("the header {name} occurs more than once");
        return Err(Problem::new(Code::InvalidReference).detail(detail));
    }
    let text = value.to_str().map_err(|_| {
        Problem::new(Code::InvalidReference).detail(format!("the header {name} is not ASCII"))
    })?;
    Ok(Some(text.trim().to_owned()))
}

/// A body that is not JSON has no reference. Whether it should be JSON is up to the handler.
fn in_body(body: &[u8], pointer: &str) -> Result<Option<String>, Problem> {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Ok(None) };
    match value.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            let detail = format!("the member {pointer} of the body is not a text or a number");
            Err(Problem::new(Code::InvalidReference).detail(detail))
        }
    }
}
