//! Results of a bulk and of its items.

use serde::{Deserialize, Serialize};

use super::item::InvalidBulk;
use crate::engine::{BeginError, Rejection};
use crate::intent::OperationId;
use crate::record::Unreadable;

/// Result of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ItemResult<T, E> {
    /// It succeeded, now or earlier. It is never done again.
    Succeeded {
        /// The value of the work.
        value: T,
    },
    /// It failed for good.
    Failed {
        /// The work's error.
        error: E,
    },
    /// Nothing happened. Send it again in a new bulk with a new key.
    Retryable {
        /// The work's error.
        error: E,
    },
    /// It cannot be proved what happened. Every retry of the bulk asks again.
    Unknown {
        /// The operation to look up.
        operation: OperationId,
    },
}

/// A finished bulk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkDone<T, E> {
    /// Each item's id and result, in the order of the request.
    pub items: Vec<(String, ItemResult<T, E>)>,
    /// The operation's id.
    pub operation: OperationId,
    /// True if it is replayed from an earlier run.
    pub replayed: bool,
}

/// Why a bulk has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The list of items is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidBulk),
    /// The key is in use, or was used for other items.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The engine could not decide; no item was begun.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The bulk stopped before its end. Sent again, it continues where it stopped.
    #[error("the bulk was interrupted at item {item:?}; send it again to continue: {reason}")]
    Interrupted {
        /// The item that could not be begun.
        item: String,
        /// Why not.
        reason: String,
    },
    /// The bulk was done by another release of the program, whose result this one cannot read.
    #[error("the stored result of operation {operation} cannot be read")]
    Unreadable {
        /// The operation's id.
        operation: OperationId,
        /// The reason.
        #[source]
        source: Unreadable,
    },
}

impl BulkError {
    pub(super) fn interrupted(item: String, reason: impl std::fmt::Display) -> Self {
        Self::Interrupted { item, reason: reason.to_string() }
    }
}
