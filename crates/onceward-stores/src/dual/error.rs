//! Why a dual store does not open, does not flip, or does not answer.

use std::time::Duration;

use onceward_core::{Effect, InvalidKey, InvalidScope, StoreError, StoreErrorKind};

/// Why a [`DualStore`](super::DualStore) did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The move cannot have this name.
    #[error("the name of the move is not valid")]
    Name(#[source] InvalidKey),
    /// Never: the scope is ours.
    #[error("the scope of the move is not valid")]
    Scope(#[source] InvalidScope),
    /// A store cannot be asked who decides. The first opening of a move needs both, later
    /// ones the one that decides.
    #[error("a store cannot be asked which of the two decides")]
    Unavailable(#[source] StoreError),
    /// The store that decided has lost the charter, and its records with it.
    #[error("the old store decided and has lost its records: there is nothing to move")]
    Lost,
}

/// Why the authority did not change. Unless it says otherwise, it is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlipError {
    /// The follower was never given everything: [`copy`](super::DualStore::copy) first.
    #[error("the other store was never given all records: copy first")]
    NotCopied,
    /// Records are not in the follower as they are in the authority:
    /// [`catch_up`](super::DualStore::catch_up) first, in every process.
    #[error("{here} records are behind here, and those of {elsewhere} other processes")]
    Behind {
        /// In this process.
        here: usize,
        /// Notes of other processes.
        elsewhere: usize,
    },
    /// The clocks of the stores differ too much: leases would end early, or fences go back.
    #[error("the clocks of the stores are {apart:?} apart, and may be {max:?}")]
    ClocksApart {
        /// By how much.
        apart: Duration,
        /// What is accepted.
        max: Duration,
    },
    /// Another process is at it, or was and died; then the next call finds out in a while.
    #[error("another process changes the authority right now")]
    Underway,
    /// A store failed. If it failed after the change was decided, it has taken place:
    /// [`status`](super::DualStore::status) says so.
    #[error("a store failed")]
    Store(#[from] StoreError),
}

/// What is special about a dual store when it does not answer: the source of its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DualProblem {
    /// The authority is about to change, and does so for longer than a call waits.
    #[error("the authority is about to change")]
    Closing,
    /// The authority changed while the call was under way: its answer does not count.
    #[error("the authority changed while the call was under way")]
    Moved,
    /// The authority has lost the charter, and so its records.
    #[error("the store that decides has lost the charter of the move")]
    Lost,
    /// What is in the charter's place is not one that this release reads.
    #[error("the charter of the move cannot be read")]
    Unreadable,
    /// The old store was given as the new one, or the name of another move was used.
    #[error("the old and the new store are exchanged, or this is the name of another move")]
    Exchanged,
    /// Others changed the charter each time in between.
    #[error("the charter of the move changes all the time")]
    Contended,
}

impl DualProblem {
    pub(super) fn error(self, effect: Effect) -> StoreError {
        let kind = match self {
            Self::Unreadable | Self::Exchanged => StoreErrorKind::Undecodable,
            Self::Closing | Self::Moved | Self::Lost | Self::Contended => {
                StoreErrorKind::Unavailable
            }
        };
        StoreError::new("dual", kind, effect).caused_by(self)
    }
}

/// The call itself may have been applied, whatever failed after it.
pub(super) fn perhaps(error: StoreError) -> StoreError {
    StoreError { effect: Effect::MayHaveBeenApplied, ..error }
}

/// The call was not sent, whatever failed before it.
pub(super) fn surely_not(error: StoreError) -> StoreError {
    StoreError { effect: Effect::NotApplied, ..error }
}
