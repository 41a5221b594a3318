//! A store that fails on demand, behind the same trait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    CachedCopies, Claim, ClaimRequest, Clock, Due, Effect, Fenced, FullStore, Health, Imported,
    InvalidateRequest, Lease, LossAccepted, MemoryLimits, MemoryStore, Page, Purged, Query, Record,
    RecordId, RecordVersion, RenewRequest, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin,
    StoreError, StoreErrorKind,
};
use parking_lot::Mutex;

/// Kind of a store call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Store::claim`].
    Claim,
    /// [`Store::renew`].
    Renew,
    /// [`Store::settle`].
    Settle,
    /// Any call of [`StoreAdmin`].
    Admin,
}

/// A failure to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails before anything happened, and says so.
    Fail,
    /// The call is applied, and its reply is lost: the caller gets an error.
    LoseReply,
    /// The call is applied, and its reply never comes.
    Hang,
    /// The call is applied after this delay, on tokio's clock.
    Delay(Duration),
    /// The store loses its data: this call and all later ones meet an empty store.
    LoseData,
}

/// One planned fault.
#[derive(Debug, Clone, Copy)]
struct Plan {
    call: Call,
    skip: usize,
    times: usize,
    fault: Fault,
}

/// A decorator that makes chosen calls fail. Without planned faults it is transparent.
pub struct FaultyStore {
    inner: Mutex<Arc<dyn FullStore>>,
    empty: Box<dyn Fn() -> Arc<dyn FullStore> + Send + Sync>,
    plans: Mutex<Vec<Plan>>,
}

impl FaultyStore {
    /// A decorator of the store that `open` makes. `open` also makes the empty store of
    /// [`Fault::LoseData`].
    pub fn new(open: impl Fn() -> Arc<dyn FullStore> + Send + Sync + 'static) -> Self {
        Self { inner: Mutex::new(open()), empty: Box::new(open), plans: Mutex::default() }
    }

    /// A decorator of a memory store on this clock.
    pub fn over_memory(clock: impl Clock + Clone) -> Self {
        Self::new(move || {
            Arc::new(MemoryStore::with(MemoryLimits::default(), Arc::new(clock.clone())))
        })
    }

    /// Injects a fault into the n-th such call from now, counted from one.
    pub fn on_nth(&self, n: usize, call: Call, fault: Fault) {
        self.plans.lock().push(Plan { call, skip: n.saturating_sub(1), times: 1, fault });
    }

    /// Injects a fault into the next `times` such calls.
    pub fn on_next(&self, times: usize, call: Call, fault: Fault) {
        self.plans.lock().push(Plan { call, skip: 0, times, fault });
    }

    /// Injects a fault into every such call until [`FaultyStore::heal`].
    pub fn on_every(&self, call: Call, fault: Fault) {
        self.on_next(usize::MAX, call, fault);
    }

    /// Removes all planned faults.
    pub fn heal(&self) {
        self.plans.lock().clear();
    }

    fn next_fault(&self, call: Call) -> Option<Fault> {
        let mut plans = self.plans.lock();
        let mut found = None;
        for plan in plans.iter_mut().filter(|plan| plan.call == call) {
            if plan.skip > 0 {
                plan.skip -= 1;
            } else if found.is_none() {
                plan.times -= 1;
                found = Some(plan.fault);
            }
        }
        plans.retain(|plan| plan.times > 0);
        found
    }

    async fn call<T, F>(
        &self,
        call: Call,
        work: impl FnOnce(Arc<dyn FullStore>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let fault = self.next_fault(call);
        match fault {
            Some(Fault::Fail) => return Err(failure(Effect::NotApplied)),
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::LoseData) => *self.inner.lock() = (self.empty)(),
            Some(Fault::LoseReply | Fault::Hang) | None => {}
        }
        let inner = Arc::clone(&self.inner.lock());
        let answer = work(inner).await;
        match fault {
            Some(Fault::LoseReply) => Err(failure(Effect::MayHaveBeenApplied)),
            Some(Fault::Hang) => std::future::pending().await,
            _ => answer,
        }
    }
}

fn failure(effect: Effect) -> StoreError {
    StoreError::new("faulty", StoreErrorKind::Unavailable, effect)
}

#[async_trait]
impl Store for FaultyStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.call(Call::Claim, async |store| store.claim(request).await).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.call(Call::Renew, async |store| store.renew(request).await).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.call(Call::Settle, async |store| store.settle(request).await).await
    }
}

#[async_trait]
impl StoreAdmin for FaultyStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.call(Call::Admin, async |store| store.get(id).await).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.call(Call::Admin, async |store| store.list(query).await).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.call(Call::Admin, async |store| store.resolve(request).await).await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.call(Call::Admin, async |store| store.invalidate(request).await).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.call(Call::Admin, async |store| store.purge(limit).await).await
    }

    fn archives(&self) -> bool {
        self.inner.lock().archives()
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.call(Call::Admin, async |store| store.due(limit).await).await
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        self.call(Call::Admin, async |store| store.purge_versions(versions).await).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.call(Call::Admin, async |store| store.stats().await).await
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.call(Call::Admin, async |store| store.import(record).await).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.call(Call::Admin, async |store| store.health().await).await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        self.call(Call::Admin, async |store| store.accept_loss().await).await
    }

    fn has_cache(&self) -> bool {
        self.inner.lock().has_cache()
    }

    async fn invalidate_cache(&self, copies: &CachedCopies) -> Result<(), StoreError> {
        self.call(Call::Admin, async |store| store.invalidate_cache(copies).await).await
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("plans", &*self.plans.lock()).finish_non_exhaustive()
    }
}
