//! The conformance suite on two stores as one, before and after a switchover.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{Clock, FullStore, StoreAdmin as _};
use onceward_stores::dual::DualStore;
use onceward_stores::embedded::EmbeddedStore;
use onceward_stores::sealed::SealedStore;
use onceward_testkit::clock::{ManualClock, START_MS};
use onceward_testkit::conformance::{Harness, Traits};
use onceward_testkit::model;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use super::common::{long, memory, moved, open};
use crate::embedded::common::{fast_directory, open_at};
use crate::postgres::conformance::{Moved, moved_from};
use crate::redis::conformance::Aged;
use crate::sealed::common::{A, B, keys};

/// When the switchover takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flips {
    Never,
    AtFirst,
}

async fn dual(old: Arc<dyn FullStore>, new: Arc<dyn FullStore>, switchovers: Flips) -> DualStore {
    let store = open(old, new).await;
    if switchovers == Flips::AtFirst {
        moved(&store).await;
        // Removes the record by which the clocks were measured.
        store.purge(10).await.unwrap();
    }
    store
}

/// Directories that live as long as the stores in them.
#[derive(Default)]
struct Directories(parking_lot::Mutex<Vec<TempDir>>);

impl Directories {
    fn open(&self, clock: Arc<dyn Clock>) -> EmbeddedStore {
        let directory = fast_directory();
        let store = open_at(directory.path(), clock);
        self.0.lock().push(directory);
        store
    }
}

/// Memory and a directory, on one clock that the test moves.
struct OneClock {
    clock: ManualClock,
    directories: Directories,
    switchovers: Flips,
    wrap: fn(Arc<dyn FullStore>, usize) -> Arc<dyn FullStore>,
}

fn one_clock(switchovers: Flips) -> OneClock {
    let wrap = |store, _| store;
    OneClock { clock: ManualClock::new(), directories: Directories::default(), switchovers, wrap }
}

#[async_trait]
impl Harness for OneClock {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_secs(10), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let old = (self.wrap)(memory(Arc::clone(&clock)), 0);
        let new = (self.wrap)(Arc::new(self.directories.open(clock)), 1);
        let store = dual(old, new, self.switchovers).await;
        (self.wrap)(Arc::new(store), 2)
    }

    async fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
    }
}

/// A directory and PostgreSQL, whose clocks are moved together.
struct WithPostgres {
    clock: ManualClock,
    directories: Directories,
    postgres: Moved,
    switchovers: Flips,
}

fn with_postgres(switchovers: Flips) -> Option<WithPostgres> {
    assert_eq!(START_MS, 1_790_000_000_000);
    let postgres = moved_from("to_timestamp(1790000000)")?;
    let (clock, directories) = (ManualClock::new(), Directories::default());
    Some(WithPostgres { clock, directories, postgres, switchovers })
}

#[async_trait]
impl Harness for WithPostgres {
    fn traits(&self) -> Traits {
        self.postgres.traits()
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        let old = Arc::new(self.directories.open(Arc::new(self.clock.clone())));
        Arc::new(dual(old, self.postgres.open().await, self.switchovers).await)
    }

    async fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
        self.postgres.pass(duration).await;
    }
}

/// Redis and PostgreSQL. Time passes for the authority only, as the follower judges no leases.
struct Servers {
    redis: Aged,
    postgres: Moved,
    switchovers: Flips,
}

fn servers(switchovers: Flips) -> Option<Servers> {
    let (redis, postgres) = (Aged::server()?, moved_from("pg_catalog.now()")?);
    Some(Servers { redis, postgres, switchovers })
}

#[async_trait]
impl Harness for Servers {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_secs(60), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(dual(self.redis.open().await, self.postgres.open().await, self.switchovers).await)
    }

    async fn pass(&self, duration: Duration) {
        match self.switchovers {
            Flips::Never => self.redis.pass(duration).await,
            Flips::AtFirst => self.postgres.pass(duration).await,
        }
    }
}

mod memory_and_embedded {
    use super::*;

    onceward_testkit::store_conformance!(one_clock(Flips::Never));
}

mod memory_and_embedded_after_a_switchover {
    use super::*;

    onceward_testkit::store_conformance!(one_clock(Flips::AtFirst));
}

mod sealed_over_both {
    use super::*;

    fn sealed() -> OneClock {
        let wrap = |store, which| -> Arc<dyn FullStore> {
            if which == 2 { Arc::new(SealedStore::new(store, keys(&[A]))) } else { store }
        };
        OneClock { wrap, ..one_clock(Flips::AtFirst) }
    }

    onceward_testkit::store_conformance!(sealed());
}

mod each_sealed_with_a_key_of_its_own {
    use super::*;

    fn sealed() -> OneClock {
        let wrap = |store, which| -> Arc<dyn FullStore> {
            match which {
                0 => Arc::new(SealedStore::new(store, keys(&[A]))),
                1 => Arc::new(SealedStore::new(store, keys(&[B]))),
                _ => store,
            }
        };
        OneClock { wrap, ..one_clock(Flips::AtFirst) }
    }

    onceward_testkit::store_conformance!(sealed());
}

mod embedded_and_postgres {
    use super::*;

    onceward_testkit::store_conformance!(or_skip with_postgres(Flips::Never));
}

mod embedded_and_postgres_after_a_switchover {
    use super::*;

    onceward_testkit::store_conformance!(or_skip with_postgres(Flips::AtFirst));
}

mod redis_and_postgres {
    use super::*;

    onceward_testkit::store_conformance!(or_skip servers(Flips::Never));
}

mod redis_and_postgres_after_a_switchover {
    use super::*;

    onceward_testkit::store_conformance!(or_skip servers(Flips::AtFirst));
}

/// Compares two stores as one with the truth table, on random sequences.
async fn compare<H: Harness>(harness: impl Fn() -> Option<H>, cases: usize) {
    let mut runner = TestRunner::default();
    let sequences = model::sequences(60);
    for _ in 0..if long() { cases * 20 } else { cases } {
        let Some(harness) = harness() else { return };
        let steps = sequences.new_tree(&mut runner).unwrap().current();
        if let Err(difference) = model::compare(&harness, &steps).await {
            panic!("{difference}\n{steps:#?}");
        }
    }
}

#[tokio::test]
async fn memory_and_embedded_answer_as_the_truth_table_does() {
    for switchovers in [Flips::Never, Flips::AtFirst] {
        compare(|| Some(one_clock(switchovers)), 25).await;
    }
}

#[tokio::test]
async fn embedded_and_postgres_answer_as_the_truth_table_does() {
    for switchovers in [Flips::Never, Flips::AtFirst] {
        compare(|| with_postgres(switchovers), 3).await;
    }
}

#[tokio::test]
async fn redis_and_postgres_answer_as_the_truth_table_does() {
    for switchovers in [Flips::Never, Flips::AtFirst] {
        compare(|| servers(switchovers), 3).await;
    }
}
