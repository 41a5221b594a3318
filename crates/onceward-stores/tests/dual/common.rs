//! Moves with short leases, and two processes on the same two stores.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Clock, FullStore, MemoryLimits, MemoryStore};
use onceward_stores::dual::{DualStore, Settings};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::{Call, Fault, FaultyStore};
use parking_lot::Mutex;

pub(crate) use crate::calls::{
    DAY, complete, eventually, granted, id, kills, long, outcome, replay, request, settle,
};

pub(crate) const LEASE: Duration = Duration::from_millis(40);

pub(crate) fn short() -> Settings {
    Settings { lease: LEASE, ..Settings::default() }
}

pub(crate) async fn open(old: Arc<dyn FullStore>, new: Arc<dyn FullStore>) -> DualStore {
    DualStore::open("a move", old, new, short()).await.unwrap()
}

/// Copies everything to the follower and makes it the authority.
pub(crate) async fn moved(store: &DualStore) {
    let copied = store.copy(|_| {}).await.unwrap();
    assert!(copied.is_clean(), "{copied:?}");
    store.switch_over().await.unwrap();
}

pub(crate) fn memory(clock: Arc<dyn Clock>) -> Arc<dyn FullStore> {
    Arc::new(MemoryStore::with(MemoryLimits::default(), clock))
}

/// Two stores on tokio's time, which tests pause.
pub(crate) struct Two {
    pub(crate) old: Arc<dyn FullStore>,
    pub(crate) new: Arc<dyn FullStore>,
}

impl Two {
    pub(crate) fn new() -> Self {
        let clock = SimClock::new();
        Self { old: memory(Arc::new(clock.clone())), new: memory(Arc::new(clock)) }
    }

    /// A process with its own networks to the stores.
    pub(crate) async fn process(&self) -> Process {
        let place = Arc::new(Mutex::new(Arc::clone(&self.new)));
        let way = |place: Arc<Mutex<Arc<dyn FullStore>>>| {
            Arc::new(FaultyStore::new(move || Arc::clone(&place.lock())))
        };
        let old = way(Arc::new(Mutex::new(Arc::clone(&self.old))));
        let new = way(Arc::clone(&place));
        let store = open(Arc::clone(&old) as _, Arc::clone(&new) as _).await;
        Process { store, old, new, place }
    }
}

pub(crate) struct Process {
    pub(crate) store: DualStore,
    pub(crate) old: Arc<FaultyStore>,
    pub(crate) new: Arc<FaultyStore>,
    place: Arc<Mutex<Arc<dyn FullStore>>>,
}

impl Process {
    /// Replaces the new store of this process from its next call on.
    pub(crate) fn empty_new(&self, empty: &Arc<dyn FullStore>) {
        *self.place.lock() = Arc::clone(empty);
        self.new.on_nth(1, Call::Admin, Fault::LoseData);
    }
}
