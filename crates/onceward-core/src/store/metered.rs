//! Metrics and traces of store calls, for any store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    CachedCopies, Claim, ClaimRequest, Due, Fenced, Health, Imported, InvalidateRequest, Lease,
    LossAccepted, Page, Purged, Query, RenewRequest, ResolveRequest, SettleRequest, Stats, Store,
    StoreAdmin, StoreError,
};
use crate::intent::{Fingerprint, RecordId};
use crate::record::{Ended, Record, RecordVersion, Replay};

/// Store, call and result.
type CallLabels = [(&'static str, &'static str); 3];
type TimeLabels = [(&'static str, &'static str); 2];

/// The metrics of all metered stores of a process.
#[derive(Debug, Clone)]
pub struct Meters {
    calls: Family<CallLabels, Counter>,
    seconds: Family<TimeLabels, Histogram>,
}

impl Meters {
    /// Creates the metrics in a registry:
    /// `onceward_store_calls_total{store,call,result}` and
    /// `onceward_store_call_seconds{store,call}`.
    pub fn register(registry: &mut Registry) -> Self {
        let calls = Family::default();
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register("onceward_store_calls", "Store calls by result", calls.clone());
        registry.register_with_unit(
            "onceward_store_call",
            "Time a store call took",
            Unit::Seconds,
            seconds.clone(),
        );
        Self { calls, seconds }
    }
}

/// Buckets from a memory lookup to a server that is about to time out.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_005, 2.5, 16))
}

/// A store whose calls are counted, timed and traced. Behaves as the store inside.
pub struct MeteredStore<S: ?Sized> {
    inner: Arc<S>,
    name: &'static str,
    meters: Meters,
}

impl<S: ?Sized> MeteredStore<S> {
    /// Meters a store under a name.
    pub fn new(inner: Arc<S>, name: &'static str, meters: Meters) -> Self {
        Self { inner, name, meters }
    }

    async fn metered<T>(
        &self,
        call: &'static str,
        result: impl FnOnce(&T) -> &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let span = tracing::debug_span!("store", store = self.name, call);
        let start = Instant::now();
        let answer = work.instrument(span).await;
        let result = match &answer {
            Ok(answer) => result(answer),
            Err(error) if error.may_have_been_applied() => "unclear",
            Err(_) => "error",
        };
        self.count(call, result, start);
        answer
    }

    fn count(&self, call: &'static str, result: &'static str, start: Instant) {
        let took = start.elapsed().as_secs_f64();
        let (store, call) = (("store", self.name), ("call", call));
        self.meters.seconds.get_or_create(&[store, call]).observe(took);
        self.meters.calls.get_or_create(&[store, call, ("result", result)]).inc();
    }
}

fn claim_result(claim: &Claim) -> &'static str {
    match claim {
        Claim::Granted { .. } => "granted",
        Claim::Running { .. } => "running",
        Claim::Completed { .. } => "completed",
        Claim::Failed { .. } => "failed",
        Claim::Mismatch { .. } => "mismatch",
        Claim::Unknown { .. } => "unknown",
        Claim::Expired => "expired",
    }
}

fn fenced_result<T>(fenced: &Fenced<T>) -> &'static str {
    match fenced {
        Fenced::Applied(_) => "applied",
        Fenced::Stale => "stale",
        Fenced::Missing => "missing",
    }
}

fn ok<T>(_: &T) -> &'static str {
    "ok"
}

#[async_trait]
impl<S: Store + ?Sized> Store for MeteredStore<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.metered("claim", claim_result, self.inner.claim(request)).await
    }

    /// Counted as the claim that it saves.
    fn recall(&self, id: &RecordId, fingerprint: &Fingerprint) -> Option<Replay> {
        let start = Instant::now();
        let replay = self.inner.recall(id, fingerprint)?;
        let result = match replay.ended {
            Ended::Completed => "completed",
            Ended::Failed => "failed",
        };
        self.count("claim", result, start);
        Some(replay)
    }

    fn recalls(&self) -> bool {
        self.inner.recalls()
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.metered("renew", fenced_result, self.inner.renew(request)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.metered("settle", fenced_result, self.inner.settle(request)).await
    }

    async fn changed(&self, id: &RecordId) {
        self.inner.changed(id).await;
    }
}

#[async_trait]
impl<S: StoreAdmin + ?Sized> StoreAdmin for MeteredStore<S> {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.metered("get", ok, self.inner.get(id)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.metered("list", ok, self.inner.list(query)).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.metered("resolve", fenced_result, self.inner.resolve(request)).await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.metered("invalidate", fenced_result, self.inner.invalidate(request)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.metered("purge", ok, self.inner.purge(limit)).await
    }

    fn archives(&self) -> bool {
        self.inner.archives()
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.metered("due", ok, self.inner.due(limit)).await
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        self.metered("purge_versions", ok, self.inner.purge_versions(versions)).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.metered("stats", ok, self.inner.stats()).await
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.metered("import", ok, self.inner.import(record)).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.metered("health", ok, self.inner.health()).await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.metered("accept_loss", ok, self.inner.accept_loss()).await
    }

    fn has_cache(&self) -> bool {
        self.inner.has_cache()
    }

    async fn invalidate_cache(&self, copies: &CachedCopies) -> Result<(), StoreError> {
        self.metered("invalidate_cache", ok, self.inner.invalidate_cache(copies)).await
    }
}

impl<S: ?Sized> fmt::Debug for MeteredStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredStore").field("name", &self.name).finish_non_exhaustive()
    }
}
