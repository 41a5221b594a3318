//! Settling a record by what was found out.

use super::decision_log::{Decided, Decision, Decisions};
use super::resolver::Finding;
use crate::record::{Record, Retention};
use crate::store::{Fenced, ResolveRequest, StoreAdmin, StoreError};

/// What somebody who knows has found out about a record, and how long to keep that.
pub(super) struct Judgement<'a> {
    pub(super) record: &'a Record,
    pub(super) finding: Finding,
    /// Who found it out.
    pub(super) by: &'a str,
    pub(super) retention: Retention,
}

impl Judgement<'_> {
    /// Settles the record by it, if its fence is still the one that was asked about. A decision
    /// is written down before it counts. `None` where nobody knows.
    pub(super) async fn carry_out<S: StoreAdmin + ?Sized>(
        self,
        store: &S,
        decisions: Option<&Decisions>,
    ) -> Result<Option<Decided>, StoreError> {
        let Self { record, finding: Finding { verdict, evidence }, by, retention } = self;
        let Some(decided) = Decided::by_verdict(&verdict) else { return Ok(None) };
        let (operation, fence, by) = (record.operation, record.fence, by.to_owned());
        let decision = Decision { operation, fence, decided, by, evidence };
        if let Some(decisions) = decisions {
            decisions.write(&decision).await?;
        }
        let request = ResolveRequest { id: record.id, fence, verdict, retention };
        if store.resolve(&request).await? == Fenced::Applied(()) {
            return Ok(Some(decided));
        }
        let decided = Decided::Superseded;
        if let Some(decisions) = decisions {
            decisions.write(&Decision { decided, ..decision }).await?;
        }
        Ok(Some(decided))
    }
}
