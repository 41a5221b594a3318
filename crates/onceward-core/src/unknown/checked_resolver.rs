//! A resolver whose "did not happen" is checked before it counts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::resolver::{BoxError, Finding, Resolver, Since};
use crate::clock::{Ambient as _, SystemAmbient, Timestamp};
use crate::intent::{INTERNAL_TENANT, Identity, RecordId};
use crate::log::LogThrottle;
use crate::record::{Holder, Outcome, Record, Retention, State, StateName, Tag};
use crate::store::{
    Claim, ClaimRequest, Effect, FullStore, Query, SettleRequest, Settlement, StoreError,
    StoreErrorKind, Verdict,
};

/// Accepts "did not happen" only if the operation is not older than the resolver, and if a
/// resolver that goes by absence recognises completed operations.
pub(super) struct CheckedResolver {
    resolver: Arc<dyn Resolver>,
    store: Arc<dyn FullStore>,
    since: OnceCell<Timestamp>,
    /// When it last recognised a completed operation.
    recognised: Mutex<Option<Instant>>,
    /// Rate limit of log lines about failures: every retry may meet one.
    pub(super) failures: LogThrottle,
}

/// Codec tag of the record of a resolver's first use.
const TAG: Tag = Tag::from_static("resolver/v1");
/// Retention of that record. Without it the resolver counts as new, so it outlives every operation.
const KEEP: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Lease of that record while it is being written.
const LEASE: Duration = Duration::from_secs(30);
/// Most completed operations that a resolver is asked about until it recognises one.
const COMPLETED_MAX: usize = 10;
/// Most pages that are searched for completed operations.
const PAGES_MAX: usize = 10;
/// Time for which a recognised operation vouches for the resolver. Tables are seldom emptied
/// or renamed, and each check costs the authority a query.
const RECOGNISED_FOR: Duration = Duration::from_secs(60);

impl CheckedResolver {
    pub(super) fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>) -> Self {
        let since = OnceCell::new_with(match resolver.since() {
            Since::FirstUse => None,
            Since::At(moment) => Some(moment),
            Since::Always => Some(Timestamp::default()),
        });
        let (recognised, failures) = (Mutex::default(), LogThrottle::new(10));
        Self { resolver, store, since, recognised, failures }
    }

    pub(super) fn name(&self) -> &str {
        self.resolver.name()
    }

    /// True if the time of its first use is known. If not, call [`register`](Self::register).
    pub(super) fn is_registered(&self) -> bool {
        self.since.initialized()
    }

    /// Stores the time of the resolver's first use, unless the store has it already.
    pub(super) async fn register(&self) -> Result<Timestamp, StoreError> {
        self.since.get_or_try_init(|| self.first_use()).await.copied()
    }

    /// Asks the resolver. Turns "did not happen" into "still unknown" where it does not count.
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
            if let Some(occurrences) = self.failures.occurred() {
                tracing::warn!(
                    resolver = self.name(), %operation, claimed = ?created_at, ?since, occurrences,
                    "\"did not happen\" does not count: the operation is older than the resolver"
                );
            }
            let why = "it does not count: the operation is older than the resolver";
            return Ok(still_unknown(&finding, why));
        }
        if self.resolver.goes_by_absence() && !self.recognises_completed(since).await? {
            if let Some(occurrences) = self.failures.occurred() {
                tracing::warn!(
                    resolver = self.name(), %operation, occurrences,
                    "\"did not happen\" does not count: the resolver recognises no completed \
                     operation; see whether it looks in the right place"
                );
            }
            let why = "it does not count: the resolver recognises no completed operation";
            return Ok(still_unknown(&finding, why));
        }
        Ok(finding)
    }

    /// Returns whether the resolver says of a completed operation that it happened. One that looks
    /// in the wrong place does not find that either.
    async fn recognises_completed(&self, since: Timestamp) -> Result<bool, BoxError> {
        if self.recognised.lock().is_some_and(|at| at.elapsed() < RECOGNISED_FOR) {
            return Ok(true);
        }
        for record in self.completed(since).await? {
            // After an error the other operations are still asked about.
            let found = self.resolver.resolve(&record).await.map(|finding| finding.verdict);
            if let Ok(Verdict::Happened(_)) = found {
                *self.recognised.lock() = Some(Instant::now());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a sample of the completed operations that were claimed since then.
    async fn completed(&self, since: Timestamp) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        let mut query = Query { standing: Some(StateName::Completed), ..Query::default() };
        query.after = Some(random_id());
        for _ in 0..PAGES_MAX {
            let page = self.store.list(&query).await?;
            let ours = |it: &Record| it.scope.tenant() != INTERNAL_TENANT && it.created_at >= since;
            found.extend(page.records.into_iter().filter(ours));
            if found.len() >= COMPLETED_MAX {
                break;
            }
            // `None` starts again from the first page.
            query.after = page.next;
        }
        found.truncate(COMPLETED_MAX);
        Ok(found)
    }

    /// Returns the stored time of the first use, and stores the present if there is none.
    async fn first_use(&self) -> Result<Timestamp, StoreError> {
        let address = format!("{}\0{}", self.resolver.name(), self.resolver.address());
        // Without a secret, so that all processes use the same record, whatever their identity.
        let id = Identity::unkeyed().internal_id("resolver", &address);
        if let Some(record) = self.store.get(&id).await?
            && matches!(record.state, State::Completed { .. })
        {
            return Ok(record.created_at);
        }
        // Taken over when it lapses: the record keeps the time of its first claim.
        let claim = ClaimRequest::internal(&SystemAmbient::new(), id, "resolver", LEASE);
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

/// A random id to list from, so that each sample is a different one.
fn random_id() -> RecordId {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&SystemAmbient::new().random().to_be_bytes());
    RecordId::from_bytes(bytes)
}
