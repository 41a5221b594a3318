//! The meaning of a request, for the guard: enough to tell the suite's requests apart.

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use onceward_core::Fingerprint;
use serde_json::{Number, Value};

/// How numbers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Whole numbers exactly.
    Exact,
    /// All as floating-point numbers, as many JSON libraries do.
    Floats,
}

pub(crate) fn fingerprint(request: &Request<Bytes>, reading: Reading, path: bool) -> Fingerprint {
    let text = |name| request.headers().get(name).map(http::HeaderValue::as_bytes);
    let media_type = text(CONTENT_TYPE).unwrap_or_default();
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    let mut query: Vec<_> = request.uri().query().unwrap_or_default().split('&').collect();
    query.sort_by_key(|pair| pair.split('=').next());
    let query = query.join("&");
    let mut body = request.body().clone();
    if text(CONTENT_ENCODING) == Some(b"gzip") {
        body = unstored(&body);
    }
    let body = meaning(essence, media_type, &body, reading);
    let place = if path { request.uri().path().as_bytes() } else { b"" };
    let method = request.method().as_str().as_bytes();
    Fingerprint::of_parts(&[method, place, query.as_bytes(), essence, &body])
}

fn meaning(essence: &[u8], media_type: &[u8], body: &Bytes, reading: Reading) -> Vec<u8> {
    if essence == b"application/json"
        && let Ok(mut value) = serde_json::from_slice::<Value>(body)
    {
        same_numbers(&mut value, reading);
        return value.to_string().into_bytes();
    }
    let media_type = String::from_utf8_lossy(media_type);
    match media_type.split_once("boundary=") {
        Some((_, boundary)) => body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.starts_with(format!("--{boundary}").as_bytes()))
            .collect::<Vec<_>>()
            .join(&b'\n'),
        None => body.to_vec(),
    }
}

fn same_numbers(value: &mut Value, reading: Reading) {
    match value {
        Value::Number(number) => *number = same_number(number, reading),
        Value::Array(items) => items.iter_mut().for_each(|item| same_numbers(item, reading)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| same_numbers(member, reading));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn same_number(number: &Number, reading: Reading) -> Number {
    let float = number.as_f64().unwrap_or_default();
    if reading == Reading::Exact && number.is_i64() {
        return number.clone();
    }
    let whole = float.fract() == 0.0 && float.abs() < 2f64.powi(53);
    let whole = whole.then(|| Number::from(float as i64));
    whole.or_else(|| Number::from_f64(float)).unwrap_or_else(|| number.clone())
}

/// Contents of a gzip file with one stored block, as the suite sends it.
fn unstored(file: &Bytes) -> Bytes {
    file.slice(15..file.len() - 8)
}
