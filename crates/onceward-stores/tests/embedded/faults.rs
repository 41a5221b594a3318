//! A disk that fails or is full.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onceward_core::{
    Effect, Fenced, Holder, Settlement, Store as _, StoreAdmin as _, StoreErrorKind,
};
use onceward_stores::embedded::{Disk, EmbeddedStore, Environment, Settings, SystemDisk, verify};

use super::common::{
    DAY, SmallDisk, complete, granted, id, open, outcome, replay, request, settle, small,
};

/// A disk that fails on request.
#[derive(Debug)]
struct TestDisk {
    syncs_fail: AtomicBool,
    free_bytes: AtomicU64,
}

impl TestDisk {
    fn new() -> Arc<Self> {
        Arc::new(Self { syncs_fail: AtomicBool::new(false), free_bytes: AtomicU64::new(u64::MAX) })
    }
}

impl Disk for TestDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        SystemDisk.write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk said no"));
        }
        SystemDisk.sync(file)
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(self.free_bytes.load(Ordering::SeqCst))
    }
}

fn open_on(directory: &Path, disk: &Arc<TestDisk>, settings: Settings) -> EmbeddedStore {
    let environment = Environment { disk: Arc::clone(disk) as _, ..Environment::default() };
    EmbeddedStore::open_in(directory, settings, environment).unwrap()
}

#[tokio::test]
async fn a_failed_sync_poisons_the_store_until_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let store = open_on(directory.path(), &disk, small());
    complete(&store, "before", "before").await;
    disk.syncs_fail.store(true, Ordering::SeqCst);
    let error = store.claim(&request("during")).await.unwrap_err();
    let poisoned = |effect| (StoreErrorKind::Poisoned, effect);
    assert_eq!((error.kind, error.effect), poisoned(Effect::MayHaveBeenApplied));

    // A disk that works again does not prove what it has lost.
    disk.syncs_fail.store(false, Ordering::SeqCst);
    let replayed = store.claim(&request("before")).await.unwrap_err();
    let claimed = store.claim(&request("after")).await.unwrap_err();
    let looked_at = store.get(&id("before")).await.unwrap_err();
    let counted = store.stats().await.unwrap_err();
    let purged = store.purge(1).await.unwrap_err();
    for error in [replayed, claimed, looked_at, counted, purged] {
        assert_eq!((error.kind, error.effect), poisoned(Effect::NotApplied));
        assert!(format!("{error:?}").contains("the disk said no"), "{error:?}");
    }
    drop(store);
    let store = open(directory.path());
    assert_eq!(replay(&store, "before").await, "before");
    complete(&store, "after", "after").await;
}

#[tokio::test]
async fn below_the_reserve_claims_are_refused_and_settlements_fit() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let settings = Settings { reserve_bytes: 1_000, ..small() };
    let store = open_on(directory.path(), &disk, settings.clone());
    complete(&store, "done", "done").await;
    let holder = granted(&store, "running").await;
    drop(store);
    // The free space is read at opening and regularly after that.
    disk.free_bytes.store(999, Ordering::SeqCst);
    let store = open_on(directory.path(), &disk, settings);
    let error = store.claim(&request("new")).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (StoreErrorKind::Full, Effect::NotApplied));
    assert_eq!(replay(&store, "done").await, "done");
    let completed = Settlement::Complete(outcome("late"));
    let settled = settle(&store, "running", holder, completed, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
    assert_eq!(store.purge(10).await.unwrap().removed, 0);

    disk.free_bytes.store(1_000, Ordering::SeqCst);
    let mut claimed = store.claim(&request("new")).await;
    while claimed.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Full) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        claimed = store.claim(&request("new")).await;
    }
    claimed.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_what_runs_can_be_settled_and_nothing_is_lost() {
    let Some(disk) = SmallDisk::mount(24) else {
        eprintln!("skipped: this process may not mount a small file system");
        return;
    };
    let directory = disk.path().join("data");
    let settings = Settings {
        segment_bytes: 512 << 10,
        memtable_bytes: 512 << 10,
        reserve_bytes: 12 << 20,
        ..Settings::small()
    };
    let store = EmbeddedStore::open(&directory, settings.clone()).unwrap();
    let (mut done, mut running): (Vec<String>, Vec<(String, Holder)>) = Default::default();
    let body = |key: &str| key.repeat(200);
    let full = loop {
        let key = format!("key {}", done.len() + running.len());
        let request = request(&key);
        match store.claim(&request).await {
            Ok(onceward_core::Claim::Granted { lease, .. }) => {
                let holder = Holder { owner: request.owner, fence: lease.fence };
                // Leaves one in four of the first keys running.
                if done.len() / 3 > running.len() && running.len() < 200 {
                    running.push((key, holder));
                } else {
                    let completed = Settlement::Complete(outcome(body(&key)));
                    let settled = settle(&store, &key, holder, completed, DAY).await.unwrap();
                    assert_eq!(settled, Fenced::Applied(()));
                    done.push(key);
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!((full.kind, full.effect), (StoreErrorKind::Full, Effect::NotApplied));
    assert!(running.len() > 20, "{} ran", running.len());
    for (key, holder) in &running {
        let completed = Settlement::Complete(outcome(body(key)));
        let settled = settle(&store, key, *holder, completed, DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()));
    }
    drop(store);
    let store = EmbeddedStore::open(&directory, settings).unwrap();
    for (key, _) in &running {
        assert_eq!(replay(&store, key).await, body(key));
    }
    for key in &done {
        assert_eq!(replay(&store, key).await, body(key));
    }
    drop(store);
    assert!(verify(&directory, |_| {}).unwrap().is_clean());
}

/// Without a reserve, and with a disk filled to the last byte, calls are refused without effect
/// while there is no room, and continue afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn without_any_room_calls_fail_without_effect_and_go_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(16) else {
        eprintln!("skipped: this process may not mount a small file system");
        return;
    };
    let directory = disk.path().join("data");
    let settings = Settings { segment_bytes: 128 << 10, reserve_bytes: 0, ..small() };
    let store = EmbeddedStore::open(&directory, settings.clone()).unwrap();
    complete(&store, "before", "before").await;
    let filler = disk.path().join("filler");
    let mut file = File::create(&filler).unwrap();
    while io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let (mut index, mut refused) = (0, 0);
    let mut granted_keys = Vec::new();
    while refused < 3 {
        let key = format!("key {index}");
        index += 1;
        match store.claim(&request(&key)).await {
            Ok(_) => granted_keys.push(key),
            Err(error) => {
                assert_eq!((error.kind, error.effect), (StoreErrorKind::Full, Effect::NotApplied));
                assert_eq!(store.get(&id(&key)).await.unwrap(), None);
                refused += 1;
            }
        }
    }
    std::fs::remove_file(&filler).unwrap();
    drop(file);
    for index in 0..50 {
        complete(&store, &format!("after {index}"), &"after ".repeat(200)).await;
    }
    drop(store);
    let store = EmbeddedStore::open(&directory, settings).unwrap();
    assert_eq!(replay(&store, "before").await, "before");
    for key in granted_keys {
        assert!(store.get(&id(&key)).await.unwrap().is_some(), "{key} is lost");
    }
}
