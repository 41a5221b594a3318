//! Why the outcome of an operation is unknown.

use std::fmt;

/// Why the outcome of an operation is unknown, for operators and logs. No decision depends on it.
///
/// Stores keep its text, which is stable: `lapsed`, `status 502`, `reported: timeout at the bank`.
/// [`UnknownCause::parse`] reads every text, also that of a newer release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnknownCause {
    /// Not recorded: the record was written by an earlier release.
    #[default]
    Unrecorded,
    /// The lease lapsed: its owner crashed, was cut off from the store or was paused.
    Lapsed,
    /// The permit was dropped without a settlement, for example by a cancelled task.
    Dropped,
    /// The handler panicked.
    Panicked,
    /// The handler ended with an error instead of a response.
    Error,
    /// The process shut down before the operation had ended.
    Shutdown,
    /// The response had this HTTP status, which the policy takes for unknown.
    Status(u16),
    /// The connection to the upstream ended before the response was complete.
    Cut,
    /// The upstream did not respond in time.
    Timeout,
    /// The operation ended, but its outcome could not be stored.
    Unstored,
    /// The handler, the service or the worker reported it, with an optional reason.
    Reported(Option<CauseText>),
    /// It is not known whether a transaction was committed.
    CommitUnclear,
    /// A cause that this release does not know.
    Other(CauseText),
}

/// The text of a cause: at most [`CauseText::CHARS_MAX`] printable characters on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CauseText(Box<str>);

impl CauseText {
    /// A sentence; a record is no place for a stack trace.
    pub const CHARS_MAX: usize = 200;

    /// Makes a text fit: control characters become spaces, and the end is cut off.
    pub fn new(text: &str) -> Self {
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let fitting: String = text.trim().chars().take(Self::CHARS_MAX).map(printable).collect();
        Self(fitting.trim_end().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const STATUS: &str = "status ";
const REPORTED: &str = "reported: ";

impl UnknownCause {
    /// The handler, the service or the worker reported it, and says why. An empty reason is none.
    pub fn reported(reason: &str) -> Self {
        Self::Reported(Some(CauseText::new(reason)).filter(|text| !text.as_str().is_empty()))
    }

    /// Reads the text form. A text that no cause of this release has is [`UnknownCause::Other`].
    pub fn parse(text: &str) -> Self {
        let plain = [
            Self::Unrecorded,
            Self::Lapsed,
            Self::Dropped,
            Self::Panicked,
            Self::Error,
            Self::Shutdown,
            Self::Cut,
            Self::Timeout,
            Self::Unstored,
            Self::Reported(None),
            Self::CommitUnclear,
        ];
        if let Some(cause) = plain.into_iter().find(|cause| cause.name() == text) {
            return cause;
        }
        let status = text.strip_prefix(STATUS).filter(|it| it.len() == 3);
        if let Some(status) = status.and_then(|status| status.parse().ok()) {
            return Self::Status(status);
        }
        match text.strip_prefix(REPORTED) {
            Some(reason) if !reason.trim().is_empty() => Self::reported(reason),
            _ => Self::Other(CauseText::new(text)),
        }
    }

    /// The cause without its details, in a word for programs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unrecorded => "unrecorded",
            Self::Lapsed => "lapsed",
            Self::Dropped => "dropped",
            Self::Panicked => "panicked",
            Self::Error => "error",
            Self::Shutdown => "shutdown",
            Self::Status(_) => "status",
            Self::Cut => "cut",
            Self::Timeout => "timeout",
            Self::Unstored => "unstored",
            Self::Reported(_) => "reported",
            Self::CommitUnclear => "commit unclear",
            Self::Other(_) => "other",
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Reported(Some(text)) | Self::Other(text) => text.0.len(),
            _ => 0,
        }
    }
}

impl fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{STATUS}{status:03}"),
            Self::Reported(Some(reason)) => write!(f, "{REPORTED}{}", reason.as_str()),
            Self::Other(text) => f.write_str(text.as_str()),
            plain => f.write_str(plain.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_comes_back_from_its_text() {
        let texts = [
            "unrecorded",
            "lapsed",
            "dropped",
            "panicked",
            "error",
            "shutdown",
            "status 502",
            "cut",
            "timeout",
            "unstored",
            "reported",
            "reported: no answer from the bank \u{1f4b6}",
            "commit unclear",
        ];
        for text in texts {
            let cause = UnknownCause::parse(text);
            assert!(!matches!(cause, UnknownCause::Other(_)), "{text}");
            assert_eq!(cause.to_string(), text);
        }
        assert_eq!(UnknownCause::parse("status 502"), UnknownCause::Status(502));
    }

    #[test]
    fn causes_of_a_newer_release_keep_their_text() {
        for text in ["moved", "status 5020", "status ok!", "reported: ", "status", "other", ""] {
            let cause = UnknownCause::parse(text);
            assert!(matches!(cause, UnknownCause::Other(_)), "{text}: {cause:?}");
            assert_eq!(cause.to_string(), text.trim());
            assert_eq!(UnknownCause::parse(&cause.to_string()), cause);
        }
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let long = UnknownCause::reported(&format!(" a\n\0b{}", "x".repeat(300)));
        let UnknownCause::Reported(Some(reason)) = &long else { panic!("{long:?}") };
        assert!(reason.as_str().starts_with("a  bx"), "{reason:?}");
        assert_eq!(reason.as_str().chars().count(), CauseText::CHARS_MAX);
        assert_eq!(UnknownCause::parse(&long.to_string()), long);
        assert_eq!(UnknownCause::reported(" \n "), UnknownCause::Reported(None));
    }
}
