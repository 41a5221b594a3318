//! Archiving before removal: nothing is removed that is not in the archive.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use async_trait::async_trait;
use onceward_core::{
    Archive, ArchiveError, Archiving, Begin, Engine, FullStore, MemoryStore, PurgeError, Purger,
    Record, Rejection, Settled, StateName, StoreAdmin as _, Sweeper, SweeperRound, SweeperSettings,
};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::{Call, Fault, FaultyStore};
use onceward_testkit::open_store::OpenStore;
use parking_lot::Mutex;
use tokio::time::sleep;

/// An archive in memory that fails on demand.
#[derive(Default)]
struct TestArchive {
    records: Mutex<Vec<Record>>,
    full: Mutex<bool>,
}

impl TestArchive {
    /// How often a key's record is in the archive.
    fn copies(&self, key: &str) -> usize {
        self.records.lock().iter().filter(|record| record.id == id(key)).count()
    }
}

#[async_trait]
impl Archive for TestArchive {
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError> {
        if *self.full.lock() {
            return Err(ArchiveError::new("no space left on device"));
        }
        self.records.lock().extend(records.iter().cloned());
        Ok(())
    }
}

/// A store that can be archived, with faults on demand.
fn bench() -> Bench {
    let clock = SimClock::new();
    let of_store = clock.clone();
    let open =
        move || -> Arc<dyn FullStore> { Arc::new(OpenStore::new(Arc::new(of_store.clone()))) };
    Bench { store: Arc::new(FaultyStore::new(open)), clock }
}

fn engine(bench: &Bench) -> Engine {
    bench.engine_with(policy().retention(LEASE).keep_expired(true))
}

async fn done(engine: &Engine, key: &str) {
    assert_eq!(permit(engine, key).await.complete(outcome(key)).await, Settled::Durable);
}

/// Runs a sweeper that archives, and collects its rounds.
fn sweeping(bench: &Bench, archive: &Arc<TestArchive>) -> Arc<Mutex<Vec<String>>> {
    let rounds: Arc<Mutex<Vec<String>>> = Arc::default();
    let settings =
        SweeperSettings { every: Duration::from_secs(5), chunk: 7, ..SweeperSettings::default() };
    let sweeper = Sweeper::new(bench.store.clone(), Arc::new(bench.clock.clone()))
        .archive(Arc::clone(archive) as Arc<dyn Archive>)
        .settings(settings)
        .report({
            let rounds = Arc::clone(&rounds);
            move |round| {
                rounds.lock().push(match round {
                    SweeperRound::Removed(purged) => format!("removed {}", purged.removed),
                    SweeperRound::NotArchived(error) => error.to_string(),
                    other => format!("{other:?}"),
                });
            }
        });
    tokio::spawn(sweeper.run());
    rounds
}

#[tokio::test(start_paused = true)]
async fn every_expired_record_is_archived_once_before_it_is_removed() {
    let (bench, archive) = (bench(), Arc::new(TestArchive::default()));
    let engine = engine(&bench);
    for index in 0..30 {
        done(&engine, &format!("k{index}")).await;
    }
    let running = permit(&engine, "running").await;
    drop(permit(&engine, "unknown").await);
    let stored = bench.record("k0").await.unwrap();
    sweeping(&bench, &archive);
    sleep(LEASE * 3).await;
    for index in 0..30 {
        let key = format!("k{index}");
        assert_eq!((bench.record(&key).await, archive.copies(&key)), (None, 1), "{key}");
    }
    assert!(archive.records.lock().contains(&stored), "as it was stored");
    assert_eq!((archive.copies("running"), archive.copies("unknown")), (0, 0));
    assert_eq!(running.check(), Ok(()));
    assert_eq!(bench.standing("unknown").await, Some(StateName::Unknown));
}

#[tokio::test(start_paused = true)]
async fn without_an_archive_nothing_is_removed_and_the_reason_is_told() {
    let (bench, archive) = (bench(), Arc::new(TestArchive::default()));
    let engine = engine(&bench);
    done(&engine, "k").await;
    *archive.full.lock() = true;
    let rounds = sweeping(&bench, &archive);
    sleep(LEASE * 10).await;
    let told = "the archive cannot be written: no space left on device";
    assert_eq!(rounds.lock().last().unwrap(), told);
    assert!(bench.record("k").await.is_some_and(|it| it.state.outcome().is_some()));
    // No claim takes its place either, and loses it.
    let expired = engine.begin(&intent("k")).await.unwrap();
    assert!(matches!(expired, Begin::Reject(Rejection::Expired)), "{expired:?}");
    *archive.full.lock() = false;
    sleep(LEASE).await;
    assert_eq!((bench.record("k").await, archive.copies("k")), (None, 1));
    assert!(rounds.lock().contains(&"removed 1".to_owned()));
    drop(permit(&engine, "k").await);
}

/// A crash between archiving and removal looks like this to the next process, too.
#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_is_repeated_and_the_record_archived_again_as_it_was() {
    let (bench, archive) = (bench(), Arc::new(TestArchive::default()));
    let engine = engine(&bench);
    done(&engine, "k").await;
    sleep(LEASE * 2).await;
    let archiving = Archiving::To(Arc::clone(&archive) as Arc<dyn Archive>);
    let purger = Purger::new(bench.store.clone(), archiving);
    purger.tell().await.unwrap();
    bench.store.on_nth(2, Call::Admin, Fault::Fail);
    let failed = purger.purge(10).await;
    assert!(matches!(failed, Err(PurgeError::Store(_))), "{failed:?}");
    assert!(bench.record("k").await.is_some());
    assert_eq!(purger.purge(10).await.unwrap().removed, 1);
    assert_eq!(archive.copies("k"), 2, "at least once");
    let records = archive.records.lock();
    assert!(records.iter().all(|record| record == &records[0]), "with equal content");
}

/// Records are changed by an operator while they are being archived.
struct ChangingArchive {
    archive: TestArchive,
    store: Arc<FaultyStore>,
}

#[async_trait]
impl Archive for ChangingArchive {
    async fn write(&self, records: &[Record]) -> Result<(), ArchiveError> {
        self.archive.write(records).await?;
        for record in records.iter().filter(|it| it.attempts == 1) {
            let later = record.updated_at + Duration::from_millis(1);
            let changed = Record { attempts: 2, updated_at: later, ..record.clone() };
            let _written = self.store.import(&changed).await.unwrap();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_changes_after_it_was_archived_is_archived_again_before_it_is_removed() {
    let bench = bench();
    done(&engine(&bench), "k").await;
    sleep(LEASE * 2).await;
    let archive = TestArchive::default();
    let archive = Arc::new(ChangingArchive { archive, store: Arc::clone(&bench.store) });
    let archiving = Archiving::To(Arc::clone(&archive) as Arc<dyn Archive>);
    let purger = Purger::new(bench.store.clone(), archiving);
    assert_eq!(purger.purge(10).await.unwrap().removed, 0, "another version is stored");
    assert_eq!(bench.record("k").await.map(|record| record.attempts), Some(2));
    assert_eq!(purger.purge(10).await.unwrap().removed, 1);
    let records = archive.archive.records.lock();
    let attempts: Vec<_> = records.iter().map(|record| record.attempts).collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_process_without_an_archive_removes_nothing_that_others_archive() {
    let (bench, archive) = (bench(), Arc::new(TestArchive::default()));
    let archiving = || Archiving::To(Arc::clone(&archive) as Arc<dyn Archive>);
    let purger = |archiving| Purger::new(bench.store.clone(), archiving);
    let (unset, off) = (purger(Archiving::Unset), purger(Archiving::Off));
    done(&engine(&bench), "before").await;
    sleep(LEASE * 2).await;
    assert_eq!(unset.purge(10).await.unwrap().removed, 1, "it was never archived");
    assert!(!unset.keeps_expired().await.unwrap());

    purger(archiving()).tell().await.unwrap();
    done(&engine(&bench), "k").await;
    sleep(LEASE * 2).await;
    let refused = unset.purge(10).await;
    assert!(matches!(refused, Err(PurgeError::NoArchive)), "{refused:?}");
    assert!(bench.record("k").await.is_some() && unset.keeps_expired().await.unwrap());
    // Until the operator says that records are not archived any more.
    assert_eq!(off.purge(10).await.unwrap().removed, 1);
    assert!(!unset.keeps_expired().await.unwrap());
    done(&engine(&bench), "after").await;
    sleep(LEASE * 2).await;
    assert_eq!(unset.purge(10).await.unwrap().removed, 1);
    // And again.
    purger(archiving()).tell().await.unwrap();
    assert!(unset.keeps_expired().await.unwrap());
    assert_eq!(archive.records.lock().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_archived_is_refused_and_keeps_its_records() {
    let archive: Arc<dyn Archive> = Arc::new(TestArchive::default());
    let store = Arc::new(MemoryStore::new());
    let purger = Purger::new(store.clone(), Archiving::To(archive));
    assert!(matches!(purger.purge(10).await, Err(PurgeError::NotArchivable)));
    let unset = Purger::new(store, Archiving::Unset);
    assert_eq!(unset.purge(10).await.unwrap().removed, 0);
}
