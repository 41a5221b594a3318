//! A writer of the store can destroy an outcome, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use onceward_core::{
    Begin, BeginError, Claim, ClaimRequest, Effect, Ended, Engine, Fenced, Fingerprint, FullStore,
    Imported, Intent, InvalidateRequest, Key, Lease, MemoryLimits, MemoryStore, Outcome, Page,
    Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Settled,
    Settlement, State, Stats, Store, StoreAdmin, StoreError, StoreErrorKind, Tag,
};
use onceward_stores::sealed::{Compression, Plain, SealProblem, SealedStore, Sealing};
use onceward_testkit::clock::ManualClock;
use parking_lot::Mutex;

use super::common::{
    A, B, DAY, complete, granted, id, keys, outcome, replay, request, scope, sealing, settle,
};

type Change = Box<dyn Fn(Ended, Outcome) -> (Ended, Outcome) + Send + Sync>;

/// A store whose outcomes are changed behind the decorator.
struct Tampered {
    inner: MemoryStore,
    clock: ManualClock,
    change: Mutex<Change>,
}

impl Tampered {
    fn new() -> Arc<Self> {
        let clock = ManualClock::new();
        let inner = MemoryStore::with(MemoryLimits::default(), Arc::new(clock.clone()));
        Arc::new(Self { inner, clock, change: Mutex::new(Box::new(|ended, it| (ended, it))) })
    }

    fn change(&self, change: impl Fn(Ended, Outcome) -> (Ended, Outcome) + Send + Sync + 'static) {
        *self.change.lock() = Box::new(change);
    }

    /// From now on all outcomes of the store have these bytes.
    fn change_bytes(&self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.change(move |ended, it| (ended, Outcome { bytes: bytes.clone(), ..it }));
    }

    fn tamper(&self, record: Record) -> Record {
        let (ended, outcome, retained) = match record.state.clone() {
            State::Completed { outcome, retained } => (Ended::Completed, outcome, retained),
            State::Failed { outcome, retained } => (Ended::Failed, outcome, retained),
            _ => return record,
        };
        let state = match (self.change.lock())(ended, outcome) {
            (Ended::Completed, outcome) => State::Completed { outcome, retained },
            (Ended::Failed, outcome) => State::Failed { outcome, retained },
        };
        Record { state, ..record }
    }

    /// The stored outcome of a key.
    async fn stored(&self, key: &str) -> Outcome {
        let record = self.inner.get(&id(key)).await.unwrap().unwrap();
        record.state.outcome().unwrap().clone()
    }
}

#[async_trait]
impl Store for Tampered {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let (operation, ended, outcome) = match self.inner.claim(request).await? {
            Claim::Completed { operation, outcome } => (operation, Ended::Completed, outcome),
            Claim::Failed { operation, outcome } => (operation, Ended::Failed, outcome),
            other => return Ok(other),
        };
        Ok(match (self.change.lock())(ended, outcome) {
            (Ended::Completed, outcome) => Claim::Completed { operation, outcome },
            (Ended::Failed, outcome) => Claim::Failed { operation, outcome },
        })
    }
    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.inner.renew(request).await
    }
    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.inner.settle(request).await
    }
}

#[async_trait]
impl StoreAdmin for Tampered {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        Ok(self.inner.get(id).await?.map(|record| self.tamper(record)))
    }
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut page = self.inner.list(query).await?;
        page.records = page.records.into_iter().map(|it| self.tamper(it)).collect();
        Ok(page)
    }
    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.inner.resolve(request).await
    }
    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.inner.invalidate(request).await
    }
    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.inner.purge(limit).await
    }
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.inner.import(record).await
    }
}

/// Checks that every way of reading a key's outcome fails, as undecodable.
async fn refused(store: &dyn FullStore, key: &str) -> SealProblem {
    let claim = store.claim(&request(key)).await.expect_err("a claim");
    let get = store.get(&id(key)).await.expect_err("a look");
    let list = store.list(&Query::default()).await.expect("a listing");
    assert!(list.undecodable.contains(&id(key)) && list.records.iter().all(|it| it.id != id(key)));
    for error in [&claim, &get] {
        assert_eq!(error.kind, StoreErrorKind::Undecodable);
        assert_eq!((error.effect, error.store), (Effect::NotApplied, "sealed"));
        assert_eq!(sealing(error), sealing(&claim));
    }
    assert_eq!(sealing(&claim).record, id(key));
    sealing(&claim).problem.clone()
}

#[tokio::test]
async fn every_flipped_bit_is_an_error() {
    for (compression, text) in [(Compression::Off, "done"), (Compression::Above(0), "aaaa")] {
        let inner = Tampered::new();
        let sealing = Sealing { compression, ..keys(&[A]).into() };
        let store = SealedStore::new(Arc::clone(&inner), sealing);
        complete(&store, "k", &text.repeat(16)).await;
        let sealed = inner.stored("k").await.bytes;
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            inner.change_bytes(bytes);
            refused(&store, "k").await;
        }
        inner.change_bytes(sealed);
        assert_eq!(replay(&store, "k").await.unwrap(), outcome(text.repeat(16)));
    }
}

#[tokio::test]
async fn every_truncation_and_every_addition_is_an_error() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    complete(&store, "k", &"done ".repeat(1_000)).await;
    let sealed = inner.stored("k").await.bytes;
    for end in 0..sealed.len() {
        inner.change_bytes(sealed.slice(..end));
        refused(&store, "k").await;
    }
    inner.change_bytes([&sealed[..], &[0]].concat());
    refused(&store, "k").await;
    inner.change_bytes([&[0], &sealed[..]].concat());
    refused(&store, "k").await;
}

#[tokio::test]
async fn an_outcome_moved_to_another_record_does_not_open() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    complete(&store, "mine", "mine").await;
    complete(&store, "yours", "yours").await;
    inner.change_bytes(inner.stored("yours").await.bytes);
    let error = replay(&store, "mine").await.unwrap_err();
    assert_eq!(sealing(&error).problem, SealProblem::Forged { id: "a".into() });
    assert_eq!(replay(&store, "yours").await.unwrap(), outcome("yours"));
}

#[tokio::test]
async fn an_earlier_outcome_of_the_same_key_does_not_open() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    complete(&store, "k", "last week").await;
    let earlier = inner.stored("k").await.bytes;
    inner.clock.advance(DAY.keep + Duration::from_secs(1));
    complete(&store, "k", "today").await;
    assert_eq!(replay(&store, "k").await.unwrap(), outcome("today"));
    inner.change_bytes(earlier);
    assert_eq!(refused(&store, "k").await, SealProblem::Forged { id: "a".into() });
}

#[tokio::test]
async fn a_failure_is_not_passed_off_as_a_success() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    let holder = granted(&store, "k").await;
    let failed = settle(&store, "k", holder, Settlement::Fail(outcome("no funds"))).await.unwrap();
    assert_eq!(failed, Fenced::Applied(()));
    inner.change(|_, it| (Ended::Completed, it));
    assert_eq!(refused(&store, "k").await, SealProblem::Forged { id: "a".into() });
}

#[tokio::test]
async fn an_outcome_does_not_open_for_another_request() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    complete(&store, "k", "done").await;
    // The fingerprint in the store is changed to that of another request, to which the inner store
    // would replay.
    let record = inner.inner.get(&id("k")).await.unwrap().unwrap();
    let other = Fingerprint::of_parts(&[b"other"]);
    let shelf = onceward_testkit::open_store::OpenStore::new(Arc::new(inner.clock.clone()));
    let request = ClaimRequest { fingerprint: other, operation: record.operation, ..request("k") };
    let Claim::Granted { lease, .. } = shelf.claim(&request).await.unwrap() else { panic!() };
    let holder = onceward_core::Holder { owner: request.owner, fence: lease.fence };
    let stored = Settlement::Complete(record.state.outcome().unwrap().clone());
    assert_eq!(settle(&shelf, "k", holder, stored).await.unwrap(), Fenced::Applied(()));
    let store = SealedStore::new(Arc::new(shelf), keys(&[A]));
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(sealing(&error).problem, SealProblem::Forged { id: "a".into() });
}

#[tokio::test]
async fn another_key_under_the_same_id_does_not_open() {
    let inner = Tampered::new();
    complete(&SealedStore::new(Arc::clone(&inner), keys(&[A])), "k", "done").await;
    let other = format!("a:{}", &B[2..]);
    let store = SealedStore::new(inner, keys(&[&other]));
    let problem = refused(&store, "k").await;
    assert_eq!(problem, SealProblem::Forged { id: "a".into() });
    assert!(problem.to_string().contains("`a` names another key now"), "{problem}");
}

#[tokio::test]
async fn an_unsealed_outcome_is_refused_unless_it_is_asked_for() {
    let inner = Tampered::new();
    complete(&*inner, "k", "from before").await;
    let careful = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    let problem = refused(&careful, "k").await;
    assert_eq!(problem, SealProblem::Plain { tag: "text/v1".into() });
    assert!(problem.to_string().contains("Plain::Read"), "{problem}");
    let sealing = Sealing { plain: Plain::Read, ..keys(&[A]).into() };
    let migrating = SealedStore::new(Arc::clone(&inner), sealing);
    assert_eq!(replay(&migrating, "k").await.unwrap(), outcome("from before"));
    // An outcome that is sealed and broken is not read as a plain one.
    complete(&migrating, "new", "sealed").await;
    assert_ne!(inner.stored("new").await.tag, outcome("").tag);
    inner.change_bytes("garbage");
    assert!(replay(&migrating, "new").await.is_err());
}

#[tokio::test]
async fn a_reader_without_keys_never_takes_a_seal_for_a_reply() {
    let inner = Tampered::new();
    let holder = granted(&*inner, "json").await;
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    let reply = Settlement::Complete(Outcome::json("paid").unwrap());
    assert_eq!(settle(&store, "json", holder, reply).await.unwrap(), Fenced::Applied(()));
    let bare = replay(&*inner, "json").await.unwrap();
    assert!(bare.read_json::<String>().is_err());
    assert_eq!((bare.tag, bare.resource), (Tag::from_static("sealed/v1"), None));
    assert_eq!(replay(&store, "json").await.unwrap().read_json::<String>().unwrap(), "paid");
}

#[tokio::test]
async fn nothing_runs_where_the_outcome_does_not_open() {
    let inner = Tampered::new();
    let store = Arc::new(SealedStore::new(Arc::clone(&inner), keys(&[A])));
    let engine = Engine::new(store);
    let (key, fingerprint) = (Key::new("k").unwrap(), Fingerprint::of_parts(&[b"request"]));
    let intent = Intent::new(scope(), key, fingerprint);
    let Begin::Execute(permit) = engine.begin(&intent).await.unwrap() else { panic!() };
    assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
    inner.change_bytes("garbage");
    match engine.begin(&intent).await {
        Err(BeginError::Unavailable(error)) => {
            assert_eq!(error.kind, StoreErrorKind::Undecodable);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_listing_names_what_does_not_open_beside_what_does() {
    let inner = Tampered::new();
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    for key in 0..5 {
        complete(&store, &key.to_string(), "done").await;
    }
    complete(&*inner, "unsealed", "done").await;
    for limit in 1..7 {
        let (mut seen, mut unread) = (0, Vec::new());
        let mut query = Query { limit, ..Query::default() };
        loop {
            let page = store.list(&query).await.unwrap();
            seen += page.records.len();
            assert!(page.records.iter().all(|it| it.state.outcome() == Some(&outcome("done"))));
            unread.extend(page.undecodable);
            query.after = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!((seen, unread), (5, vec![id("unsealed")]), "{limit} a page");
    }
}
