//! The parts of a buffered request that are compared with those of the first one.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method, Uri};

use crate::body::{Undecoded, decode};
use crate::problem::Problem;

/// The parts of a request that its fingerprint is computed from.
#[derive(Clone, Copy)]
pub(crate) struct RequestView<'a> {
    pub(crate) method: &'a Method,
    /// Name of the operation, which stands for the route.
    pub(crate) operation: &'a str,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// Largest body after decompression.
    pub(crate) bytes_max: usize,
}

impl<'a> RequestView<'a> {
    /// Returns the body without its compression. A body that cannot be decoded stays as it was sent,
    /// with the name of its coding, so that it equals no other.
    pub(crate) fn decoded_body(&self) -> Result<Cow<'a, [u8]>, Problem> {
        let body: &[u8] = self.body;
        let codings = self.headers.get_all(CONTENT_ENCODING);
        let mut codings = codings.iter().map(|value| value.as_bytes().trim_ascii());
        let Some(coding) = codings.next() else { return Ok(Cow::Borrowed(body)) };
        if codings.next().is_some() {
            return Ok(as_sent(coding, body));
        }
        match decode(coding, body, self.bytes_max) {
            Ok(decoded) => Ok(decoded),
            Err(Undecoded::TooLarge) => Err(Problem::request_too_large(self.bytes_max)),
            Err(Undecoded::Unknown | Undecoded::Broken) => Ok(as_sent(coding, body)),
        }
    }
}

fn as_sent<'a>(coding: &[u8], body: &[u8]) -> Cow<'a, [u8]> {
    let mut marked = b"\0content-coding:".to_vec();
    marked.extend_from_slice(coding);
    marked.push(0);
    marked.extend_from_slice(body);
    Cow::Owned(marked)
}
