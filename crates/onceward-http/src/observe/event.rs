//! Events of protected requests, for metrics.

use onceward_core::{Disposition, Ended, Settled};

use crate::rules::Mode;

/// Receives the events of protected requests. Set by
/// [`LayerBuilder::observer`](crate::LayerBuilder::observer). It is called during every request, so
/// it should count and return.
pub trait Observer: Send + Sync {
    /// A layer was built in which this operation has rules. By default this does nothing; metrics
    /// start their series at 0.
    fn configured(&self, operation: &str, mode: Mode) {
        _ = (operation, mode);
    }

    /// Receives an event of a request of this operation.
    fn observe(&self, operation: &str, event: Event);
}

/// An event of a protected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The request is the first: its handler runs.
    Granted,
    /// The request got the first response, of an operation that ended in this way.
    Replayed(Ended),
    /// The key belongs to another request.
    Mismatch,
    /// The key was used with other credentials.
    OtherCredentials,
    /// The business reference belongs to another request.
    ReferenceTaken,
    /// The first request is still running.
    InProgress,
    /// The outcome of the first request is unknown.
    Unknown,
    /// The source of truth does not know the completed operation any more, so it was not replayed.
    Contradicted,
    /// The source of truth could not confirm the completed operation, so it was not replayed.
    Unconfirmed,
    /// The key is past its retention.
    Expired,
    /// A quota is exceeded: of new keys, or of requests with one key.
    OverQuota,
    /// The store is down; nothing was executed.
    StoreDown,
    /// The store has no room for new keys; nothing was executed.
    StoreFull,
    /// The engine is shutting down; nothing was executed.
    Draining,
    /// The first response could not be made again from what is stored of it.
    RebuildFailed,
    /// The store is down, and the request ran unprotected
    /// ([`StoreDown::Open`](crate::StoreDown::Open)).
    Unprotected,
    /// The handler has ended: the disposition of its result, and whether that is stored.
    Settled(Disposition, Settled),
    /// The request passed in shadow mode ([`Mode::Shadow`](crate::Mode::Shadow)):
    /// the decision that protection would have made.
    Shadow(ShadowDecision),
}

impl Event {
    /// The names of the events that are results of a claim.
    #[cfg(feature = "metrics")]
    pub(crate) const CLAIM_STATUSES: [&'static str; 15] = [
        "granted",
        "replayed",
        "mismatch",
        "other_credentials",
        "reference_taken",
        "in_progress",
        "unknown",
        "contradicted",
        "unconfirmed",
        "expired",
        "over_quota",
        "store_down",
        "store_full",
        "draining",
        "rebuild_failed",
    ];

    /// The name in metrics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Replayed(_) => "replayed",
            Self::Mismatch => "mismatch",
            Self::OtherCredentials => "other_credentials",
            Self::ReferenceTaken => "reference_taken",
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Contradicted => "contradicted",
            Self::Unconfirmed => "unconfirmed",
            Self::Expired => "expired",
            Self::OverQuota => "over_quota",
            Self::StoreDown => "store_down",
            Self::StoreFull => "store_full",
            Self::Draining => "draining",
            Self::RebuildFailed => "rebuild_failed",
            Self::Unprotected => "unprotected",
            Self::Settled(..) => "settled",
            Self::Shadow(_) => "shadow",
        }
    }
}

/// The decision that protection would have made about a request in shadow mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShadowDecision {
    /// The request is the first: execute it.
    Execute,
    /// Replay the first response.
    Replay,
    /// Refuse: the first request is still running.
    Conflict,
    /// Refuse: the key belongs to another request, which differs in this part.
    Mismatch(DifferingPart),
    /// Refuse: the outcome of the first request is unknown.
    Unknown,
    /// Refuse: the key is past its retention.
    Expired,
    /// The request has no key: refuse it if a key is required, else let it pass.
    MissingKey,
    /// Refuse: the key is malformed.
    InvalidKey,
    /// Refuse before a claim: the scope or the reference is invalid, or the body is too large or
    /// cannot be read.
    Refused,
    /// The store is down.
    StoreDown,
    /// Not decided: the handler did not read the whole body, or too many requests were shadowed.
    Unseen,
}

impl ShadowDecision {
    /// All names.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&'static str; 11] = [
        "execute",
        "replay",
        "conflict",
        "mismatch",
        "unknown",
        "expired",
        "missing_key",
        "invalid_key",
        "refused",
        "store_down",
        "unseen",
    ];

    /// The name in metrics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Replay => "replay",
            Self::Conflict => "conflict",
            Self::Mismatch(_) => "mismatch",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::MissingKey => "missing_key",
            Self::InvalidKey => "invalid_key",
            Self::Refused => "refused",
            Self::StoreDown => "store_down",
            Self::Unseen => "unseen",
        }
    }
}

/// The first part in which a request differs from the first request with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DifferingPart {
    /// The credentials.
    Credentials,
    /// The host name.
    Host,
    /// The path.
    Path,
    /// The query.
    Query,
    /// The media type.
    ContentType,
    /// The API version.
    ApiVersion,
    /// The body.
    Body,
    /// Not known.
    Unclear,
}

impl DifferingPart {
    /// All of them.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 8] = [
        Self::Credentials,
        Self::Host,
        Self::Path,
        Self::Query,
        Self::ContentType,
        Self::ApiVersion,
        Self::Body,
        Self::Unclear,
    ];

    /// The name in metrics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Host => "host",
            Self::Path => "path",
            Self::Query => "query",
            Self::ContentType => "content_type",
            Self::ApiVersion => "api_version",
            Self::Body => "body",
            Self::Unclear => "unclear",
        }
    }

    /// Returns the first of the parts that a fingerprint names: parts outside the body have fixed
    /// names, all others are the body's.
    pub(crate) fn first_of(differs: &[String]) -> Self {
        match differs.first().map(String::as_str) {
            Some("credentials") => Self::Credentials,
            Some("host") => Self::Host,
            Some("path") => Self::Path,
            Some("query") => Self::Query,
            Some("content-type") => Self::ContentType,
            Some("api-version") => Self::ApiVersion,
            Some(_) => Self::Body,
            None => Self::Unclear,
        }
    }
}
