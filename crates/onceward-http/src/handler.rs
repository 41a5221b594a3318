//! The handler's side: its [`Execution`], and what its response can say: [`Fate`], [`Sensitive`], and
//! as further response extensions, an [`ErrorCode`](onceward_core::ErrorCode) and an
//! [`UnknownCause`].

use http::header::{HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, Response, StatusCode};
use onceward_core::{
    Disposition, DownstreamKey, Fence, Grant, Key, OperationId, Resource, Scope, UnknownCause,
};

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

/// The handler's own word on its effect, as a response extension. It takes precedence over the
/// operation's [`Outcomes`](crate::Outcomes).
///
/// ```
/// use http::Response;
/// use onceward_http::Fate;
///
/// // The payment provider could not be reached at all: a retry may run again.
/// let response = Response::builder().status(503).extension(Fate::NothingHappened);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The response is the outcome: store it and replay it to every retry.
    Final,
    /// Nothing happened: release the key.
    NothingHappened,
    /// It is not known what happened: never run it again without evidence. An [`UnknownCause`] as
    /// another extension says why.
    Unknown,
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

/// Response header with the [`Fate`] of a service behind a gateway: `keep`, `release` or `unknown`.
/// The layer removes it.
pub const OUTCOME_HEADER: HeaderName = HeaderName::from_static("onceward-outcome");

/// Returns the disposition that a response states, and removes its header.
pub(crate) fn take_disposition<R>(response: &mut Response<R>) -> Option<Disposition> {
    let disposition = stated_disposition(response);
    response.headers_mut().remove(OUTCOME_HEADER);
    disposition
}

/// Returns the disposition that a response states, if it states one.
pub(crate) fn stated_disposition<R>(response: &Response<R>) -> Option<Disposition> {
    let header = || response.headers().get(OUTCOME_HEADER).and_then(Fate::of_header);
    response.extensions().get::<Fate>().copied().or_else(header).map(Disposition::from)
}

/// Returns why a response leaves the outcome unknown: by its extension, or because it says so
/// (`stated`), or because of its status.
pub(crate) fn unknown_cause<R>(response: &Response<R>, stated: bool) -> UnknownCause {
    match (response.extensions().get::<UnknownCause>(), stated) {
        (Some(cause), _) => cause.clone(),
        (None, true) => UnknownCause::Reported(None),
        (None, false) => UnknownCause::Status(response.status().as_u16()),
    }
}

impl Fate {
    /// Parses a value of [`OUTCOME_HEADER`]; `None`, and a warning, if it is none of the three words.
    pub fn of_header(value: &HeaderValue) -> Option<Self> {
        match value.as_bytes() {
            b"keep" => Some(Self::Final),
            b"release" => Some(Self::NothingHappened),
            b"unknown" => Some(Self::Unknown),
            _ => {
                tracing::warn!(
                    "Onceward-Outcome is none of keep, release, unknown; the header is ignored"
                );
                None
            }
        }
    }
}

impl From<Fate> for Disposition {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Final => Self::Keep,
            Fate::NothingHappened => Self::Release,
            Fate::Unknown => Self::Unknown,
        }
    }
}
