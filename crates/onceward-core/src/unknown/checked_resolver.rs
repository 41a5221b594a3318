//! Since when a resolver can tell that an operation did not happen.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::resolver::{BoxError, Finding, Resolver, Since};
use crate::clock::{Ambient as _, SystemAmbient, Timestamp};
use crate::intent::{Fingerprint, INTERNAL_TENANT, Identity, OperationId, RecordId, Scope, Sketch};
use crate::record::{Holder, Outcome, OwnerToken, Record, Retention, State, StateName, Tag};
use crate::store::{
    Claim, ClaimRequest, Effect, FullStore, Lapsed, Query, SettleRequest, Settlement, StoreError,
    StoreErrorKind, Verdict,
};

/// A resolver whose "did not happen" is checked before it counts: the operation is not older than
/// the resolver, and a resolver that goes by absence recognises what was completed.
pub(super) struct CheckedResolver {
    resolver: Arc<dyn Resolver>,
    store: Arc<dyn FullStore>,
    since: OnceCell<Timestamp>,
    /// When it last recognised a completed operation.
    recognised: Mutex<Option<Instant>>,
}

/// Codec tag of the record that keeps a resolver's first use.
const TAG: Tag = Tag::from_static("resolver/v1");
/// Retention of that record. Without it the resolver counts as new, so it outlives every operation.
const KEEP: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Completed operations that a resolver is asked about until it recognises one.
const COMPLETED_MAX: usize = 10;
/// Pages of records that are searched for them.
const PAGES_MAX: usize = 10;
/// Time for which a recognised operation vouches for the resolver. Tables are seldom emptied
/// or renamed, and each check costs the authority a question.
const RECOGNISED_FOR: Duration = Duration::from_secs(60);

impl CheckedResolver {
    pub(super) fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>) -> Self {
        let since = OnceCell::new_with(match resolver.since() {
            Since::FirstUse => None,
            Since::At(moment) => Some(moment),
            Since::Always => Some(Timestamp::default()),
        });
        Self { resolver, store, since, recognised: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        self.resolver.name()
    }

    /// Whether its moment is known. Where not, [`register`](Self::register) has to be called.
    pub(super) fn is_registered(&self) -> bool {
        self.since.initialized()
    }

    /// Records the first use of the resolver in the store, unless that is there already.
    pub(super) async fn register(&self) -> Result<Timestamp, StoreError> {
        self.since.get_or_try_init(|| self.first_use()).await.copied()
    }

    /// Asks the resolver. Its "did not happen" becomes "still unknown" where it cannot know that.
    pub(super) async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let finding = self.resolver.resolve(record).await?;
        match finding.verdict {
            Verdict::DidNotHappen => self.checked(record, finding).await,
            Verdict::Happened(_) | Verdict::StillUnknown => Ok(finding),
        }
    }

    async fn checked(&self, record: &Record, finding: Finding) -> Result<Finding, BoxError> {
        let since = self.register().await?;
        let Record { operation, created_at, .. } = record;
        if *created_at < since {
            tracing::warn!(
                resolver = self.name(), %operation, claimed = ?created_at, ?since,
                "\"did not happen\" does not count: the operation is older than the resolver"
            );
            let why = "it does not count: the operation is older than the resolver";
            return Ok(still_unknown(&finding, why));
        }
        if self.resolver.goes_by_absence() && !self.recognises_completed(since).await? {
            tracing::warn!(
                resolver = self.name(), %operation,
                "\"did not happen\" does not count: the resolver recognises no completed \
                 operation; see whether it looks in the right place"
            );
            let why = "it does not count: the resolver recognises no completed operation";
            return Ok(still_unknown(&finding, why));
        }
        Ok(finding)
    }

    /// Whether the resolver says of an operation that was completed that it happened. One that
    /// looks in the wrong place finds nothing there either.
    async fn recognises_completed(&self, since: Timestamp) -> Result<bool, BoxError> {
        if self.recognised.lock().is_some_and(|at| at.elapsed() < RECOGNISED_FOR) {
            return Ok(true);
        }
        for record in self.completed(since).await? {
            // An error says nothing about the others.
            let found = self.resolver.resolve(&record).await.map(|finding| finding.verdict);
            if let Ok(Verdict::Happened(_)) = found {
                *self.recognised.lock() = Some(Instant::now());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A sample of the operations that were claimed since then and are completed.
    async fn completed(&self, since: Timestamp) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        let mut query = Query { standing: Some(StateName::Completed), ..Query::default() };
        query.after = Some(anywhere());
        for _ in 0..PAGES_MAX {
            let page = self.store.list(&query).await?;
            let ours = |it: &Record| it.scope.tenant() != INTERNAL_TENANT && it.created_at >= since;
            found.extend(page.records.into_iter().filter(ours));
            if found.len() >= COMPLETED_MAX {
                break;
            }
            // After the last page comes the first one.
            query.after = page.next;
        }
        found.truncate(COMPLETED_MAX);
        Ok(found)
    }

    /// The moment in the store; the present if there is none.
    async fn first_use(&self) -> Result<Timestamp, StoreError> {
        let address = format!("{}\0{}", self.resolver.name(), self.resolver.address());
        // Not a secret, so that all processes agree on it whatever their identity is.
        let id = Identity::unkeyed().internal_id("resolver", &address);
        if let Some(record) = self.store.get(&id).await?
            && matches!(record.state, State::Completed { .. })
        {
            return Ok(record.created_at);
        }
        let claim = first_use_of(id);
        if let Claim::Granted { lease, .. } = self.store.claim(&claim).await? {
            let settle = SettleRequest {
                id,
                holder: Holder { owner: claim.owner, fence: lease.fence },
                settlement: Settlement::Complete(Outcome::whole(TAG, address.into_bytes())),
                retention: Retention { keep: KEEP, tombstone: Duration::ZERO },
            };
            let _fenced = self.store.settle(&settle).await?;
        }
        let lost = || StoreError::new("resolver", StoreErrorKind::Unavailable, Effect::NotApplied);
        Ok(self.store.get(&id).await?.ok_or_else(lost)?.created_at)
    }
}

fn still_unknown(finding: &Finding, why: &str) -> Finding {
    Finding::new(Verdict::StillUnknown, format!("{}; {why}", finding.evidence))
}

fn first_use_of(id: RecordId) -> ClaimRequest {
    let ambient = SystemAmbient::new();
    ClaimRequest {
        id,
        owner: OwnerToken::draw(&ambient),
        operation: OperationId::draw(&ambient, &id),
        scope: Scope::internal("resolver"),
        key: None,
        fingerprint: Fingerprint::of_parts(&[]),
        sketch: Sketch::default(),
        lease: Duration::from_secs(30),
        // A process that died meanwhile has used the resolver: its claim's time counts.
        lapsed: Lapsed::Takeover,
    }
}

/// A random place among the records, so that each sample is another one.
fn anywhere() -> RecordId {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&SystemAmbient::new().random().to_be_bytes());
    RecordId::from_bytes(bytes)
}
