//! The fingerprint: one digest of a request's meaning, which tells a retry from another request.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Fingerprinter`]: fingerprints, and the names of the parts that differ |
//! | `hash_input` | the bytes that are hashed |
//! | `media_type` | which bodies are compared by meaning |
//! | `form`, `multipart` | URL-encoded and multipart forms |
//! | `json` | fingerprints of JSON without a request (the claims API) |
//! | `raw_fields` | a request's fields as they were sent (the replay cache) |

pub(crate) mod form;
mod hash_input;
mod json;
mod media_type;
pub(crate) mod multipart;
mod raw_fields;

use std::borrow::Cow;

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use onceward_core::{Difference, Fingerprint, Part, Scope};
use sha2::{Digest, Sha256};

use super::canonical::{InvalidPointer, Selection, part_names};
use super::host::host_name;
use super::request_view::RequestView;
use crate::problem::Problem;
use crate::rules::FingerprintRules;
use hash_input::{HEAD_PARTS, HashInput};
use media_type::{BodyKind, MediaType};

pub use json::{json_differences, json_fingerprint};
pub(crate) use raw_fields::RawFields;

/// Number of these hashing rules; a change of the hashed bytes needs a new number. 16 had neither
/// host nor credentials, and took forms as bytes.
const HTTP_V2: u8 = 18;

/// Name of the credentials' part.
const CREDENTIALS: &str = "credentials";

/// Longest name of a form field that a refusal contains.
const SHOWN_NAME_BYTES_MAX: usize = 64;

/// Computes fingerprints by the rules of one operation.
pub(crate) struct Fingerprinter {
    selection: Selection,
    api_version: Option<HeaderName>,
    host: bool,
    compare: bool,
    explain: bool,
    /// A key is bound to the credentials of its first request.
    bind_credentials: bool,
}

impl Fingerprinter {
    pub(crate) fn new(
        rules: &FingerprintRules,
        bind_credentials: bool,
    ) -> Result<Self, InvalidPointer> {
        let selection = Selection::new(&rules.include, &rules.exclude)?;
        let FingerprintRules { api_version, host, compare, explain, .. } = rules.clone();
        Ok(Self { selection, api_version, host, compare, explain, bind_credentials })
    }

    /// Returns the digest of a request in its scope, and its parts if mismatches are explained.
    pub(crate) fn fingerprint(
        &self,
        request: &RequestView<'_>,
        scope: &Scope,
    ) -> Result<(Fingerprint, Vec<Part>), Problem> {
        let mut input = HashInput::new(self.explain);
        if self.bind_credentials {
            input.credentials(scope.caller().as_bytes());
        }
        if self.compare {
            self.write_request(&mut input, request)?;
        }
        Ok((Fingerprint::from_digest(HTTP_V2, Sha256::digest(&input.bytes).into()), input.parts))
    }

    fn write_request(
        &self,
        input: &mut HashInput,
        request: &RequestView<'_>,
    ) -> Result<(), Problem> {
        input.bytes.reserve(256 + request.body.len() + request.body.len() / 8);
        input.field(request.method.as_str().as_bytes());
        input.field(request.operation.as_bytes());
        let media = MediaType::of(request.headers);
        for (position, (_, value)) in self.head(request, &media).iter().enumerate() {
            input.named(position as u64, value);
        }
        let body = request.decoded_body()?;
        self.write_body(input, &media, &body);
        Ok(())
    }

    /// Returns true if a refused request came with other credentials than the first one.
    pub(crate) fn other_credentials(&self, difference: Difference) -> bool {
        self.bind_credentials && difference.changed().next() == Some(0)
    }

    /// Appends everything that [`fingerprint`](Self::fingerprint) depends on, as it was sent.
    pub(crate) fn write_raw(&self, request: &RequestView<'_>, fields: &mut RawFields) {
        fields.push(request.method.as_str().as_bytes());
        fields.push(request.operation.as_bytes());
        fields.push(request.uri.path().as_bytes());
        fields.push(request.uri.query().unwrap_or_default().as_bytes());
        fields.push(self.host(request).as_bytes());
        for name in [Some(&CONTENT_TYPE), Some(&CONTENT_ENCODING), self.api_version.as_ref()] {
            let lines = name.map(|name| request.headers.get_all(name));
            fields.push_list(lines.iter().flatten().map(HeaderValue::as_bytes));
        }
        fields.push(request.body);
    }

    /// Returns the names of the parts in which a request differs from the first one.
    pub(crate) fn explain(&self, request: &RequestView<'_>, difference: Difference) -> Vec<String> {
        let Ok(body) = request.decoded_body() else { return Vec::new() };
        let media = MediaType::of(request.headers);
        let mut names = Vec::new();
        names.extend(self.bind_credentials.then(|| CREDENTIALS.to_owned()));
        if self.compare && self.explain {
            names.extend(self.head(request, &media).into_iter().map(|(name, _)| name.to_owned()));
            names.extend(self.body_names(&media, &body));
        }
        let mut differing: Vec<String> =
            difference.changed().filter_map(|position| names.get(position)).cloned().collect();
        if difference.missing() > 0 {
            differing.push(format!("body ({} fewer)", fields(difference.missing())));
        }
        differing
    }

    /// The parts outside the body, in a fixed order.
    fn head<'a>(
        &self,
        request: &RequestView<'a>,
        media: &'a MediaType<'_>,
    ) -> [(&'static str, Cow<'a, [u8]>); HEAD_PARTS] {
        let version = self.api_version.as_ref().and_then(|name| request.headers.get(name));
        [
            ("host", into_bytes(self.host(request))),
            ("path", Cow::Borrowed(request.uri.path().as_bytes())),
            ("query", sorted_query(request.uri.query())),
            ("content-type", Cow::Borrowed(&media.essence)),
            ("api-version", Cow::Borrowed(version.map_or(b"", |value| value.as_bytes()))),
        ]
    }

    fn host<'a>(&self, request: &RequestView<'a>) -> Cow<'a, str> {
        if self.host { host_name(request.uri, request.headers) } else { Cow::Borrowed("") }
    }

    fn write_body(&self, input: &mut HashInput, media: &MediaType<'_>, body: &[u8]) {
        match media.kind() {
            BodyKind::Json if input.json(body, &self.selection) => {}
            BodyKind::Multipart(boundary) if input.multipart(body, &boundary) => {}
            BodyKind::Form if input.form(body) => {}
            _ => input.raw(body),
        }
    }

    /// Returns the names of the parts that [`Self::write_body`] writes, in their order.
    fn body_names(&self, media: &MediaType<'_>, body: &[u8]) -> Vec<String> {
        let pointer =
            |pointer: String| format!("body{}{pointer}", if pointer.is_empty() { "" } else { ":" });
        let json = || part_names(body, &self.selection).ok();
        let multipart = |boundary: &str| {
            let parts = multipart::parts(body, boundary).ok()?;
            Some(parts.into_iter().map(|part| shown(part.name)).collect())
        };
        let form =
            || Some(form::fields(body)?.into_iter().map(|field| shown(&field.name)).collect());
        let names: Option<Vec<String>> = match media.kind() {
            BodyKind::Json => json(),
            BodyKind::Multipart(boundary) => multipart(&boundary),
            BodyKind::Form => form(),
            BodyKind::Other => None,
        };
        names.map_or_else(|| vec!["body".into()], |names| names.into_iter().map(pointer).collect())
    }
}

/// Returns a form field's name for refusals. A name with unusual characters may be data: it is
/// reported as the body.
fn shown(name: &[u8]) -> String {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(byte);
    match name.len() <= SHOWN_NAME_BYTES_MAX && name.iter().all(is_name) {
        true => String::from_utf8_lossy(name).into_owned(),
        false => String::new(),
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Formats a number of fields.
pub(crate) fn fields(count: usize) -> String {
    if count == 1 { "1 field".into() } else { format!("{count} fields") }
}

/// Returns the query sorted by name. The order of equal names stays, because it may matter.
fn sorted_query(query: Option<&str>) -> Cow<'_, [u8]> {
    let Some(query) = query.filter(|query| query.contains('&')) else {
        return Cow::Borrowed(query.unwrap_or_default().as_bytes());
    };
    let mut pairs: Vec<&str> = query.split('&').collect();
    pairs.sort_by_key(|pair| pair.split_once('=').map_or(*pair, |(name, _)| name));
    Cow::Owned(pairs.join("&").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use std::io::Write;

    /// A request; each test changes a part of it.
    #[derive(Clone)]
    struct Sent {
        method: Method,
        uri: &'static str,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    }

    fn sent(content_type: &str, body: impl Into<Vec<u8>>) -> Sent {
        let headers = vec![("content-type", content_type.to_owned())];
        Sent { method: Method::POST, uri: "/orders?a=1&b=2", headers, body: body.into() }
    }

    fn json(body: &str) -> Sent {
        sent("application/json", body)
    }

    fn with<T>(request: &Sent, use_it: impl FnOnce(&RequestView<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            headers.append(*name, value.parse().unwrap());
        }
        let (uri, body) = (request.uri.parse().unwrap(), Bytes::from(request.body.clone()));
        use_it(&RequestView {
            method: &request.method,
            operation: "op",
            uri: &uri,
            headers: &headers,
            body: &body,
            bytes_max: 1000,
        })
    }

    fn scope(credentials: &str) -> Scope {
        Scope::bound("t", credentials, "op").unwrap()
    }

    fn plain() -> Fingerprinter {
        Fingerprinter::new(&FingerprintRules::default(), false).unwrap()
    }

    fn of(request: &Sent) -> Fingerprint {
        with(request, |view| plain().fingerprint(view, &scope("-")).unwrap().0)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn compressed(body: Vec<u8>) -> Sent {
        let mut request = sent("application/json", body);
        request.headers.push(("content-encoding", "gzip".into()));
        request
    }

    #[test]
    fn requests_of_equal_meaning_have_equal_fingerprints() {
        let first = of(&json(r#"{"a":100,"b":"x"}"#));
        let same = [
            json(r#"{ "b": "x", "a": 1e2 }"#),
            sent("application/json; charset=utf-8", r#"{"a":100,"b":"x"}"#),
            sent("Application/JSON", r#"{"a":100,"b":"x"}"#),
            Sent { uri: "/orders?b=2&a=1", ..json(r#"{"a":100,"b":"x"}"#) },
            compressed(gzip(r#"{"a":100,"b":"x"}"#)),
        ];
        for request in same {
            assert_eq!(of(&request), first, "{:?} {:?}", request.headers, request.uri);
        }
        let mut traced = json(r#"{"a":100,"b":"x"}"#);
        traced.headers.push(("traceparent", "00-1-2-01".into()));
        traced.headers.push(("authorization", "Bearer new".into()));
        assert_eq!(of(&traced), first);
    }

    #[test]
    fn only_plain_field_names_are_reported() {
        assert_eq!(shown(b"metadata[order_id]"), "metadata[order_id]");
        for data in [&b"{\"card\":\"4242\"}"[..], b"4242 4242", &[b'x'; 65], b"\xff"] {
            assert_eq!(shown(data), "");
        }
    }

    #[test]
    fn a_form_is_its_fields_and_not_their_spelling() {
        let form = |body: &str| of(&sent("application/x-www-form-urlencoded", body));
        let first = form("amount=100&note=a+b");
        assert_eq!(first, form("note=a%20b&amount=100"));
        assert_eq!(first, form("n%6fte=a+b&amount=100"));
        for other in ["amount=100&note=a%2Bb", "amount=100", "amount=100&note=a+b&x", "%zz"] {
            assert_ne!(first, form(other), "{other}");
        }
        assert_ne!(form("a=1&a=2"), form("a=2&a=1"));
        assert_ne!(of(&sent("text/plain", "a=1")), form("a=1"));
    }

    #[test]
    fn the_host_counts_unless_it_is_an_address_or_switched_off() {
        let at = |host: &str| {
            let mut request = json("{}");
            request.headers.push(("host", host.to_owned()));
            request
        };
        assert_ne!(of(&at("acme.example")), of(&at("beta.example")));
        assert_eq!(of(&at("acme.example:80")), of(&at("ACME.example")));
        assert_eq!(of(&at("10.0.0.1")), of(&at("10.0.0.2:8080")));
        let rules = FingerprintRules { host: false, ..FingerprintRules::default() };
        let blind = Fingerprinter::new(&rules, false).unwrap();
        let of = |host| with(&at(host), |it| blind.fingerprint(it, &scope("-")).unwrap().0);
        assert_eq!(of("acme.example"), of("beta.example"));
    }

    #[test]
    fn bound_credentials_count_even_where_requests_are_not_compared() {
        for (compare, explain) in [(true, true), (true, false), (false, true), (false, false)] {
            let rules = FingerprintRules { compare, explain, ..FingerprintRules::default() };
            let bound = Fingerprinter::new(&rules, true).unwrap();
            let of = |credentials| {
                with(&json("{}"), |it| bound.fingerprint(it, &scope(credentials)).unwrap())
            };
            assert_eq!(of("a"), of("a"));
            assert_ne!(of("a").0, of("b").0);
            assert_ne!(of("a").1[0], of("b").1[0], "the first part is the credentials");
            let free = Fingerprinter::new(&rules, false).unwrap();
            let of = |credentials| {
                with(&json("{}"), |it| free.fingerprint(it, &scope(credentials)).unwrap().0)
            };
            assert_eq!(of("a"), of("b"));
        }
    }

    #[test]
    fn any_other_difference_changes_the_fingerprint() {
        let first = json(r#"{"a":1}"#);
        let others = [
            json(r#"{"a":2}"#),
            json(r#"{"a":"1"}"#),
            json(r#"{"a":1,"b":null}"#),
            json("{}"),
            json(""),
            sent("text/plain", r#"{"a":1}"#),
            sent("application/x-www-form-urlencoded", "a=1"),
            Sent { method: Method::PATCH, ..first.clone() },
            Sent { uri: "/orders?a=1&b=3", ..first.clone() },
            Sent { uri: "/orders/7?a=1&b=2", ..first.clone() },
            json(r#"{"a":1,"a":1}"#),
            compressed(br#"{"a":1}"#.to_vec()),
        ];
        let mut seen = vec![of(&first)];
        for request in others {
            let fingerprint = of(&request);
            assert!(!seen.contains(&fingerprint), "{:?}", String::from_utf8_lossy(&request.body));
            seen.push(fingerprint);
        }
    }

    #[test]
    fn equal_names_in_a_query_keep_their_order() {
        let query = |uri| of(&Sent { uri, ..json("{}") });
        assert_eq!(query("/?a=1&b=9&a=2"), query("/?b=9&a=1&a=2"));
        assert_ne!(query("/?a=1&a=2"), query("/?a=2&a=1"));
    }

    #[test]
    fn a_form_is_its_parts_and_not_its_boundary() {
        let form = |boundary: &str, file: &str| {
            let body = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n{file}\r\n--{boundary}--\r\n"
            );
            sent(&format!("multipart/form-data; boundary={boundary}"), body)
        };
        assert_eq!(of(&form("one", "data")), of(&form("two", "data")));
        assert_ne!(of(&form("one", "data")), of(&form("one", "datb")));
    }

    #[test]
    fn a_bomb_is_refused_by_its_size_after_decoding() {
        let bomb = compressed(gzip(&"0".repeat(100_000)));
        assert!(bomb.body.len() < 1000);
        let refused = with(&bomb, |view| plain().fingerprint(view, &scope("-")).unwrap_err());
        assert_eq!(refused.code(), crate::Code::RequestTooLarge);
    }

    #[test]
    fn excluded_fields_do_not_count() {
        let rules = FingerprintRules { exclude: vec!["/sent_at".into()], ..Default::default() };
        let fingerprinter = Fingerprinter::new(&rules, false).unwrap();
        let of =
            |body| with(&json(body), |it| fingerprinter.fingerprint(it, &scope("-")).unwrap().0);
        assert_eq!(of(r#"{"a":1,"sent_at":"now"}"#), of(r#"{"a":1,"sent_at":"then"}"#));
        assert_eq!(of(r#"{"a":1,"sent_at":"now"}"#), of(r#"{"a":1}"#));
        assert_ne!(of(r#"{"a":1,"sent_at":"now"}"#), of(r#"{"a":2,"sent_at":"now"}"#));
    }

    #[test]
    fn parts_and_their_names_go_together() {
        let requests = [
            json(r#"{"b":{"c":[1,2]},"a":1}"#),
            json("not json"),
            sent("text/plain", "x"),
            json("7"),
        ];
        for request in requests {
            let (parts, names) = with(&request, |view| {
                let parts = plain().fingerprint(view, &scope("-")).unwrap().1;
                let body = view.decoded_body().unwrap();
                (parts, plain().body_names(&MediaType::of(view.headers), &body))
            });
            assert_eq!(parts.len(), HEAD_PARTS + names.len(), "{names:?}");
        }
        let names = with(&json(r#"{"b":{"c":1},"a":1}"#), |view| {
            plain().body_names(&MediaType::of(view.headers), view.body)
        });
        assert_eq!(names, ["body:/a", "body:/b/c"]);
    }
}
