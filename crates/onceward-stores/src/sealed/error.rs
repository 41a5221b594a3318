//! Why a stored outcome is not answered.

use onceward_core::{Effect, RecordId, StoreError, StoreErrorKind};

/// Why the outcome of a record could not be opened. It is there, so it is neither taken for
/// absent nor answered as it is.
///
/// The source of the [`StoreError`] that a sealed store gives, whose kind is
/// [`Undecodable`](StoreErrorKind::Undecodable).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the outcome of record {record} {problem}")]
pub struct SealError {
    /// Which record.
    pub record: RecordId,
    /// What is wrong with its outcome.
    pub problem: SealProblem,
}

/// What is wrong with a sealed outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealProblem {
    /// The key is not among those given.
    #[error(
        "is sealed with key `{id}`, and the keys given are {given}: give `{id}` again, after the key that seals, until what it sealed has expired"
    )]
    UnknownKey {
        /// The id of the key that sealed it.
        id: String,
        /// The ids of the keys that were given.
        given: String,
    },
    /// It does not verify.
    #[error(
        "does not verify under key `{id}`: it was altered, belongs to another record, or key `{id}` is another one now"
    )]
    Forged {
        /// The id of the key that it names.
        id: String,
    },
    /// It was stored without a seal.
    #[error(
        "is not sealed (its codec is `{tag}`): if it was stored before sealing began, have it read by `Plain::Read` until such outcomes have expired"
    )]
    Plain {
        /// The codec that it names.
        tag: String,
    },
    /// It is sealed in a way that this release does not know, or torn.
    #[error("cannot be read: its {0} is damaged, or of a later release")]
    Malformed(&'static str),
    /// The cipher refused it.
    #[error("cannot be sealed: the cipher refused it")]
    Refused,
}

impl SealProblem {
    /// What the store says. Opening changes nothing, and sealing comes before the call.
    pub(super) fn of(self, record: RecordId) -> StoreError {
        StoreError::new("sealed", StoreErrorKind::Undecodable, Effect::NotApplied)
            .caused_by(SealError { record, problem: self })
    }
}
