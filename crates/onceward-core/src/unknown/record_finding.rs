//! Settles an unknown record by a finding, and logs the decision.

use super::decision_log::{Decision, DecisionKind, DecisionLog};
use super::resolver::Finding;
use crate::record::{Record, Retention};
use crate::store::{Fenced, ResolveRequest, StoreAdmin, StoreError};

/// A finding about a record, to be applied to it.
pub(super) struct RecordFinding<'a> {
    pub(super) record: &'a Record,
    pub(super) finding: Finding,
    /// Name of the resolver.
    pub(super) by: &'a str,
    pub(super) retention: Retention,
}

impl RecordFinding<'_> {
    /// Settles the record if its fence has not changed. The decision is logged before it is
    /// applied. Returns `None` if the outcome is still unknown.
    pub(super) async fn apply<S: StoreAdmin + ?Sized>(
        self,
        store: &S,
        decisions: Option<&DecisionLog>,
    ) -> Result<Option<DecisionKind>, StoreError> {
        let Self { record, finding: Finding { verdict, evidence }, by, retention } = self;
        let Some(decided) = DecisionKind::of_verdict(&verdict) else { return Ok(None) };
        let (operation, fence, by) = (record.operation, record.fence, by.to_owned());
        let decision = Decision { operation, fence, decided, by, evidence };
        if let Some(decisions) = decisions {
            decisions.write(&decision).await?;
        }
        let request = ResolveRequest { id: record.id, fence, verdict, retention };
        if store.resolve(&request).await? == Fenced::Applied(()) {
            return Ok(Some(decided));
        }
        let decided = DecisionKind::Superseded;
        if let Some(decisions) = decisions {
            decisions.write(&Decision { decided, ..decision }).await?;
        }
        Ok(Some(decided))
    }
}
