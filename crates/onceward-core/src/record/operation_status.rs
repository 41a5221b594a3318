//! The status of an operation, for status pages.

use super::holder::Fence;
use super::outcome::Outcome;
use super::{Record, StateName};
use crate::clock::Timestamp;
use crate::intent::{OperationId, Scope};

/// Status of an operation. Show it only to the tenant and caller in [`scope`](Self::scope).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationStatus {
    /// Its id.
    pub id: OperationId,
    /// Its tenant, caller and operation name.
    pub scope: Scope,
    /// Its state now. An operation whose lease has lapsed stands at unknown.
    pub standing: StateName,
    /// Its outcome, if it is settled and still stored.
    pub outcome: Option<Outcome>,
    /// Number of grants.
    pub attempts: u32,
    /// The fence of the last grant.
    pub fence: Fence,
    /// Time of the first grant, on the store's clock.
    pub created_at: Timestamp,
    /// Time of the last change, on the store's clock.
    pub updated_at: Timestamp,
}

impl OperationStatus {
    /// The status of a record that stands at `standing`.
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
