//! Who decided what about an operation that nobody knew the outcome of, and why: a trail that
//! is only ever added to.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Ambient, SystemAmbient, Timestamp};
use crate::intent::{Fingerprint, INTERNAL_TENANT, Identity, OperationId, RecordId, Scope, Sketch};
use crate::record::{Fence, Holder, Outcome, OwnerToken, Record, Retention, State, Tag};
use crate::store::{
    Claim, ClaimRequest, Effect, FullStore, Lapsed, Query, SettleRequest, Settlement, StoreError,
    StoreErrorKind, Verdict,
};

/// What was decided about an operation whose outcome was unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The operation.
    pub operation: OperationId,
    /// The grant that it is about.
    pub fence: Fence,
    /// What was decided.
    pub decided: Decided,
    /// Who or what decided: a resolver's name, an operator.
    pub by: String,
    /// Why: what was found, or the reason that the operator gave.
    pub evidence: String,
}

/// What can be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// It had happened: its outcome was stored.
    Happened,
    /// It had not happened and cannot any more: its key was freed.
    DidNotHappen,
    /// Somebody else had settled the matter before this could count.
    Superseded,
    /// The store had lost records, and grants claims again. About the store as a whole: the
    /// operation is a name for the decision itself.
    LossAccepted,
}

impl Decided {
    /// What a verdict decides; nothing if nobody knows.
    pub const fn by_verdict(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Happened(_) => Some(Self::Happened),
            Verdict::DidNotHappen => Some(Self::DidNotHappen),
            Verdict::StillUnknown => None,
        }
    }
}

/// A decision, and when it was written down on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What was decided.
    pub decision: Decision,
    /// When.
    pub at: Timestamp,
}

/// All decisions of a store, kept in the store itself.
///
/// Each is a record that was completed as soon as it was made, and completed records do not
/// change: nobody can edit what was decided through any of our interfaces.
#[derive(Clone)]
pub struct Decisions {
    store: Arc<dyn FullStore>,
    identity: Identity,
    ambient: Arc<dyn Ambient>,
    keep: Duration,
}

/// Of the records' outcomes.
const TAG: Tag = Tag::from_static("decision/v1");
/// How long decisions are kept: longer than the books are open.
const KEEP: Duration = Duration::from_secs(400 * 24 * 3600);
/// More decisions about one operation than anybody makes.
const DECISIONS_MAX: u32 = 1_000;

impl Decisions {
    /// The decisions that are kept in a store, for about a year.
    pub fn new(store: Arc<dyn FullStore>, identity: Identity) -> Self {
        Self { store, identity, ambient: Arc::new(SystemAmbient::new()), keep: KEEP }
    }

    /// Keeps new ones for that long instead.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Writes a decision down. When it returns, the decision can be made.
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

    /// What was decided about an operation, in order.
    pub async fn about(&self, operation: &OperationId) -> Result<Vec<Written>, StoreError> {
        let mut decisions = Vec::new();
        for number in 0..DECISIONS_MAX {
            match self.store.get(&self.id(operation, number)).await? {
                Some(record) => decisions.extend(read(&record)),
                None => break,
            }
        }
        Ok(decisions)
    }

    /// A page of all decisions, and where the next one begins.
    pub async fn list(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<(Vec<Written>, Option<RecordId>), StoreError> {
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
        let id = self.id(operation, number);
        ClaimRequest {
            id,
            owner: OwnerToken::draw(&*self.ambient),
            operation: OperationId::draw(&*self.ambient, &id),
            scope: Scope::internal("decision"),
            key: None,
            fingerprint: Fingerprint::of_parts(&[]),
            sketch: Sketch::default(),
            lease: Duration::from_secs(30),
            // A writer that died wrote nothing, and decided nothing yet.
            lapsed: Lapsed::Takeover,
        }
    }
}

impl std::fmt::Debug for Decisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decisions(…)")
    }
}

fn read(record: &Record) -> Option<Written> {
    let State::Completed { outcome, .. } = &record.state else { return None };
    let decision = serde_json::from_slice(&outcome.bytes).ok()?;
    Some(Written { decision, at: record.created_at })
}

fn refused() -> StoreError {
    StoreError::new("decisions", StoreErrorKind::Unavailable, Effect::NotApplied)
}
