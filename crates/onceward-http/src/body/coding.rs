//! Content codings: decoding of bodies, and the codings that a client accepts.

use std::borrow::Cow;
use std::io::Read;

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue};

/// Largest body of a replay that is decoded for a client; a larger one is sent as it is stored.
const REPLAY_BYTES_MAX: usize = 64 << 20;

/// Headers that describe the encoded bytes.
const OF_ENCODED_BYTES: [&str; 4] = ["content-digest", "content-md5", "digest", "repr-digest"];

/// Reasons why a body cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// The coding is not supported.
    Unknown,
    /// The body does not match its coding.
    Broken,
    /// The decoded body exceeds the limit.
    TooLarge,
}

/// Returns a body without its coding, of at most `bytes_max` bytes.
pub(crate) fn decode<'a>(
    coding: &[u8],
    body: &'a [u8],
    bytes_max: usize,
) -> Result<Cow<'a, [u8]>, Undecoded> {
    let decoder: Box<dyn Read + '_> = match coding.to_ascii_lowercase().as_slice() {
        b"identity" => return Ok(Cow::Borrowed(body)),
        b"gzip" | b"x-gzip" => Box::new(MultiGzDecoder::new(body)),
        b"deflate" => Box::new(ZlibDecoder::new(body)),
        _ => return Err(Undecoded::Unknown),
    };
    let mut out = Vec::new();
    match decoder.take(bytes_max as u64 + 1).read_to_end(&mut out) {
        Ok(_) if out.len() > bytes_max => Err(Undecoded::TooLarge),
        Ok(_) => Ok(Cow::Owned(out)),
        Err(_) => Err(Undecoded::Broken),
    }
}

/// Decodes a stored response if the client does not accept its coding and it can be decoded. The
/// first client may have accepted another coding.
pub(crate) fn decode_for_client(headers: &mut HeaderMap, body: &mut Bytes, accept: &Accept) {
    let Some(coding) = headers.get(CONTENT_ENCODING).cloned() else { return };
    let coding = coding.as_bytes().trim_ascii();
    if headers.get_all(CONTENT_ENCODING).iter().count() > 1 || accept.accepts(coding) {
        return;
    }
    let Ok(plain) = decode(coding, body, REPLAY_BYTES_MAX) else { return };
    *body = plain.into_owned().into();
    headers.remove(CONTENT_ENCODING);
    for name in OF_ENCODED_BYTES {
        headers.remove(name);
    }
    if let Some(weak) = headers.get(ETAG).and_then(weakened) {
        headers.insert(ETAG, weak);
    }
}

/// Makes a strong tag weak: it named the encoded bytes.
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    let strong = !tag.as_bytes().starts_with(b"W/");
    strong.then(|| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()).flatten()
}

/// The codings that a client accepts.
///
/// A client without `Accept-Encoding` is taken to accept none, although RFC 9110 would allow any:
/// clients that can decode say so.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accept(Option<HeaderValue>);

impl Accept {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(ACCEPT_ENCODING).iter();
        match (lines.next(), lines.next()) {
            (first, None) => Self(first.cloned()),
            (first, second) => {
                let all: Vec<&[u8]> = first
                    .into_iter()
                    .chain(second)
                    .chain(lines)
                    .map(HeaderValue::as_bytes)
                    .collect();
                Self(HeaderValue::from_bytes(&all.join(&b',')).ok())
            }
        }
    }

    fn accepts(&self, coding: &[u8]) -> bool {
        if coding.eq_ignore_ascii_case(b"identity") {
            return true;
        }
        let named = self.0.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        let weight = |wanted: &[u8]| {
            named.split(|byte| *byte == b',').find_map(|item| {
                let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
                let same = parts.next()?.eq_ignore_ascii_case(wanted);
                same.then(|| !parts.any(is_zero))
            })
        };
        weight(coding).or_else(|| weight(b"*")).unwrap_or(false)
    }
}

/// Returns true if a parameter is a weight of zero, which refuses a coding.
fn is_zero(parameter: &[u8]) -> bool {
    let weight = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    weight.is_some_and(|it| it.first() == Some(&b'0') && it.iter().all(|it| b"0.".contains(it)))
}

/// Removes the codings from `Accept-Encoding` that a replay could not be decoded from, before the
/// request goes to a service.
pub fn accept_only_decodable(headers: &mut HeaderMap) {
    let accept = Accept::of(headers);
    if accept.0.is_none() {
        return;
    }
    let kept: Vec<&str> =
        ["gzip", "deflate"].into_iter().filter(|it| accept.accepts(it.as_bytes())).collect();
    let kept = if kept.is_empty() { "identity".to_owned() } else { kept.join(", ") };
    if let Ok(kept) = HeaderValue::try_from(kept) {
        headers.insert(ACCEPT_ENCODING, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzipped(text: &str) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap().into()
    }

    fn accept(value: &str) -> Accept {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
        Accept::of(&headers)
    }

    #[test]
    fn a_coding_is_accepted_by_name_or_star_and_refused_by_zero() {
        for (value, yes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("*;q=0.1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, *", false),
            ("br", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(accept(value).accepts(b"gzip"), yes, "{value}");
        }
        assert!(!Accept::default().accepts(b"gzip") && Accept::default().accepts(b"identity"));
        let lines = [(ACCEPT_ENCODING, "br"), (ACCEPT_ENCODING, "gzip")];
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        assert!(Accept::of(&headers).accepts(b"gzip"));
    }

    #[test]
    fn a_body_is_decoded_for_a_client_that_cannot() {
        let stored = || {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(ETAG, HeaderValue::from_static("\"v1\""));
            headers.insert("content-digest", HeaderValue::from_static("sha-256=:x:"));
            (headers, gzipped("hello"))
        };
        let (mut headers, mut body) = stored();
        decode_for_client(&mut headers, &mut body, &Accept::default());
        assert_eq!(body, "hello");
        assert_eq!((headers.len(), &headers[ETAG]), (1, &HeaderValue::from_static("W/\"v1\"")));
        let (mut headers, mut body) = stored();
        decode_for_client(&mut headers, &mut body, &accept("gzip"));
        assert_eq!((headers.len(), body), (3, gzipped("hello")));
    }

    #[test]
    fn a_body_that_cannot_be_decoded_goes_as_it_is() {
        for (coding, bytes) in [("br", "brotli"), ("gzip", "not gzip")] {
            let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().unwrap())]);
            let mut body = Bytes::from(bytes);
            decode_for_client(&mut headers, &mut body, &Accept::default());
            assert_eq!(
                (headers[CONTENT_ENCODING].as_bytes(), &*body),
                (coding.as_bytes(), bytes.as_bytes())
            );
        }
    }

    #[test]
    fn a_service_is_asked_only_for_what_can_be_decoded_again() {
        for (sent, kept) in [
            ("br, gzip, zstd", "gzip"),
            ("deflate, gzip;q=0.5", "gzip, deflate"),
            ("*", "gzip, deflate"),
            ("br", "identity"),
        ] {
            let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, sent.parse().unwrap())]);
            accept_only_decodable(&mut headers);
            assert_eq!(headers[ACCEPT_ENCODING], kept, "{sent}");
        }
        let mut headers = HeaderMap::new();
        accept_only_decodable(&mut headers);
        assert!(headers.is_empty());
    }
}
