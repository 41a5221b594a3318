//! Why a stored outcome does not open.

use onceward_core::{Effect, RecordId, StoreError, StoreErrorKind};

/// Why the outcome of a record does not open. It counts neither as absent nor as an answer.
///
/// The source of a sealed store's [`StoreError`] of kind
/// [`Undecodable`](StoreErrorKind::Undecodable).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the outcome of record {record} {problem}")]
pub struct SealError {
    /// The record's id.
    pub record: RecordId,
    /// The problem.
    pub problem: SealProblem,
}

/// A problem of a sealed outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealProblem {
    /// The key is not among the given ones.
    #[error(
        "is sealed with key `{id}`, and the keys given are {given}: give `{id}` again, after the key that seals, until what it sealed has expired"
    )]
    UnknownKey {
        /// The id of the key that sealed it.
        id: String,
        /// The ids of the given keys.
        given: String,
    },
    /// It fails verification.
    #[error(
        "does not verify under key `{id}`: it was altered, belongs to another record, or `{id}` names another key now"
    )]
    Forged {
        /// The id of the key that the outcome names.
        id: String,
    },
    /// It is not sealed.
    #[error(
        "is not sealed (its codec is `{tag}`): if it was stored before sealing began, set `Plain::Read` until such outcomes have expired"
    )]
    Plain {
        /// The codec that the outcome names.
        tag: String,
    },
    /// It is damaged, or sealed in a way that this release does not know.
    #[error("cannot be read: its {0} is damaged, or was written by a later release")]
    Malformed(&'static str),
    /// The cipher refused it.
    #[error("cannot be sealed: the cipher refused it")]
    Refused,
}

impl SealProblem {
    /// The store's error. `NotApplied`: opening changes nothing, and sealing comes before the call.
    pub(super) fn of(self, record: RecordId) -> StoreError {
        StoreError::new("sealed", StoreErrorKind::Undecodable, Effect::NotApplied)
            .caused_by(SealError { record, problem: self })
    }
}
