//! Telling somebody what became of requests, for metrics.

use onceward_core::{Disposition, Settled};

/// Is told what becomes of guarded requests. Set it by
/// [`LayerBuilder::observer`](crate::LayerBuilder::observer). It runs on the way of every
/// request, so it should count and return.
pub trait Observer: Send + Sync {
    /// Something became of a request of this operation.
    fn observe(&self, operation: &str, event: Event);
}

/// What became of a guarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is the first: its handler runs.
    Granted,
    /// It got the first answer.
    Replayed,
    /// Its key belongs to another request.
    Mismatch,
    /// Its key was used with other credentials.
    OtherCredentials,
    /// Its business reference belongs to another request.
    ReferenceTaken,
    /// The first is still running.
    InProgress,
    /// Nobody knows what became of the first.
    Unknown,
    /// Its key is past its retention.
    Expired,
    /// Its caller uses too much.
    OverQuota,
    /// The store could not be asked; nothing was executed.
    StoreDown,
    /// The store could not be asked, and it ran unguarded.
    Unguarded,
    /// What its handler did was written down, or not.
    Settled(Disposition, Settled),
    /// It was only observed ([`Enforcement::Observe`](crate::Enforcement::Observe)), and this
    /// would have become of it.
    Observed(Would),
}

impl Event {
    /// Its name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Replayed => "replayed",
            Self::Mismatch => "mismatch",
            Self::OtherCredentials => "other_credentials",
            Self::ReferenceTaken => "reference_taken",
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::OverQuota => "over_quota",
            Self::StoreDown => "store_down",
            Self::Unguarded => "unguarded",
            Self::Settled(..) => "settled",
            Self::Observed(_) => "observed",
        }
    }
}

/// What would have become of a request that was only observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Would {
    /// It is the first: it would have run.
    Execute,
    /// It would have got the first answer.
    Replay,
    /// It would have been refused: the first is still running.
    Conflict,
    /// It would have been refused: its key belongs to another request.
    Mismatch(Differing),
    /// It would have been refused: nobody knows what became of the first.
    Unknown,
    /// It would have been refused: its key is past its retention.
    Expired,
    /// It has no key: it would have been refused where one is required, and else would have
    /// run unguarded.
    MissingKey,
    /// It would have been refused: its key is none.
    InvalidKey,
    /// It would have been refused before a claim: nobody can tell whose it is, or its body is
    /// too large or cannot be read.
    Refused,
    /// The store could not be asked.
    StoreDown,
    /// Nobody knows: its handler did not read all of it, or too much was being observed.
    Unseen,
}

impl Would {
    /// Its name for programs.
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

/// The first part in which a request differs from the first one under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Differing {
    /// Its credentials.
    Credentials,
    /// The host name that it was sent to.
    Host,
    /// Its path.
    Path,
    /// Its query.
    Query,
    /// Its media type.
    ContentType,
    /// Its API version.
    ApiVersion,
    /// Its body.
    Body,
    /// Nobody can tell.
    Unclear,
}

impl Differing {
    /// Its name for programs.
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

    /// Of parts as the fingerprint names them: those of the head have names of their own, and
    /// all others are the body's.
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
