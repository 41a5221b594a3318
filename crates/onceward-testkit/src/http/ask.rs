//! A request of a case, and its builder.

use bytes::Bytes;
use http::Method;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answer::Answer;
use super::case::{Case, Stop};
use super::client::{self, Wire};
use super::raw;
use super::target::{Headers, KeySyntax};

/// Time limit of one answer. Our servers hold a client for five seconds while a store cannot take
/// the completion.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(15);
/// Least length of a secret that is searched in answers. Shorter ones occur by chance.
const CANARY_CHARS_MIN: usize = 6;

/// A request of a case, and its builder.
#[derive(Clone)]
pub(super) struct Ask<'a> {
    case: &'a Case,
    base: String,
    method: Method,
    path: String,
    key: Vec<Vec<u8>>,
    key_header: &'static str,
    key_name: String,
    caller: Headers,
    headers: Headers,
    content_type: String,
    body: Bytes,
    /// Secrets that an error must not repeat.
    canaries: Vec<String>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(case: &'a Case, method: Method, path: &str) -> Self {
        let ask = Self {
            case,
            base: case.target.base.clone(),
            method,
            path: path.to_owned(),
            key: Vec::new(),
            key_header: "Idempotency-Key",
            key_name: "no key".to_owned(),
            caller: case.target.caller.clone(),
            headers: Headers::new(),
            content_type: String::new(),
            body: Bytes::new(),
            canaries: Vec::new(),
        };
        let has_body = [Method::POST, Method::PATCH, Method::PUT].contains(&ask.method);
        if has_body { ask.amount(&canary_of(case)) } else { ask }
    }

    /// Sets the key, by the case's name for it.
    pub(super) fn key(self, name: &str) -> Self {
        let key = self.case.key(name);
        let ask = match self.case.expects().key_syntax {
            KeySyntax::SfString => self.key_text(&format!("\"{key}\"")),
            KeySyntax::Lenient | KeySyntax::Opaque => self.key_text(&key),
        };
        ask.called(name)
    }

    /// Sets the key to these characters.
    pub(super) fn key_text(self, text: &str) -> Self {
        self.key_bytes(text.as_bytes())
    }

    /// Adds a key header with these bytes. A second call adds a second header line.
    pub(super) fn key_bytes(mut self, bytes: &[u8]) -> Self {
        self.key.push(bytes.to_vec());
        self.canaries.push(String::from_utf8_lossy(bytes).trim_matches('"').to_owned());
        let length = bytes.len();
        self.called(&format!("of {length} bytes"))
    }

    /// Writes the key's header name in other letters. Needs [`Ask::send_raw`].
    pub(super) fn key_header(mut self, name: &'static str) -> Self {
        self.key_header = name;
        self
    }

    fn called(mut self, name: &str) -> Self {
        self.key_name = format!("key {name}");
        self
    }

    /// Sets the sample body for an amount, which is JSON text.
    pub(super) fn amount(mut self, amount: &str) -> Self {
        self.canaries.push(amount.to_owned());
        let body = (self.case.target.body)(amount);
        self.json(&body)
    }

    /// Sets the body to JSON text.
    pub(super) fn json(self, text: &str) -> Self {
        let text = text.to_owned();
        self.body("application/json", text)
    }

    /// Sets the body and its type.
    pub(super) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.content_type = content_type.to_owned();
        self
    }

    /// Adds a header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Tells the fixture what to do. Headers are no part of the fingerprint.
    pub(super) fn behave(self, how: &str) -> Self {
        self.header("X-Behave", how)
    }

    /// Sends it as another caller.
    pub(super) fn caller(mut self, caller: &Headers) -> Self {
        self.caller = caller.clone();
        self
    }

    /// Sends it to another node.
    pub(super) fn at(mut self, base: &str) -> Self {
        base.clone_into(&mut self.base);
        self
    }

    /// Sets path and query.
    pub(super) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Sends it on a connection of its own.
    pub(super) async fn send(self) -> Result<Answer, Stop> {
        let line = self.line();
        let seen = self.case.seen.clone();
        let answer = self.quiet().await;
        let end = match &answer {
            Ok(answer) => answer.summary(),
            Err(Stop::Failed { seen, .. }) => seen.clone(),
            Err(other) => format!("{other:?}"),
        };
        seen.exchanges.lock().push(format!("{line} → {end}"));
        answer
    }

    /// Sends it without an entry in the report.
    pub(super) async fn quiet(self) -> Result<Answer, Stop> {
        let wire = self.wire()?;
        let answer = timeout(ANSWER_MAX, client::exchange(self.case.target.protocol, &wire)).await;
        self.answered(answer.unwrap_or_else(|_| Err(format!("none in {ANSWER_MAX:?}"))))
    }

    /// Sends it as bytes over HTTP/1.1, for what no client library would send.
    pub(super) async fn send_raw(self) -> Result<Answer, Stop> {
        let (wire, line) = (self.wire()?, self.line());
        let answer = timeout(ANSWER_MAX, raw::exchange(&wire)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("none in {ANSWER_MAX:?}")));
        let end = answer.as_ref().map_or_else(Clone::clone, |(parts, _)| parts.status.to_string());
        self.case.seen.exchanges.lock().push(format!("{line} → {end}"));
        self.answered(answer)
    }

    /// Sends it in a task of its own, to look at other things meanwhile.
    pub(super) fn start(self) -> Started {
        let (wire, line) = (self.wire(), self.line());
        let (protocol, seen) = (self.case.target.protocol, self.case.seen.clone());
        let (target, canaries) = (self.case.target.clone(), self.canaries);
        seen.exchanges.lock().push(format!("{line}, not waited for"));
        Started(tokio::spawn(async move {
            let answer = client::exchange(protocol, &wire?).await;
            Answer::new(answer, target, canaries, &seen)
        }))
    }

    /// The request as it goes over the wire.
    pub(super) fn wire(&self) -> Result<Wire, Stop> {
        let bytes = |(name, value): &(String, String)| (name.clone(), value.as_bytes().to_vec());
        let mut headers: Vec<_> = self.caller.iter().chain(&self.headers).map(bytes).collect();
        headers.extend(self.key.iter().map(|key| (self.key_header.to_owned(), key.clone())));
        if !self.content_type.is_empty() {
            headers.push(("Content-Type".to_owned(), self.content_type.clone().into_bytes()));
        }
        if let Some(token) = self.case.probe_token() {
            headers.push(("X-Probe".to_owned(), token.as_bytes().to_vec()));
        }
        let (method, path, body) = (self.method.clone(), self.path.clone(), self.body.clone());
        Wire::new(&self.base, method, path, headers, body)
            .map_err(|why| Stop::failed("a request that can be sent", why))
    }

    /// The answer to it.
    pub(super) fn answered(self, answer: client::Exchanged) -> Result<Answer, Stop> {
        Answer::new(answer, self.case.target.clone(), self.canaries, &self.case.seen)
    }

    /// The request as the report shows it, without keys, credentials and bodies.
    fn line(&self) -> String {
        let behave = self.headers.iter().find(|(name, _)| name == "X-Behave");
        let behave = behave.map_or_else(String::new, |(_, how)| format!(", told {how:?}"));
        let (method, path, key, bytes) =
            (&self.method, &self.path, &self.key_name, self.body.len());
        format!("{method} {path}, {key}, {bytes} bytes{behave}")
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Started(JoinHandle<Result<Answer, Stop>>);

impl Started {
    /// Its answer.
    pub(super) async fn answer(mut self) -> Result<Answer, Stop> {
        let answer = timeout(ANSWER_MAX, &mut self.0).await;
        let lost = |_| Stop::failed("an answer", format!("none in {ANSWER_MAX:?}"));
        answer.map_err(lost)?.expect("the task neither panics nor is aborted meanwhile")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// True if a secret is long enough to be recognised in an answer.
pub(super) fn is_recognisable(canary: &str) -> bool {
    canary.len() >= CANARY_CHARS_MIN
}

/// An amount that is the same all through a case, and that no answer contains by chance.
fn canary_of(case: &Case) -> String {
    let digits: u64 = case
        .key("the amount")
        .bytes()
        .fold(7, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_000_000);
    (7_000_000_000_000 + digits).to_string()
}
