//! The handler's side: its [`Execution`], and what its response can say: [`Fate`], [`Sensitive`], and
//! as further response extensions, an [`ErrorCode`](onceward_core::ErrorCode) and an
//! [`UnknownCause`].

use http::header::HeaderName;
use http::{Extensions, HeaderMap, Response, StatusCode};
use onceward_core::log::LogThrottle;
use onceward_core::{DownstreamKey, Fence, Grant, Key, OperationId, Resource, Scope, UnknownCause};

use crate::rules::{Fate, Outcomes};

/// The execution of a protected request, for its handler: a request extension, and an axum extractor
/// (feature `axum`).
#[derive(Debug, Clone)]
pub struct Execution {
    key: Key,
    scope: Scope,
    grant: Grant,
}

impl Execution {
    pub(crate) fn new(key: Key, scope: Scope, grant: Grant) -> Self {
        Self { key, scope, grant }
    }

    /// Returns the execution of a protected request; `None` if the layer let the request pass.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The client's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The tenant, the caller and the operation of the key.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The id of the operation.
    pub fn operation(&self) -> OperationId {
        self.grant.operation()
    }

    /// The fence, for conditional writes: refuse writes with a lower one.
    pub fn fence(&self) -> Fence {
        self.grant.fence()
    }

    /// The idempotency key for the next system, the same on every attempt.
    pub fn downstream_key(&self) -> DownstreamKey {
        self.grant.downstream_key()
    }

    /// The grant: the number of the attempt, and the time until which effects may begin.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// Response extension for a body that must not be stored: the layer's
/// [`rebuild`](crate::LayerBuilder::rebuild) makes it again for each replay, from this resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensitive(pub Resource);

impl Sensitive {
    /// A reply made from a resource, such as (`card`, `card_17`).
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self(Resource { kind: kind.into(), id: id.into() })
    }
}

/// The stored part of a [`Sensitive`] reply, from which it is made again.
#[derive(Debug, Clone)]
pub struct SensitiveReply {
    /// The resource.
    pub resource: Resource,
    /// The status of the first reply.
    pub status: StatusCode,
    /// The stored headers of the first reply.
    pub headers: HeaderMap,
}

/// Response header with the [`Fate`] of a service behind a gateway: `keep`, `keep-head`, `release` or
/// `unknown`. The layer removes it.
pub const OUTCOME_HEADER: HeaderName = HeaderName::from_static("onceward-outcome");

/// The word of a handler or a service on its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stated {
    Fate(Fate),
    /// A word that this release does not know, or several words.
    Unclear,
}

/// The fate of a response, by its own word or by the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseFate {
    pub(crate) fate: Fate,
    stated: Option<Stated>,
}

impl ResponseFate {
    /// Why the response leaves the outcome unknown: by its extension, or because it says so, or
    /// because of its status.
    pub(crate) fn unknown_cause<R>(self, response: &Response<R>) -> UnknownCause {
        match (response.extensions().get::<UnknownCause>(), self.stated) {
            (Some(cause), _) => cause.clone(),
            (None, Some(Stated::Fate(_))) => UnknownCause::Reported(None),
            (None, Some(Stated::Unclear)) => UnknownCause::reported("unclear Onceward-Outcome"),
            (None, None) => UnknownCause::Status(response.status().as_u16()),
        }
    }
}

/// Turns [`OUTCOME_HEADER`] into a response extension that the layer reads instead, for servers that
/// clean the headers of responses before the layer sees them.
pub fn take_outcome_header<R>(response: &mut Response<R>) {
    if let Some(stated) = stated_in(response.headers()) {
        response.headers_mut().remove(OUTCOME_HEADER);
        response.extensions_mut().insert(stated);
    }
}

/// Returns the fate of a response by its own word or by the rules, and removes its header.
pub(crate) fn take_fate<R>(response: &mut Response<R>, outcomes: &Outcomes) -> ResponseFate {
    let fate = fate(response, outcomes);
    response.headers_mut().remove(OUTCOME_HEADER);
    fate
}

/// Returns the fate of a response by its own word or by the rules.
pub(crate) fn fate<R>(response: &Response<R>, outcomes: &Outcomes) -> ResponseFate {
    let extensions = response.extensions();
    let stated = extensions.get::<Fate>().copied().map(Stated::Fate);
    let stated = stated.or_else(|| extensions.get::<Stated>().copied());
    let stated = stated.or_else(|| stated_in(response.headers()));
    let by_rule = || outcomes.fate(response.status());
    let fate = match stated {
        Some(Stated::Fate(fate)) => fate,
        Some(Stated::Unclear) => unclear(by_rule()),
        None => by_rule(),
    };
    ResponseFate { fate, stated }
}

/// The most careful reading of an unclear word: it frees no key, and stores no body.
#[cold]
fn unclear(by_rule: Fate) -> Fate {
    if let Some(occurrences) = UNCLEAR.occurred() {
        tracing::warn!(
            occurrences,
            "Onceward-Outcome is none of keep, keep-head, release, unknown; no key is freed, and no \
             body is stored"
        );
    }
    match by_rule {
        Fate::Final | Fate::FinalHead => Fate::FinalHead,
        Fate::NothingHappened | Fate::Unknown => Fate::Unknown,
    }
}

/// Rate limit of the line about unclear words: one response of a service may be as wrong as all.
static UNCLEAR: LogThrottle = LogThrottle::new(1);

/// The word in [`OUTCOME_HEADER`]. Several lines of it must have one word.
fn stated_in(headers: &HeaderMap) -> Option<Stated> {
    let mut lines = headers.get_all(OUTCOME_HEADER).iter();
    let first = lines.next()?;
    let one = lines.all(|line| line == first);
    let fate = Fate::of_word(first.as_bytes()).filter(|_| one);
    Some(fate.map_or(Stated::Unclear, Stated::Fate))
}
