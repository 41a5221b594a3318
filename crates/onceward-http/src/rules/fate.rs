//! The fate of a response: whether it is stored, and whether its request may run again.

use onceward_core::Disposition;

/// Whether a response is stored, and whether its request may run again: by the rules
/// ([`Outcomes`](crate::Outcomes)), or by the handler's own word on its effect, as a response
/// extension. That takes precedence.
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
    /// The response is the outcome: store it and replay it to every retry (`keep`).
    Final,
    /// Like `Final`, but the body is not stored, because it is sensitive (`keep-head`). A retry gets
    /// [`NotReplayable`](crate::Code::NotReplayable) with the status and the `Location`. A response
    /// with a [`Sensitive`](crate::Sensitive) resource is made again instead.
    FinalHead,
    /// Nothing happened: release the key (`release`).
    NothingHappened,
    /// It is not known what happened: never run it again without evidence (`unknown`). An
    /// [`UnknownCause`](onceward_core::UnknownCause) as another extension says why.
    Unknown,
}

impl Fate {
    /// Parses the word of a header or of a configuration file.
    pub(crate) fn of_word(word: &[u8]) -> Option<Self> {
        match word {
            b"keep" => Some(Self::Final),
            b"keep-head" => Some(Self::FinalHead),
            b"release" => Some(Self::NothingHappened),
            b"unknown" => Some(Self::Unknown),
            _ => None,
        }
    }
}

impl From<Fate> for Disposition {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Final | Fate::FinalHead => Self::Keep,
            Fate::NothingHappened => Self::Release,
            Fate::Unknown => Self::Unknown,
        }
    }
}

impl From<Disposition> for Fate {
    fn from(disposition: Disposition) -> Self {
        match disposition {
            Disposition::Keep => Self::Final,
            Disposition::Release => Self::NothingHappened,
            Disposition::Unknown => Self::Unknown,
        }
    }
}
