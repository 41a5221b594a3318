//! A small idempotent server on the engine, with bugs that can be planted one by one, for testing
//! the suite. Not for production.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use onceward_core::{
    Begin, Content, Engine, Fingerprint, FullStore, Intent, Key, OnLapse, Outcome, Permit, Policy,
    Rejection, Scope, Tag, UnknownCause,
};
use onceward_testkit::http::fixture::{Body, Fixture, refuse_anonymous};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::meaning::{Reading, fingerprint};

/// A bug that was seen in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    PayloadNotCompared,
    NumbersAsFloats,
    PathNotCompared,
    RunsWhileRunning,
    CancelledByHangUp,
    LocationForgotten,
    NotMarked,
    FirstMarked,
    CookieReplayed,
    Keeps429,
    Forgets422,
    HeadIsWhole,
    UnclearIsIgnored,
    ReplaysAs200,
    KeyLeaked,
    PayloadLeaked,
    TypesShared,
    NoRetryAfter,
    StatusLies,
    LongKeysCut,
    LastKeyLineWins,
    TenantsShared,
    GuardsGet,
    OpenWhenStoreIsDown,
    PanicReleases,
    CrashForgets,
    LapseRunsAgain,
    KeptTooLong,
}

/// Settings of the server.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) bug: Option<Bug>,
    pub(crate) policy: Policy,
    pub(crate) required: bool,
    pub(crate) quoted_only: bool,
    pub(crate) mismatch: StatusCode,
    pub(crate) replay_ok: bool,
    pub(crate) accepted: bool,
    pub(crate) frees_500: bool,
    pub(crate) authenticates: bool,
    pub(crate) tenants_are_uuids: bool,
    pub(crate) request_bytes_max: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) flood_keys_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let policy = Policy::builder().settle_wait(Duration::from_millis(200)).build();
        Self {
            bug: None,
            policy: policy.expect("a valid policy"),
            required: true,
            quoted_only: false,
            mismatch: StatusCode::UNPROCESSABLE_ENTITY,
            replay_ok: false,
            accepted: false,
            frees_500: false,
            authenticates: true,
            tenants_are_uuids: false,
            request_bytes_max: 3_000_000,
            response_bytes_max: 2_000_000,
            flood_keys_max: 5,
        }
    }
}

/// The server. A clone is the same; [`Guard::again`] is another life or another node.
#[derive(Clone)]
pub(crate) struct Guard {
    engine: Engine,
    kept: Arc<SurvivingState>,
    fixture: Fixture,
    settings: Settings,
}

/// State that survives a restart, like the store.
#[derive(Default)]
struct SurvivingState {
    replies: Mutex<Vec<Reply>>,
    flooded: Mutex<HashSet<String>>,
}

#[derive(Clone)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Settings {
    pub(crate) fn with(bug: Bug) -> Self {
        let settings = Self::default();
        let policy = settings.policy.to_builder();
        let policy = match bug {
            Bug::LapseRunsAgain => policy.on_lapse(OnLapse::Takeover),
            Bug::KeptTooLong => policy.retention(Duration::from_secs(30 * 24 * 3600)),
            _ => policy,
        };
        let policy = policy.build().expect("a valid policy");
        Self { bug: Some(bug), policy, ..settings }
    }
}

impl Guard {
    pub(crate) fn new(store: Arc<dyn FullStore>, settings: Settings) -> Self {
        let engine = Engine::builder(store).policy(settings.policy.clone()).build();
        Self { engine, kept: Arc::default(), fixture: Fixture::new(), settings }
    }

    /// The same server with an engine of its own.
    pub(crate) fn again(&self, store: Arc<dyn FullStore>) -> Self {
        let engine = Engine::builder(store).policy(self.settings.policy.clone()).build();
        Self { engine, ..self.clone() }
    }

    pub(crate) async fn call<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let anonymous = refuse_anonymous(request.headers()).filter(|_| self.settings.authenticates);
        if let Some(refusal) = anonymous {
            return refusal;
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return problem(Problem::new(400, "REQUEST_BROKEN"));
        };
        let request = Request::from_parts(parts, body.to_bytes());
        match self.guarded(&request).await {
            Ok(response) => response,
            Err(refusal) => problem(self.spoil(refusal, &request)),
        }
    }

    async fn guarded(&self, request: &Request<Bytes>) -> Result<Response<Body>, Problem> {
        let get = self.is(Bug::GuardsGet) && request.uri().path() == "/orders";
        if ![Method::POST, Method::PATCH].contains(request.method()) && !get {
            return Ok(self.run(request).await);
        }
        let Some(key) = self.key(request.headers())? else {
            return match self.settings.required {
                true => Err(Problem::new(400, "MISSING_IDEMPOTENCY_KEY")),
                false => Ok(self.run(request).await),
            };
        };
        if request.body().len() > self.settings.request_bytes_max {
            return Err(Problem::new(413, "REQUEST_TOO_LARGE"));
        }
        self.quota(request.headers(), &key)?;
        let tenant = request.headers().get("x-tenant-id").and_then(|it| it.to_str().ok());
        let is_uuid = tenant.is_some_and(|it| uuid::Uuid::try_parse(it).is_ok());
        if self.settings.tenants_are_uuids && !is_uuid {
            return Err(Problem::new(400, "INVALID_TENANT"));
        }
        let intent = Intent::new(self.scope(request), key, self.fingerprint(request));
        match self.engine.begin(&intent).await {
            Ok(Begin::Execute(permit)) => self.execute(request, permit).await,
            Ok(Begin::Replay(replay)) => self.replay(&replay.outcome),
            Ok(Begin::Reject(rejection)) => self.reject(rejection, request).await,
            Err(_) if self.is(Bug::OpenWhenStoreIsDown) => Ok(self.run(request).await),
            Err(_) => Err(Problem::later(503, "IDEMPOTENCY_STORE_UNAVAILABLE")),
        }
    }

    async fn run(&self, request: &Request<Bytes>) -> Response<Body> {
        let mut inner = Request::new(Full::new(request.body().clone()));
        *inner.method_mut() = request.method().clone();
        let path = request.uri().to_string().replacen("/api/orders", "/orders", 1);
        *inner.uri_mut() = path.parse().expect("a path");
        *inner.headers_mut() = request.headers().clone();
        self.fixture.call(inner).await
    }

    async fn execute(
        &self,
        request: &Request<Bytes>,
        permit: Permit,
    ) -> Result<Response<Body>, Problem> {
        let (guard, request) = (self.clone(), request.clone());
        if self.is(Bug::CancelledByHangUp) {
            return Ok(guard.run_freeing_on_drop(&request, permit).await);
        }
        let work = tokio::spawn(async move {
            let caught = tokio::spawn({
                let (guard, request) = (guard.clone(), request.clone());
                async move { guard.run(&request).await }
            });
            match caught.await {
                Ok(response) => Some(guard.settle(response, permit).await),
                Err(_) if guard.is(Bug::PanicReleases) => {
                    let _settled = permit.release().await;
                    None
                }
                Err(_) => None,
            }
        });
        work.await.ok().flatten().ok_or_else(|| Problem::new(500, "PANIC"))
    }

    async fn run_freeing_on_drop(
        &self,
        request: &Request<Bytes>,
        permit: Permit,
    ) -> Response<Body> {
        let mut free = FreeOnDrop(Some(permit));
        let response = self.run(request).await;
        let permit = free.0.take().expect("taken once");
        self.settle(response, permit).await
    }

    async fn settle(&self, response: Response<Body>, permit: Permit) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        let said = parts.headers.remove("onceward-outcome");
        let body = body.collect().await.expect("the fixture's bodies do not fail").to_bytes();
        let reply = Reply { status: parts.status, headers: parts.headers, body };
        let said = said.as_ref().and_then(|it| it.to_str().ok());
        let by_status = self.meaning_of(reply.status);
        let word = match (said.unwrap_or(by_status), by_status) {
            ("keep-head", _) if self.is(Bug::HeadIsWhole) => "keep",
            (known @ ("keep" | "keep-head" | "release" | "unknown"), _) => known,
            (_, by_status) if self.is(Bug::UnclearIsIgnored) => by_status,
            (_, "keep") => "keep-head",
            (_, _) => "unknown",
        };
        let _settled = match word {
            "release" => permit.release().await,
            "unknown" => permit.unknown(UnknownCause::Reported(None)).await,
            word => permit.complete(self.outcome(&reply, word == "keep-head")).await,
        };
        let mut response = reply.into_response();
        if self.is(Bug::FirstMarked) {
            response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("false"));
        }
        response
    }

    fn meaning_of(&self, status: StatusCode) -> &'static str {
        match status.as_u16() {
            429 if self.is(Bug::Keeps429) => "keep",
            422 if self.is(Bug::Forgets422) => "release",
            401 | 403 | 407 | 408 | 421 | 425 | 429 => "release",
            500 if self.settings.frees_500 => "release",
            500.. => "unknown",
            _ => "keep",
        }
    }

    fn outcome(&self, reply: &Reply, omit: bool) -> Outcome {
        let mut kept = reply.clone();
        for name in ["x-request-id", "date"] {
            kept.headers.remove(name);
        }
        if !self.is(Bug::CookieReplayed) {
            kept.headers.remove(SET_COOKIE);
        }
        if self.is(Bug::LocationForgotten) {
            kept.headers.remove(LOCATION);
        }
        let tag = Tag::from_static("test/v1");
        let mut replies = self.kept.replies.lock();
        let number = replies.len().to_string();
        if omit || kept.body.len() > self.settings.response_bytes_max {
            kept.body = Bytes::new();
            replies.push(kept);
            return Outcome::omitted(tag, number.into_bytes());
        }
        replies.push(kept);
        Outcome::whole(tag, number.into_bytes())
    }

    fn replay(&self, outcome: &Outcome) -> Result<Response<Body>, Problem> {
        let number: usize = std::str::from_utf8(&outcome.bytes).unwrap().parse().unwrap();
        let mut reply = self.kept.replies.lock()[number].clone();
        if outcome.content == Content::Omitted {
            return Err(Problem {
                location: reply.headers.get(LOCATION).cloned(),
                original: Some(reply.status),
                ..Problem::new(409, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE")
            });
        }
        if !self.is(Bug::NotMarked) {
            for mark in ["idempotent-replayed", "idempotency-replayed"] {
                reply.headers.insert(mark, HeaderValue::from_static("true"));
            }
        }
        let created = reply.status == StatusCode::CREATED;
        if self.is(Bug::ReplaysAs200) || (self.settings.replay_ok && created) {
            reply.status = StatusCode::OK;
        }
        Ok(reply.into_response())
    }

    async fn reject(
        &self,
        rejection: Rejection,
        request: &Request<Bytes>,
    ) -> Result<Response<Body>, Problem> {
        let mismatch = self.settings.mismatch.as_u16();
        Err(match rejection {
            Rejection::Running { .. } if self.is(Bug::RunsWhileRunning) => {
                return Ok(self.run(request).await);
            }
            Rejection::Running { .. } if self.settings.accepted => Problem {
                location: Some(HeaderValue::from_static("/operations/1")),
                ..Problem::new(202, "IDEMPOTENCY_REQUEST_IN_PROGRESS")
            },
            Rejection::Running { .. } => Problem::later(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"),
            Rejection::Mismatch { .. } => {
                Problem::new(mismatch, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST")
            }
            Rejection::ReferenceTaken { .. } => Problem::new(409, "BUSINESS_REFERENCE_TAKEN"),
            Rejection::Unknown { .. } => Problem::new(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"),
            Rejection::Contradicted { .. } => Problem::new(409, "IDEMPOTENCY_OUTCOME_CONTRADICTED"),
            Rejection::Expired => Problem::new(409, "IDEMPOTENCY_KEY_EXPIRED"),
        })
    }

    fn key(&self, headers: &HeaderMap) -> Result<Option<Key>, Problem> {
        let mut values: Vec<_> = headers.get_all("idempotency-key").iter().collect();
        if self.is(Bug::LastKeyLineWins) {
            values = values.pop().into_iter().collect();
        }
        let invalid = || Problem::new(400, "INVALID_IDEMPOTENCY_KEY");
        let value = match &values[..] {
            [] => return Ok(None),
            [value] => value.to_str().map_err(|_| invalid())?.trim(),
            _ => return Err(invalid()),
        };
        let mut text = match value.strip_prefix('"') {
            Some(rest) => unquote(rest).ok_or_else(invalid)?,
            None if self.settings.quoted_only || value.contains(['"', ',', ' ']) => {
                return Err(invalid());
            }
            None => value.to_owned(),
        };
        if self.is(Bug::LongKeysCut) {
            text.truncate(255);
        }
        Key::new(text).map(Some).map_err(|_| invalid())
    }

    fn quota(&self, headers: &HeaderMap, key: &Key) -> Result<(), Problem> {
        if headers.get("x-caller").is_none_or(|caller| caller != "flooder") {
            return Ok(());
        }
        let mut flooded = self.kept.flooded.lock();
        let known = flooded.contains(key.expose());
        if !known && flooded.len() >= self.settings.flood_keys_max {
            return Err(Problem::later(429, "IDEMPOTENCY_QUOTA_EXCEEDED"));
        }
        flooded.insert(key.expose().to_owned());
        Ok(())
    }

    fn scope(&self, request: &Request<Bytes>) -> Scope {
        let text = |name: &str| {
            request.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or("nobody")
        };
        let tenant = if self.is(Bug::TenantsShared) { "all" } else { text("x-tenant-id") };
        let path = request.uri().path();
        let operation = if path.ends_with("/pay") { "pay" } else { path };
        let operation = format!("{} {operation}", request.method());
        Scope::new(tenant, text("x-caller"), &operation).expect("a scope")
    }

    fn fingerprint(&self, request: &Request<Bytes>) -> Fingerprint {
        let reading = match self.settings.bug {
            Some(Bug::PayloadNotCompared) => return Fingerprint::of_parts(&[]),
            Some(Bug::NumbersAsFloats) => Reading::Floats,
            _ => Reading::Exact,
        };
        fingerprint(request, reading, !self.is(Bug::PathNotCompared))
    }

    fn is(&self, bug: Bug) -> bool {
        self.settings.bug == Some(bug)
    }

    /// Applies the bugs to an error.
    fn spoil(&self, mut refusal: Problem, request: &Request<Bytes>) -> Problem {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.settings.bug {
            Some(Bug::KeyLeaked) => {
                let key = request.headers().get("idempotency-key");
                refusal.detail += &key.map(|key| text(key.as_bytes())).unwrap_or_default();
            }
            Some(Bug::PayloadLeaked) => refusal.detail += &text(request.body()),
            Some(Bug::TypesShared) => refusal.kind = "https://example.com/problem".to_owned(),
            Some(Bug::NoRetryAfter) => refusal.retry_after = false,
            Some(Bug::StatusLies) => refusal.says = 400,
            _ => {}
        }
        refusal
    }
}

/// The bug of many: a handler that is cancelled frees the key.
struct FreeOnDrop(Option<Permit>);

impl Drop for FreeOnDrop {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            tokio::spawn(permit.release());
        }
    }
}

impl Reply {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Full::new(self.body).boxed());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// An error before it is written.
struct Problem {
    status: u16,
    says: u16,
    code: &'static str,
    kind: String,
    detail: String,
    retry_after: bool,
    same_key: bool,
    location: Option<HeaderValue>,
    original: Option<StatusCode>,
}

impl Problem {
    fn new(status: u16, code: &'static str) -> Self {
        Self {
            status,
            says: status,
            code,
            kind: format!("https://example.com/{code}"),
            detail: "see the documentation. ".to_owned(),
            retry_after: false,
            same_key: false,
            location: None,
            original: None,
        }
    }

    fn later(status: u16, code: &'static str) -> Self {
        Self { retry_after: true, same_key: true, ..Self::new(status, code) }
    }
}

fn problem(problem: Problem) -> Response<Body> {
    let mut body = json!({
        "type": problem.kind, "title": problem.code, "status": problem.says,
        "code": problem.code, "detail": problem.detail,
        "retryable": problem.same_key, "same_key": problem.same_key,
    });
    if let Some(original) = problem.original {
        body["original_status"] = Value::from(original.as_u16());
    }
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    let link = HeaderValue::from_static("<https://example.com/docs>; rel=\"describedby\"");
    headers.insert(LINK, link);
    if problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(location) = problem.location {
        headers.insert(LOCATION, location);
    }
    let status = StatusCode::from_u16(problem.status).expect("a status");
    Reply { status, headers, body: body.to_string().into() }.into_response()
}

/// The rest of a structured-field string, after its first quote.
fn unquote(rest: &str) -> Option<String> {
    let (mut text, mut characters) = (String::new(), rest.chars());
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(text),
            '\\' => text.push(characters.next().filter(|it| matches!(it, '"' | '\\'))?),
            other => text.push(other),
        }
    }
}
