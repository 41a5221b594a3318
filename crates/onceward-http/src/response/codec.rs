//! The stored form of a response.
//!
//! Format `http/v1`: the status (two bytes, big endian), the headers, the trailers, and the body to
//! the end. Headers and trailers are a count and that many names and values, each with its length;
//! counts and lengths are LEB128. New fields need a new version.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode, header};
use onceward_core::{Outcome, Tag};
use smallvec::SmallVec;

use super::error_code::error_code_of;
use crate::body::{Accept, Whole, decode_for_client};
use crate::rules::{
    ReplayRules, ReplayStatus, ResponseBody, ResponseHeaders, Rules, is_never_stored,
};

/// Codec tag of HTTP responses.
pub const TAG: Tag = Tag::from_static("http/v1");

/// Returns the outcome that a response is stored as, for a [`Resolver`](onceward_core::Resolver)
/// with evidence of what happened: retries get this response, marked as a replay.
///
/// ```
/// use bytes::Bytes;
/// use onceward_core::Verdict;
/// use onceward_http::{Rules, outcome_of};
///
/// let receipt = http::Response::builder().status(201).body(Bytes::from("ch_17"))?;
/// let verdict = Verdict::Happened(outcome_of(receipt, &Rules::default()));
/// # Ok::<(), http::Error>(())
/// ```
pub fn outcome_of(response: Response<Bytes>, rules: &Rules) -> Outcome {
    let (head, bytes) = response.into_parts();
    stored_outcome(&head, &Whole { bytes, trailers: None }, rules, rules.response_body)
}

/// Returns the outcome of a response, with its body or without. A response that has no body is whole
/// in both cases.
pub(crate) fn stored_outcome(
    head: &Parts,
    whole: &Whole,
    rules: &Rules,
    body: ResponseBody,
) -> Outcome {
    let outcome = match body {
        ResponseBody::Omit if !whole.is_empty() => Outcome::omitted(TAG, encode_head(head, rules)),
        ResponseBody::Omit | ResponseBody::Store => {
            let error_code = error_code_of(head, &whole.bytes);
            Outcome::whole(TAG, encode(head, whole, rules)).with_error_code(error_code)
        }
    };
    outcome.with_status(head.status.as_u16())
}

/// Returns an outcome without the body of its response, as [`Fate::FinalHead`](crate::Fate) stores
/// it. Of another codec's outcome nothing is left.
pub fn outcome_head(outcome: &Outcome) -> Outcome {
    let head = response_of(outcome).map(|response| {
        let (head, _) = response.into_parts();
        let response_headers = all_of(&head.headers);
        encode_head(&head, &Rules { response_headers, ..Rules::default() })
    });
    let omitted = Outcome::omitted(outcome.tag.clone(), head.unwrap_or_default());
    Outcome { status: outcome.status, resource: outcome.resource.clone(), ..omitted }
}

/// Returns the outcome of a response that was written by hand. All its headers are stored, so a
/// header that belongs to one caller, one connection or one moment is refused.
pub fn outcome_of_all(response: Response<Bytes>) -> Result<Outcome, NeverStored> {
    if let Some(name) = response.headers().keys().find(|name| is_never_stored(name)) {
        return Err(NeverStored(name.clone()));
    }
    let response_headers = all_of(response.headers());
    Ok(outcome_of(response, &Rules { response_headers, ..Rules::default() }))
}

/// Returns rules that store all of these headers, except those that are never stored.
fn all_of(headers: &HeaderMap) -> ResponseHeaders {
    ResponseHeaders { keep: headers.keys().cloned().collect(), drop: Vec::new() }
}

/// A header that is never stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header {0} is never stored: it belongs to one caller, one connection or one moment")]
pub struct NeverStored(HeaderName);

/// Returns the response in an outcome, for display; `None` if the outcome is of another codec.
pub fn response_of(outcome: &Outcome) -> Option<Response<Bytes>> {
    let reply = (outcome.tag == TAG).then(|| decode(&outcome.bytes).ok()).flatten()?;
    let mut response = Response::new(reply.whole.bytes);
    (*response.status_mut(), *response.headers_mut()) = (reply.status, reply.headers);
    Some(response)
}

/// A stored response.
#[derive(Debug, Clone)]
pub(crate) struct StoredReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) whole: Whole,
}

/// Why stored bytes are not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("the stored reply ends too early")]
    Truncated,
    #[error("the stored reply has an impossible {0}")]
    Impossible(&'static str),
}

/// Encodes a response with its body.
pub(crate) fn encode(head: &Parts, whole: &Whole, rules: &Rules) -> Bytes {
    let headers = StoredHeaders::of(&head.headers, rules);
    let trailers = whole.trailers.as_ref().map(|trailers| StoredHeaders::of(trailers, rules));
    let trailers = trailers.unwrap_or_default();
    // Exact capacity: the store keeps the buffer as it is, unused capacity included.
    let mut out = Vec::with_capacity(2 + headers.len() + trailers.len() + whole.bytes.len());
    out.extend_from_slice(&head.status.as_u16().to_be_bytes());
    headers.put(&mut out);
    trailers.put(&mut out);
    out.extend_from_slice(&whole.bytes);
    out.into()
}

/// Encodes a response without its body.
pub(crate) fn encode_head(head: &Parts, rules: &Rules) -> Bytes {
    encode(head, &Whole::default(), rules)
}

/// Decodes the output of [`encode`].
pub(crate) fn decode(bytes: &Bytes) -> Result<StoredReply, Unreadable> {
    let mut input = Input { bytes, at: 0 };
    let status = input.take(2)?;
    let status = StatusCode::from_u16(u16::from_be_bytes([status[0], status[1]]))
        .map_err(|_| Unreadable::Impossible("status"))?;
    let headers = input.headers()?;
    let trailers = Some(input.headers()?).filter(|trailers| !trailers.is_empty()).map(Box::new);
    let whole = Whole { bytes: bytes.slice(input.at..), trailers };
    Ok(StoredReply { status, headers, whole })
}

/// Returns the response in an outcome; `None`, and an error in the log, if there is none.
pub(crate) fn stored_reply(outcome: &Outcome) -> Option<StoredReply> {
    if outcome.tag != TAG {
        tracing::error!(tag = outcome.tag.as_str(), "another codec's outcome under an HTTP key");
        return None;
    }
    decode(&outcome.bytes)
        .inspect_err(|error| tracing::error!(%error, "a stored reply cannot be read"))
        .ok()
}

/// Decodes a stored response and encodes it again with all its headers, for fuzzing.
pub(crate) fn round_trip(stored: &Bytes) -> Option<Bytes> {
    let reply = decode(stored).ok()?;
    let (mut head, ()) = Response::new(()).into_parts();
    (head.status, head.headers) = (reply.status, reply.headers);
    let mut response_headers = all_of(&head.headers);
    let trailers = reply.whole.trailers.iter().flat_map(|trailers| trailers.keys());
    response_headers.keep.extend(trailers.cloned());
    let rules = Rules { response_headers, ..Rules::default() };
    Some(encode(&head, &reply.whole, &rules))
}

impl StoredReply {
    /// Returns the response to a retry, in a coding that its client accepts.
    pub(crate) fn into_replay(mut self, rules: &ReplayRules, accept: &Accept) -> Response<Whole> {
        decode_for_client(&mut self.headers, &mut self.whole.bytes, accept);
        let mut response = Response::new(self.whole);
        *response.status_mut() = match rules.status {
            ReplayStatus::Ok if self.status == StatusCode::CREATED => StatusCode::OK,
            ReplayStatus::Ok | ReplayStatus::Original => self.status,
        };
        *response.headers_mut() = self.headers;
        mark(response.headers_mut(), rules);
        response
    }

    pub(crate) fn location(&self) -> Option<HeaderValue> {
        self.headers.get(header::LOCATION).cloned()
    }
}

/// Marks a response as a replay.
pub(super) fn mark(headers: &mut HeaderMap, rules: &ReplayRules) {
    for name in &rules.headers {
        headers.insert(name.clone(), HeaderValue::from_static("true"));
    }
}

/// The headers or trailers of a response that are stored.
#[derive(Default)]
struct StoredHeaders<'h>(SmallVec<[(&'h HeaderName, &'h HeaderValue); 8]>);

/// Most headers of a [`HeaderMap`].
const HEADERS_MAX: usize = 1 << 15;

/// Most headers that memory is reserved for before they are read.
const HEADERS_RESERVED_MAX: usize = 128;

/// Most bytes of the number of headers.
const COUNT_BYTES_MAX: usize = 3;

impl<'h> StoredHeaders<'h> {
    fn of(headers: &'h HeaderMap, rules: &Rules) -> Self {
        Self(headers.iter().filter(|(name, _)| rules.response_headers.stores(name)).collect())
    }

    /// Upper bound of the encoded length, at most a few bytes too large.
    fn len(&self) -> usize {
        let text = |text: &[u8]| text.len() + 1 + text.len() / 0x40;
        let fields = self.0.iter();
        COUNT_BYTES_MAX
            + fields.map(|(name, value)| text(name.as_ref()) + text(value.as_ref())).sum::<usize>()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len());
        for (name, value) in &self.0 {
            put_text(out, name.as_ref());
            put_text(out, value.as_bytes());
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len());
    out.extend_from_slice(text);
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Input<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let end = self.at.checked_add(length).ok_or(Unreadable::Truncated)?;
        let taken = self.bytes.get(self.at..end).ok_or(Unreadable::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, Unreadable> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unreadable::Impossible("length"))
    }

    fn text(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.number()?;
        self.take(length)
    }

    fn headers(&mut self) -> Result<HeaderMap, Unreadable> {
        let count = self.number()?;
        if count > HEADERS_MAX {
            return Err(Unreadable::Impossible("number of headers"));
        }
        // Capacity for the replay marks too, so that a replay does not grow the map. The count comes
        // from the store and may be damaged, so it reserves no more than an ordinary response needs.
        let room = if count == 0 { 0 } else { count.min(HEADERS_RESERVED_MAX) + 2 };
        let mut headers = HeaderMap::with_capacity(room);
        for _ in 0..count {
            let name = HeaderName::from_bytes(self.text()?)
                .map_err(|_| Unreadable::Impossible("header name"))?;
            // A slice of the stored bytes, no copy.
            let value = HeaderValue::from_maybe_shared(self.bytes.slice_ref(self.text()?))
                .map_err(|_| Unreadable::Impossible("header value"))?;
            headers
                .try_append(name, value)
                .map_err(|_| Unreadable::Impossible("number of headers"))?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(build: http::response::Builder) -> Parts {
        build.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_reply_survives_with_repeats_and_order_and_without_secrets() {
        let head = head(
            Response::builder()
                .status(201)
                .header("link", "<a>")
                .header("set-cookie", "session=canary")
                .header("link", "<b>")
                .header("x-kept", "1")
                .header("x-request-id", "canary"),
        );
        let rules = Rules::default();
        let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("t"))]);
        let whole = Whole {
            bytes: Bytes::from_static(b"a\0b"),
            trailers: Some(Box::new(trailers.clone())),
        };
        let stored = encode(&head, &whole, &rules);
        assert!(!stored.windows(6).any(|window| window == b"canary"));

        let reply = decode(&stored).unwrap();
        assert_eq!(reply.status, 201);
        assert_eq!(reply.headers.get_all("link").iter().collect::<Vec<_>>(), ["<a>", "<b>"]);
        assert_eq!(reply.headers["x-kept"], "1");
        assert_eq!(reply.headers.len(), 3);
        assert_eq!(reply.whole.bytes.as_ref(), b"a\0b");
        assert_eq!(reply.whole.trailers.as_deref(), Some(&trailers));
    }

    #[test]
    fn a_response_written_by_hand_is_stored_whole_or_refused() {
        let by_hand = |name: &str| {
            let build = Response::builder().status(201).header(name, "1").header("etag", "e");
            build.body(Bytes::from_static(b"a\0b")).unwrap()
        };
        let outcome = outcome_of_all(by_hand("x-receipt")).unwrap();
        let response = response_of(&outcome).unwrap();
        assert_eq!(
            (response.status(), response.body().as_ref()),
            (StatusCode::CREATED, &b"a\0b"[..])
        );
        assert_eq!(
            (&response.headers()["x-receipt"], response.headers().len()),
            (&"1".parse().unwrap(), 2)
        );
        let refused = outcome_of_all(by_hand("set-cookie")).unwrap_err();
        assert!(refused.to_string().contains("set-cookie"), "{refused}");
        assert!(response_of(&Outcome::whole(Tag::JSON, "{}")).is_none());
    }

    #[test]
    fn hundreds_of_headers_survive() {
        let headers: HeaderMap = (0..500)
            .map(|number| (format!("x-{number}").parse().unwrap(), HeaderValue::from(number)))
            .collect();
        let mut head = head(Response::builder());
        head.headers = headers.clone();
        assert_eq!(decode(&encode_head(&head, &Rules::default())).unwrap().headers, headers);
    }

    #[test]
    fn truncated_or_impossible_bytes_are_not_a_reply() {
        let head = head(Response::builder().header("etag", "e".repeat(300)));
        let stored = encode_head(&head, &Rules::default());
        for end in 0..stored.len() {
            assert!(decode(&stored.slice(..end)).is_err(), "{end}");
        }
        assert_eq!(decode(&stored).unwrap().headers["etag"].len(), 300);
        let bad = Bytes::from_static(&[0xff, 0xff, 0, 0]);
        assert_eq!(decode(&bad).unwrap_err(), Unreadable::Impossible("status"));
        let endless = Bytes::from_static(&[0, 200, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decode(&endless).unwrap_err(), Unreadable::Impossible("length"));
    }

    #[test]
    fn a_replay_is_marked_and_becomes_200_only_by_setting() {
        let stored =
            |status| encode_head(&head(Response::builder().status(status)), &Rules::default());
        let replay = |status, rules: &ReplayRules| {
            decode(&stored(status)).unwrap().into_replay(rules, &Accept::default())
        };
        let ok = ReplayRules { status: ReplayStatus::Ok, ..ReplayRules::default() };
        assert_eq!(replay(201, &ReplayRules::default()).status(), 201);
        assert_eq!(replay(201, &ok).status(), 200);
        assert_eq!(replay(409, &ok).status(), 409);
        let marked = replay(204, &ReplayRules::default());
        assert_eq!(marked.headers()["idempotent-replayed"], "true");
        assert_eq!(marked.headers()["idempotency-replayed"], "true");
    }
}
