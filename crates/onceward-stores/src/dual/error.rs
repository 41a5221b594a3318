//! Errors of a dual store: opening, switching over, calls.

use std::time::Duration;

use onceward_core::{Effect, InvalidKey, InvalidScope, StoreError, StoreErrorKind};

/// Why a [`DualStore`](super::DualStore) did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The move cannot have this name.
    #[error("the name of the move is not valid")]
    Name(#[source] InvalidKey),
    /// Does not happen: the scope is a constant.
    #[error("the scope of the move is not valid")]
    Scope(#[source] InvalidScope),
    /// A store cannot be read. The first opening of a move needs both stores, later ones need
    /// the authority.
    #[error("a store cannot be asked which of the two is the authority")]
    Unavailable(#[source] StoreError),
    /// The authority has lost the authority record, and its other records with it.
    #[error("the old store was the authority and has lost its records: there is nothing to move")]
    Lost,
}

/// Why a switchover failed. Unless a variant says otherwise, the authority is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchoverError {
    /// The follower was not given all records yet: [`copy`](super::DualStore::copy) first.
    #[error("the follower was not given all records: copy first")]
    NotCopied,
    /// The follower lacks records: [`catch_up`](super::DualStore::catch_up) first, in every
    /// process.
    #[error(
        "the follower lacks {here} records of this process, and records of {elsewhere} other \
         processes: catch up in each of them"
    )]
    Lagging {
        /// Records of this process.
        here: usize,
        /// Lag markers of other processes.
        elsewhere: usize,
    },
    /// The clocks of the stores differ too much: leases would end early, or fences go back.
    #[error("the clocks of the stores are {apart:?} apart, and at most {max:?} is accepted")]
    ClocksApart {
        /// How far they are apart.
        apart: Duration,
        /// Largest accepted difference.
        max: Duration,
    },
    /// Another process is switching over, or died while it did; then a later call cancels that.
    #[error("another process is switching over")]
    Underway,
    /// A store failed. After the change was decided, the switchover has taken place all the same:
    /// ask [`status`](super::DualStore::status).
    #[error("a store failed")]
    Store(#[from] StoreError),
}

/// The source of errors that only a dual store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DualProblem {
    /// A switchover takes longer than a call waits.
    #[error("a switchover to the other store is underway")]
    SwitchoverUnderway,
    /// The authority changed during the call: its answer does not count.
    #[error("the authority changed during the call")]
    AuthorityChanged,
    /// The authority has lost the authority record, and so its other records.
    #[error("the authority has lost the authority record of the move")]
    Lost,
    /// This release cannot read what is stored in the place of the authority record.
    #[error("the authority record of the move cannot be read")]
    Unreadable,
    /// The old store was given as the new one, or the name belongs to another move.
    #[error("the old and the new store are swapped, or the name belongs to another move")]
    Swapped,
    /// Other processes changed the authority record before every attempt of this one.
    #[error("the authority record of the move keeps changing")]
    Contended,
}

impl DualProblem {
    pub(super) fn error(self, effect: Effect) -> StoreError {
        let kind = match self {
            Self::Unreadable | Self::Swapped => StoreErrorKind::Undecodable,
            Self::SwitchoverUnderway | Self::AuthorityChanged | Self::Lost | Self::Contended => {
                StoreErrorKind::Unavailable
            }
        };
        StoreError::new("dual", kind, effect).caused_by(self)
    }
}

/// The error of a step after the call, which may have been applied.
pub(super) fn maybe_applied(error: StoreError) -> StoreError {
    StoreError { effect: Effect::MayHaveBeenApplied, ..error }
}

/// The error of a step before the call, which was not sent.
pub(super) fn not_applied(error: StoreError) -> StoreError {
    StoreError { effect: Effect::NotApplied, ..error }
}
