//! What a handler can learn about its execution, and what it can say about its effect.

use http::header::{HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, Response, StatusCode};
use onceward_core::{Disposition, DownstreamKey, Fence, Grant, Key, OperationId, Resource, Scope};

/// The execution that a handler is in: found in the request's extensions, or taken as an
/// axum extractor (feature `axum`).
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

    /// The execution of a guarded request; `None` where the layer let it pass.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The client's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whose key it is, and for which operation.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The operation's public name.
    pub fn operation(&self) -> OperationId {
        self.grant.operation()
    }

    /// The fence, for conditional writes: refuse any that carry a lower one.
    pub fn fence(&self) -> Fence {
        self.grant.fence()
    }

    /// The idempotency key to hand to the next system; the same on every attempt.
    pub fn downstream_key(&self) -> DownstreamKey {
        self.grant.downstream_key()
    }

    /// The grant itself: which attempt it is, until when effects may be begun.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// What a handler says about its effect, as an extension of its response. Goes before the
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
    /// This is the outcome: keep it, and replay it to every retry.
    Final,
    /// Nothing happened: the key is free.
    NothingHappened,
    /// Nobody knows what happened: it is not run again without evidence.
    Unknown,
}

/// Says, as an extension of a response, that its body must not be stored: it is made again
/// for each replay from this resource, by the layer's
/// [`rebuild`](crate::LayerBuilder::rebuild).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensitive(pub Resource);

impl Sensitive {
    /// A reply that stands for a resource, such as (`card`, `card_17`).
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self(Resource { kind: kind.into(), id: id.into() })
    }
}

/// What is stored of a sensitive reply, for whoever makes it again.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The resource that it stands for.
    pub resource: Resource,
    /// The status of the first reply.
    pub status: StatusCode,
    /// The headers of the first reply that were kept.
    pub headers: HeaderMap,
}

/// By this header a service behind a gateway says its [`Fate`]: `keep`, `release` or
/// `unknown`. The layer takes it out of the response.
pub const OUTCOME_HEADER: HeaderName = HeaderName::from_static("onceward-outcome");

/// Takes out of a response what its handler says, if it says anything.
pub(crate) fn said<R>(response: &mut Response<R>) -> Option<Disposition> {
    let said = overheard(response);
    response.headers_mut().remove(OUTCOME_HEADER);
    said
}

/// What a handler says, left in its response.
pub(crate) fn overheard<R>(response: &Response<R>) -> Option<Disposition> {
    let header = || response.headers().get(OUTCOME_HEADER).and_then(Fate::of_header);
    response.extensions().get::<Fate>().copied().or_else(header).map(Disposition::from)
}

impl Fate {
    /// What a service says by [`OUTCOME_HEADER`]; `None`, and a warning, if it is not a word
    /// of ours.
    pub fn of_header(value: &HeaderValue) -> Option<Self> {
        match value.as_bytes() {
            b"keep" => Some(Self::Final),
            b"release" => Some(Self::NothingHappened),
            b"unknown" => Some(Self::Unknown),
            _ => {
                tracing::warn!("Onceward-Outcome is none of keep, release, unknown; ignored");
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
