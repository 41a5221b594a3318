//! What tells a retry from another request: one digest over what the request means.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Uri};
use onceward_core::{Difference, Fingerprint, Part, Scope};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use crate::canonical::{InvalidPointer, Selection, canonicalize, part_names};
use crate::coding::{self, Undecoded};
use crate::exchange::too_large;
use crate::form;
use crate::host::host_name;
use crate::multipart;
use crate::problem::Problem;
use crate::rules::FingerprintRules;
use crate::seen::Fields;

/// Number of these rules; a change of what is hashed needs a new one. 16 had neither host nor
/// credentials, and took forms as bytes.
const HTTP_V2: u8 = 18;

/// What a fingerprint is taken of.
pub(crate) struct Subject<'a> {
    pub(crate) method: &'a Method,
    /// The operation's name, which stands for the route.
    pub(crate) operation: &'a str,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// Largest body after decompression.
    pub(crate) bytes_max: usize,
}

/// The rules of one operation, ready for use.
pub(crate) struct Fingerprinter {
    selection: Selection,
    api_version: Option<HeaderName>,
    host: bool,
    compare: bool,
    explain: bool,
    /// Whether a key is bound to the credentials of its first request.
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

    /// The digest of a request in its scope, and its parts where a mismatch is to be explained.
    pub(crate) fn fingerprint(
        &self,
        subject: &Subject<'_>,
        scope: &Scope,
    ) -> Result<(Fingerprint, Vec<Part>), Problem> {
        let mut tuple = Tuple::new(self.explain);
        if self.bind_credentials {
            tuple.credentials(scope.caller().as_bytes());
        }
        if self.compare {
            self.request(&mut tuple, subject)?;
        }
        Ok((Fingerprint::from_digest(HTTP_V2, Sha256::digest(&tuple.bytes).into()), tuple.parts))
    }

    fn request(&self, tuple: &mut Tuple, subject: &Subject<'_>) -> Result<(), Problem> {
        tuple.bytes.reserve(256 + subject.body.len() + subject.body.len() / 8);
        tuple.field(subject.method.as_str().as_bytes());
        tuple.field(subject.operation.as_bytes());
        let media = MediaType::of(subject.headers);
        for (position, (_, value)) in self.head(subject, &media).iter().enumerate() {
            tuple.named(position as u64, value);
        }
        let body = decoded(subject)?;
        self.body(tuple, &media, &body);
        Ok(())
    }

    /// Whether a refused request came with other credentials than the first one.
    pub(crate) fn other_credentials(&self, difference: Difference) -> bool {
        self.bind_credentials && difference.changed().next() == Some(0)
    }

    /// All that [`fingerprint`](Self::fingerprint) looks at, as it was sent.
    pub(crate) fn looked_at(&self, subject: &Subject<'_>, fields: &mut Fields) {
        fields.push(subject.method.as_str().as_bytes());
        fields.push(subject.operation.as_bytes());
        fields.push(subject.uri.path().as_bytes());
        fields.push(subject.uri.query().unwrap_or_default().as_bytes());
        fields.push(self.host(subject).as_bytes());
        for name in [Some(&CONTENT_TYPE), Some(&CONTENT_ENCODING), self.api_version.as_ref()] {
            let lines = name.map(|name| subject.headers.get_all(name));
            fields.push_list(lines.iter().flatten().map(HeaderValue::as_bytes));
        }
        fields.push(subject.body);
    }

    /// Names the parts of a request in which it differs from the first one.
    pub(crate) fn explain(&self, subject: &Subject<'_>, difference: Difference) -> Vec<String> {
        let Ok(body) = decoded(subject) else { return Vec::new() };
        let media = MediaType::of(subject.headers);
        let mut names = Vec::new();
        names.extend(self.bind_credentials.then(|| CREDENTIALS.to_owned()));
        if self.compare && self.explain {
            names.extend(self.head(subject, &media).into_iter().map(|(name, _)| name.to_owned()));
            names.extend(self.body_names(&media, &body));
        }
        let mut told: Vec<String> =
            difference.changed().filter_map(|position| names.get(position)).cloned().collect();
        if difference.missing() > 0 {
            told.push(format!("body ({} fewer)", fields(difference.missing())));
        }
        told
    }

    /// What lies outside the body and matters, in a fixed order.
    fn head<'a>(
        &self,
        subject: &Subject<'a>,
        media: &'a MediaType<'_>,
    ) -> [(&'static str, Cow<'a, [u8]>); HEAD_PARTS] {
        let version = self.api_version.as_ref().and_then(|name| subject.headers.get(name));
        [
            ("host", into_bytes(self.host(subject))),
            ("path", Cow::Borrowed(subject.uri.path().as_bytes())),
            ("query", sorted_query(subject.uri.query())),
            ("content-type", Cow::Borrowed(&media.essence)),
            ("api-version", Cow::Borrowed(version.map_or(b"", |value| value.as_bytes()))),
        ]
    }

    fn host<'a>(&self, subject: &Subject<'a>) -> Cow<'a, str> {
        if self.host { host_name(subject.uri, subject.headers) } else { Cow::Borrowed("") }
    }

    fn body(&self, tuple: &mut Tuple, media: &MediaType<'_>, body: &[u8]) {
        match media.kind() {
            Kind::Json if tuple.json(body, &self.selection) => {}
            Kind::Multipart(boundary) if tuple.multipart(body, &boundary) => {}
            Kind::Form if tuple.form(body) => {}
            _ => tuple.raw(body),
        }
    }

    /// The names of the parts that [`Self::body`] makes, in their order.
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
            Kind::Json => json(),
            Kind::Multipart(boundary) => multipart(&boundary),
            Kind::Form => form(),
            Kind::Other => None,
        };
        names.map_or_else(|| vec!["body".into()], |names| names.into_iter().map(pointer).collect())
    }
}

/// A field's name as it is told to clients. One that does not look like a name may be data, and is
/// told as the body.
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

pub(crate) fn fields(count: usize) -> String {
    if count == 1 { "1 field".into() } else { format!("{count} fields") }
}

/// The bytes that are hashed, every field with its length, and hashes of its parts.
struct Tuple {
    bytes: Vec<u8>,
    explain: bool,
    parts: Vec<Part>,
}

/// How many parts lie outside of the body, without the credentials.
const HEAD_PARTS: usize = 5;

/// Parts outside of the body are named by small numbers, their positions; a body that is one
/// part, by the next, and credentials by the one after. Names inside a body are hashes.
const WHOLE_BODY: u64 = HEAD_PARTS as u64;
const CREDENTIALS_PART: u64 = WHOLE_BODY + 1;

/// The part of a fingerprint that names other credentials.
const CREDENTIALS: &str = "credentials";

/// Longest name of a form's field that is told to clients.
const SHOWN_NAME_BYTES_MAX: usize = 64;

/// Enough for most requests.
const PARTS: usize = 20;

/// How a body went in. Two ways never give the same bytes.
#[derive(Clone, Copy)]
enum Domain {
    Raw = 0,
    Json = 1,
    Multipart = 2,
    Form = 3,
}

impl Tuple {
    fn new(explain: bool) -> Self {
        let parts = Vec::with_capacity(if explain { PARTS } else { 0 });
        Self { bytes: Vec::new(), explain, parts }
    }

    fn field(&mut self, field: &[u8]) {
        self.bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
        self.bytes.extend_from_slice(field);
    }

    /// A field that is a part of its own.
    fn named(&mut self, name: u64, field: &[u8]) {
        let begin = self.bytes.len();
        self.field(field);
        self.part(name, begin);
    }

    /// What was written since `begin` is a part.
    fn part(&mut self, name: u64, begin: usize) {
        if self.explain {
            self.parts.push(Part { name, value: xxh3_64(&self.bytes[begin..]) });
        }
    }

    /// Always a part, so that a refusal can name the reason.
    fn credentials(&mut self, credentials: &[u8]) {
        self.field(credentials);
        self.parts.push(Part { name: CREDENTIALS_PART, value: xxh3_64(credentials) });
    }

    fn raw(&mut self, body: &[u8]) {
        self.bytes.push(Domain::Raw as u8);
        self.named(WHOLE_BODY, body);
    }

    /// False, and nothing is written, if the body is not clean JSON.
    fn json(&mut self, body: &[u8], selection: &Selection) -> bool {
        self.bytes.push(Domain::Json as u8);
        let parts = self.explain.then_some(&mut self.parts);
        let clean = canonicalize(body, selection, &mut self.bytes, parts).is_ok();
        if !clean {
            self.bytes.pop();
        }
        clean
    }

    /// False, and nothing is written, if the body is not a clean form.
    fn multipart(&mut self, body: &[u8], boundary: &str) -> bool {
        let Ok(parts) = multipart::parts(body, boundary) else { return false };
        self.bytes.push(Domain::Multipart as u8);
        self.bytes.extend_from_slice(&(parts.len() as u64).to_be_bytes());
        for part in parts {
            let begin = self.bytes.len();
            self.field(part.name);
            for optional in [part.filename, part.filename_extended, part.content_type] {
                self.bytes.push(u8::from(optional.is_some()));
                self.field(optional.unwrap_or_default());
            }
            self.field(part.bytes);
            self.part(xxh3_64(part.name), begin);
        }
        true
    }
}

impl Tuple {
    /// False, and nothing is written, if the body is not a clean form.
    fn form(&mut self, body: &[u8]) -> bool {
        let Some(fields) = form::fields(body) else { return false };
        self.bytes.push(Domain::Form as u8);
        self.bytes.extend_from_slice(&(fields.len() as u64).to_be_bytes());
        for form::Field { name, value } in fields {
            let begin = self.bytes.len();
            self.field(&name);
            self.field(&value);
            self.part(xxh3_64(&name), begin);
        }
        true
    }
}

/// Sorted by name; the order of equal names is kept, as it may matter.
fn sorted_query(query: Option<&str>) -> Cow<'_, [u8]> {
    let Some(query) = query.filter(|query| query.contains('&')) else {
        return Cow::Borrowed(query.unwrap_or_default().as_bytes());
    };
    let mut pairs: Vec<&str> = query.split('&').collect();
    pairs.sort_by_key(|pair| pair.split_once('=').map_or(*pair, |(name, _)| name));
    Cow::Owned(pairs.join("&").into_bytes())
}

/// A content type.
struct MediaType<'a> {
    text: &'a [u8],
    /// In lower case and without parameters: the boundary and the character set do not matter.
    essence: Cow<'a, [u8]>,
}

enum Kind {
    Json,
    Multipart(String),
    Form,
    Other,
}

impl<'a> MediaType<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let text = headers.get(CONTENT_TYPE).map_or(b"".as_slice(), |value| value.as_bytes());
        if text == b"application/json" {
            return Self { text, essence: Cow::Borrowed(text) }; // as nearly always
        }
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        let bare = text[..end].trim_ascii();
        let lower = !bare.iter().any(u8::is_ascii_uppercase);
        let essence =
            if lower { Cow::Borrowed(bare) } else { Cow::Owned(bare.to_ascii_lowercase()) };
        Self { text, essence }
    }

    fn kind(&self) -> Kind {
        if *self.essence == *b"application/json" || self.essence.ends_with(b"+json") {
            return Kind::Json;
        }
        if *self.essence == *b"application/x-www-form-urlencoded" {
            return Kind::Form;
        }
        match self.boundary() {
            Some(boundary) if *self.essence == *b"multipart/form-data" => Kind::Multipart(boundary),
            _ => Kind::Other,
        }
    }

    fn boundary(&self) -> Option<String> {
        let text = std::str::from_utf8(self.text).ok()?;
        text.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let boundary = name.trim().eq_ignore_ascii_case("boundary");
            boundary.then(|| value.trim().trim_matches('"').to_owned())
        })
    }
}

/// The body without its compression. What cannot be decoded stays as it was sent, with the
/// name of its coding, so that it equals nothing else.
pub(crate) fn decoded<'a>(subject: &Subject<'a>) -> Result<Cow<'a, [u8]>, Problem> {
    let body: &[u8] = subject.body;
    let codings = subject.headers.get_all(CONTENT_ENCODING);
    let mut codings = codings.iter().map(|value| value.as_bytes().trim_ascii());
    let Some(coding) = codings.next() else { return Ok(Cow::Borrowed(body)) };
    if codings.next().is_some() {
        return Ok(as_sent(coding, body));
    }
    match coding::decode(coding, body, subject.bytes_max) {
        Ok(decoded) => Ok(decoded),
        Err(Undecoded::TooLarge) => Err(too_large(subject.bytes_max)),
        Err(Undecoded::Unknown | Undecoded::Broken) => Ok(as_sent(coding, body)),
    }
}

fn as_sent<'a>(coding: &[u8], body: &[u8]) -> Cow<'a, [u8]> {
    let mut marked = b"\0content-coding:".to_vec();
    marked.extend_from_slice(coding);
    marked.push(0);
    marked.extend_from_slice(body);
    Cow::Owned(marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A request, of which each test changes something.
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

    fn with<T>(request: &Sent, use_it: impl FnOnce(&Subject<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            headers.append(*name, value.parse().unwrap());
        }
        let (uri, body) = (request.uri.parse().unwrap(), Bytes::from(request.body.clone()));
        use_it(&Subject {
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
        with(request, |subject| plain().fingerprint(subject, &scope("-")).unwrap().0)
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
    fn what_does_not_change_the_meaning_does_not_change_the_fingerprint() {
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
    fn only_what_looks_like_a_name_is_told() {
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
            assert_ne!(of("a").1[0], of("b").1[0], "the first part tells");
            let free = Fingerprinter::new(&rules, false).unwrap();
            let of = |credentials| {
                with(&json("{}"), |it| free.fingerprint(it, &scope(credentials)).unwrap().0)
            };
            assert_eq!(of("a"), of("b"));
        }
    }

    #[test]
    fn everything_else_does() {
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
        let refused = with(&bomb, |subject| plain().fingerprint(subject, &scope("-")).unwrap_err());
        assert_eq!(refused.code(), crate::Code::RequestTooLarge);
    }

    #[test]
    fn fields_that_do_not_matter_do_not() {
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
            let (parts, names) = with(&request, |subject| {
                let parts = plain().fingerprint(subject, &scope("-")).unwrap().1;
                let body = decoded(subject).unwrap();
                (parts, plain().body_names(&MediaType::of(subject.headers), &body))
            });
            assert_eq!(parts.len(), HEAD_PARTS + names.len(), "{names:?}");
        }
        let names = with(&json(r#"{"b":{"c":1},"a":1}"#), |subject| {
            plain().body_names(&MediaType::of(subject.headers), subject.body)
        });
        assert_eq!(names, ["body:/a", "body:/b/c"]);
    }
}
