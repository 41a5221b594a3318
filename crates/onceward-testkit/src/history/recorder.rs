//! A store that records the effect of every call.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Clock, Fenced, FullStore, Imported, InvalidateRequest, Lease, Page,
    Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Stats, Store,
    StoreAdmin, StoreError,
};
use parking_lot::Mutex;

use super::{Event, History, StoreCall, Transition};

/// A decorator that records transitions. It is exact only where calls do not interleave: on one
/// thread, over a store that answers without waiting, as in the simulator.
pub struct RecordingStore {
    inner: Arc<dyn FullStore>,
    clock: Arc<dyn Clock>,
    history: History,
    seen: Mutex<BTreeSet<RecordId>>,
}

impl RecordingStore {
    /// Records what happens to the store inside.
    pub fn new(inner: Arc<dyn FullStore>, clock: Arc<dyn Clock>, history: History) -> Self {
        Self { inner, clock, history, seen: Mutex::default() }
    }

    async fn record<T>(
        &self,
        id: &RecordId,
        work: impl Future<Output = Result<T, StoreError>>,
        call: impl FnOnce(&T) -> StoreCall,
    ) -> Result<T, StoreError> {
        self.seen.lock().insert(*id);
        let before = self.inner.get(id).await?;
        let answer = work.await?;
        let after = self.inner.get(id).await?;
        let (at, call) = (self.clock.now(), call(&answer));
        let transition = Transition { at, record: *id, call, before, after };
        self.history.push(Event::Transition(Box::new(transition)));
        Ok(answer)
    }
}

fn applied<T>(fenced: &Fenced<T>) -> bool {
    matches!(fenced, Fenced::Applied(_))
}

#[async_trait]
impl Store for RecordingStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.record(&request.id, self.inner.claim(request), |_| StoreCall::Claim).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let call =
            |fenced: &_| StoreCall::Renew { holder: request.holder, applied: applied(fenced) };
        self.record(&request.id, self.inner.renew(request), call).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let call =
            |fenced: &_| StoreCall::Settle { holder: request.holder, applied: applied(fenced) };
        self.record(&request.id, self.inner.settle(request), call).await
    }
}

#[async_trait]
impl StoreAdmin for RecordingStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let call =
            |fenced: &_| StoreCall::Resolve { fence: request.fence, applied: applied(fenced) };
        self.record(&request.id, self.inner.resolve(request), call).await
    }

    /// Not recorded: no history is about corrections.
    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.inner.invalidate(request).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        let ids = self.seen.lock().clone();
        let mut stored = Vec::new();
        for id in ids {
            stored.push((id, self.inner.get(&id).await?));
        }
        let purged = self.inner.purge(limit).await?;
        let at = self.clock.now();
        for (record, before) in stored {
            let after = self.inner.get(&record).await?;
            if after != before {
                let call = StoreCall::Purge;
                let transition = Transition { at, record, call, before, after };
                self.history.push(Event::Transition(Box::new(transition)));
            }
        }
        Ok(purged)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }

    /// Not recorded: no history is about records that come from elsewhere.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.inner.import(record).await
    }
}

impl fmt::Debug for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingStore(…)")
    }
}
