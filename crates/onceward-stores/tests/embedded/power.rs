//! The machine loses power: writes that were not synced may be lost, as a whole or in part.
//!
//! The log's disk remembers the content of each sector since the last sync of its file. At a random
//! time it stops, and every sector is set to one of the contents that it may have on a real disk.
//! This covers all writes of the log: frames, headers, zeros, the mark. It does not cover renames
//! and new files that were not synced in their directory, nor the tree's own files, which lsm-tree
//! syncs before it refers to them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use onceward_core::{Claim, Fenced, Holder, Settlement, Store as _};
use onceward_stores::embedded::{Disk, EmbeddedStore, Environment, SystemDisk, verify};
use onceward_testkit::dice::Dice;

use super::common::{DAY, fast_directory, files, long, open, outcome, request, settle, small};

const SECTOR: u64 = 512;

/// A disk with a write cache that it loses.
#[derive(Debug)]
struct LossyDisk(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    dead: bool,
    /// Every content of each sector since the last sync, the synced one first, by file and sector.
    unsynced: HashMap<(u64, u64), Vec<Vec<u8>>>,
    writes_left: Option<u64>,
}

impl LossyDisk {
    fn dying_after(writes: u64) -> Arc<Self> {
        let writes_left = Some(writes);
        Arc::new(Self(Mutex::new(Cache { writes_left, ..Cache::default() })))
    }

    /// Sets every sector to something that it may have held.
    fn lose(&self, directory: &Path, dice: &Dice) {
        let cache = self.0.lock().unwrap();
        for path in files(&directory.join("log")) {
            let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
            let inode = file.metadata().unwrap().ino();
            let mut lost: Vec<_> =
                cache.unsynced.iter().filter(|((file, _), _)| *file == inode).collect();
            lost.sort_unstable_by_key(|(key, _)| **key);
            for ((_, sector), contents) in lost {
                let chosen = &contents[dice.bits() as usize % contents.len()];
                let length = file.metadata().unwrap().len();
                let room = length.saturating_sub(sector * SECTOR) as usize;
                file.write_all_at(&chosen[..chosen.len().min(room)], sector * SECTOR).unwrap();
            }
        }
    }
}

fn sector_of(file: &File, sector: u64) -> Vec<u8> {
    // Read through the file system, as the handle may be for writing only.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let reader = File::open(path).unwrap();
    let mut bytes = vec![0; SECTOR as usize];
    let mut filled = 0;
    while let Ok(count) = reader.read_at(&mut bytes[filled..], sector * SECTOR + filled as u64) {
        if count == 0 {
            break;
        }
        filled += count;
    }
    bytes
}

impl Disk for LossyDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut cache = self.0.lock().unwrap();
        cache.count()?;
        let inode = file.metadata()?.ino();
        let sectors = offset / SECTOR..(offset + bytes.len() as u64).div_ceil(SECTOR);
        for sector in sectors.clone() {
            let synced = || vec![sector_of(file, sector)];
            cache.unsynced.entry((inode, sector)).or_insert_with(synced);
        }
        SystemDisk.write(file, bytes, offset)?;
        for sector in sectors {
            let content = sector_of(file, sector);
            cache.unsynced.entry((inode, sector)).or_default().push(content);
        }
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut cache = self.0.lock().unwrap();
        cache.count()?;
        let inode = file.metadata()?.ino();
        cache.unsynced.retain(|(file, _), _| *file != inode);
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl Cache {
    fn count(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.writes_left {
            match left.checked_sub(1) {
                Some(rest) => *left = rest,
                None => self.dead = true,
            }
        }
        if self.dead { Err(io::Error::other("no power")) } else { Ok(()) }
    }
}

/// The answers of a client, and its last request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Told {
    claim_asked: bool,
    claimed: bool,
    completion_asked: bool,
    completed: bool,
}

async fn client(store: Arc<EmbeddedStore>, name: String) -> Vec<(String, Told)> {
    let mut story = Vec::new();
    for index in 0.. {
        let key = format!("{name}-{index}");
        let request = request(&key);
        let mut told = Told { claim_asked: true, ..Told::default() };
        if let Ok(Claim::Granted { lease, .. }) = store.claim(&request).await {
            told.claimed = true;
            let holder = Holder { owner: request.owner, fence: lease.fence };
            let completed = Settlement::Complete(outcome(body(&key)));
            told.completion_asked = true;
            let settled = settle(&*store, &key, holder, completed, DAY).await;
            told.completed = matches!(settled, Ok(Fenced::Applied(())));
        }
        story.push((key, told));
        if !told.completed {
            break;
        }
    }
    story
}

fn body(key: &str) -> String {
    key.repeat(1 + key.len() % 3 * 60)
}

/// Checks that the store fits what the client was told.
async fn check(store: &EmbeddedStore, key: &str, told: Told, seed: u64) {
    let found = store.claim(&request(key)).await.unwrap();
    let fits = match &found {
        Claim::Completed { outcome, .. } => {
            assert_eq!(outcome.bytes, body(key).as_bytes(), "seed {seed}: {key} is different");
            told.completion_asked
        }
        Claim::Unknown { .. } => told.claim_asked && !told.completed,
        Claim::Granted { .. } => !told.claimed,
        _ => false,
    };
    assert!(fits, "seed {seed}: {key} was {told:?} and is {found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_power_fails() {
    let cuts = if long() { 1_000 } else { 60 };
    let (mut torn, mut acknowledged) = (0, 0);
    for seed in 0..cuts {
        let dice = Dice::new(seed);
        let directory = fast_directory();
        drop(open(directory.path()));
        let mut stories: Vec<(String, Told)> = Vec::new();
        // Three lives of the same store, each ended by a power cut.
        for life in 0..3 {
            let disk = LossyDisk::dying_after(1 + dice.bits() as u64 % 400);
            let environment = Environment { disk: Arc::clone(&disk) as _, ..Default::default() };
            let opened = EmbeddedStore::open_in(directory.path(), small(), environment);
            if let Ok(store) = opened {
                let store = Arc::new(store);
                let clients: Vec<_> = (0..4)
                    .map(|task| {
                        let name = format!("{seed}-{life}-{task}");
                        tokio::spawn(client(Arc::clone(&store), name))
                    })
                    .collect();
                for client in clients {
                    stories.extend(client.await.unwrap());
                }
            }
            let unsynced = disk.0.lock().unwrap().unsynced.len();
            torn += u32::from(unsynced > 1);
            disk.lose(directory.path(), &dice);
            let store = open(directory.path());
            for (key, told) in &mut stories {
                check(&store, key, *told, seed).await;
                // The check has claimed a free key.
                (told.claim_asked, told.claimed) = (true, true);
            }
            acknowledged += stories.iter().filter(|(_, told)| told.completed).count();
        }
        let report = verify(directory.path(), |_| {}).unwrap();
        assert!(report.is_clean(), "seed {seed}: {report:?}");
    }
    println!(
        "{cuts} stores, {} cuts, {torn} with a torn batch, {acknowledged} looked at",
        cuts * 3
    );
    assert!(torn > 0 && acknowledged > 0);
    tokio::time::sleep(Duration::ZERO).await;
}
