//! An operation as people ask about it.

use super::holder::Fence;
use super::outcome::Outcome;
use super::{Record, StateName};
use crate::clock::Timestamp;
use crate::intent::{OperationId, Scope};

/// Where an operation stands. Show it only to whom [`scope`](Self::scope) says it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name.
    pub id: OperationId,
    /// Whose it is.
    pub scope: Scope,
    /// Where it stands now; one whose lease has lapsed stands at unknown.
    pub standing: StateName,
    /// What it came to, where that is settled and kept.
    pub outcome: Option<Outcome>,
    /// How often it was granted.
    pub attempts: u32,
    /// The fence of the last grant.
    pub fence: Fence,
    /// First grant, on the store's clock.
    pub created_at: Timestamp,
    /// Last change, on the store's clock.
    pub updated_at: Timestamp,
}

impl Operation {
    /// A record that stands there.
    pub(crate) fn of(record: Record, standing: StateName) -> Self {
        Self {
            id: record.operation,
            standing,
            outcome: record.state.outcome().filter(|_| standing != StateName::Expired).cloned(),
            attempts: record.attempts,
            fence: record.fence,
            created_at: record.created_at,
            updated_at: record.updated_at,
            scope: record.scope,
        }
    }
}
