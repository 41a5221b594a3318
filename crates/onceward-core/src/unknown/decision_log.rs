//! The decision log: who decided what about an unknown operation, and why. Append-only.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Ambient, SystemAmbient, Timestamp};
use crate::intent::{INTERNAL_TENANT, Identity, OperationId, RecordId};
use crate::record::{Fence, Holder, Outcome, Record, Retention, State, Tag};
use crate::store::{
    Claim, ClaimRequest, Effect, FullStore, Query, SettleRequest, Settlement, StoreError,
    StoreErrorKind, Verdict,
};

/// A decision about an operation: of its unknown outcome, or about its stored one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The operation.
    pub operation: OperationId,
    /// The fence of the grant that it is about.
    pub fence: Fence,
    /// The decision.
    pub decided: DecisionKind,
    /// The resolver or the operator that decided.
    pub by: String,
    /// The resolver's evidence, or the operator's reason.
    pub evidence: String,
}

/// Kind of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// It had happened: its outcome was stored.
    Happened,
    /// It had not happened and no longer can: its key was freed.
    DidNotHappen,
    /// The decision came too late: the operation was settled before.
    Superseded,
    /// The store had lost records, and grants claims again. About the whole store: the operation
    /// id names only the decision.
    LossAccepted,
    /// A correction of data had removed the effect: the stored outcome is not replayed any more.
    Invalidated,
    /// Copies of records in a cache do not count any more. If it is not about one operation, the
    /// operation id names only the decision.
    CacheInvalidated,
}

impl DecisionKind {
    /// The decision that a verdict makes; `None` if it is still unknown.
    pub const fn of_verdict(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Happened(_) => Some(Self::Happened),
            Verdict::DidNotHappen => Some(Self::DidNotHappen),
            Verdict::StillUnknown => None,
        }
    }

    /// The state of the record after the decision, for log lines.
    pub const fn state_after(self) -> Option<&'static str> {
        match self {
            Self::Happened => Some("completed"),
            Self::DidNotHappen => Some("released"),
            Self::Superseded | Self::LossAccepted | Self::Invalidated | Self::CacheInvalidated => {
                None
            }
        }
    }
}

/// An entry of the decision log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedDecision {
    /// The decision.
    pub decision: Decision,
    /// When it was logged, on the store's clock.
    pub at: Timestamp,
}

/// The decisions of a store, kept in the store itself.
///
/// Each is a record that is completed at once. Completed records do not change, so no interface
/// of Onceward can edit a decision.
#[derive(Clone)]
pub struct DecisionLog {
    store: Arc<dyn FullStore>,
    identity: Identity,
    ambient: Arc<dyn Ambient>,
    keep: Duration,
}

/// Codec tag of decision records.
const TAG: Tag = Tag::from_static("decision/v1");
/// Default retention of decisions: longer than the books are open.
const KEEP: Duration = Duration::from_secs(400 * 24 * 3600);
/// Lease of a log entry that is being written.
const LEASE: Duration = Duration::from_secs(30);
/// Most decisions about one operation. In practice there are one or two.
const DECISIONS_MAX: u32 = 1_000;

impl DecisionLog {
    /// The decision log of a store, with a retention of about a year.
    pub fn new(store: Arc<dyn FullStore>, identity: Identity) -> Self {
        Self { store, identity, ambient: Arc::new(SystemAmbient::new()), keep: KEEP }
    }

    /// Sets the retention of new entries.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Source of time and randomness, for simulations.
    #[must_use]
    pub fn ambient(mut self, ambient: Arc<dyn Ambient>) -> Self {
        self.ambient = ambient;
        self
    }

    /// Logs a decision. Apply the decision after this has returned.
    pub async fn write(&self, decision: &Decision) -> Result<(), StoreError> {
        let outcome = serde_json::to_vec(decision).map(|bytes| Outcome::whole(TAG, bytes));
        let outcome = outcome.map_err(|error| refused().caused_by(error))?;
        for number in 0..DECISIONS_MAX {
            let claim = self.claim(&decision.operation, number);
            if let Claim::Granted { lease, .. } = self.store.claim(&claim).await? {
                let holder = Holder { owner: claim.owner, fence: lease.fence };
                let retention = Retention { keep: self.keep, tombstone: Duration::ZERO };
                let settlement = Settlement::Complete(outcome);
                let settle = SettleRequest { id: claim.id, holder, settlement, retention };
                let _fenced = self.store.settle(&settle).await?;
                return Ok(());
            }
        }
        Err(refused())
    }

    /// Returns the decisions about an operation, in order.
    pub async fn about(&self, operation: &OperationId) -> Result<Vec<LoggedDecision>, StoreError> {
        let mut decisions = Vec::new();
        for number in 0..DECISIONS_MAX {
            match self.store.get(&self.id(operation, number)).await? {
                Some(record) => decisions.extend(read(&record)),
                None => break,
            }
        }
        Ok(decisions)
    }

    /// Returns a page of all decisions, and where the next page begins.
    pub async fn list(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<(Vec<LoggedDecision>, Option<RecordId>), StoreError> {
        let (tenant, name) = (INTERNAL_TENANT.to_owned(), "decision".to_owned());
        let query = Query {
            tenant: Some(tenant),
            operation_name: Some(name),
            after,
            limit,
            ..Query::default()
        };
        let page = self.store.list(&query).await?;
        Ok((page.records.iter().filter_map(read).collect(), page.next))
    }

    fn id(&self, operation: &OperationId, number: u32) -> RecordId {
        self.identity.internal_id("decision", format!("{operation}.{number}"))
    }

    fn claim(&self, operation: &OperationId, number: u32) -> ClaimRequest {
        // Taken over when it lapses: a writer that died has logged nothing and decided nothing.
        ClaimRequest::internal(&*self.ambient, self.id(operation, number), "decision", LEASE)
    }
}

impl std::fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DecisionLog(…)")
    }
}

fn read(record: &Record) -> Option<LoggedDecision> {
    let State::Completed { outcome, .. } = &record.state else { return None };
    let decision = serde_json::from_slice(&outcome.bytes).ok()?;
    Some(LoggedDecision { decision, at: record.created_at })
}

fn refused() -> StoreError {
    StoreError::new("decisions", StoreErrorKind::Unavailable, Effect::NotApplied)
}
