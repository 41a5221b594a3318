//! What the callers, the writer and the upkeep threads have in common.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use onceward_core::{Effect, RecordId, Stats, StoreError, StoreErrorKind};
use parking_lot::{Condvar, Mutex};

use super::directory::Directory;
use super::disk::Disk;
use super::log::{Full, Number, Segment};
use super::settings::Settings;
use super::tally::Tally;
use super::time::StoreClock;
use super::tree::{self, Entry, Tree, TreeError};
use crate::codec::{self, Decoded, Life};

/// One open store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) settings: Settings,
    pub(super) clock: StoreClock,
    pub(super) life: Life,
    /// The last batch that is in the tree.
    pub(super) applied: AtomicU64,
    /// As of the last batch.
    pub(super) tally: Mutex<Tally>,
    pub(super) upkeep: Mutex<Upkeep>,
    /// Something in `upkeep` changed, or the store is poisoned.
    pub(super) news: Condvar,
    poison: OnceLock<String>,
    /// Last, because the tree removes files when it is dropped, and does so under the lock.
    pub(super) directory: Directory,
}

/// What upkeep is asked for, and what it has come to.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    pub(super) stopping: bool,
    pub(super) flush: bool,
    pub(super) compact: bool,
    /// Wanted: a segment of so many bytes.
    pub(super) segment: Option<u64>,
    pub(super) ready: Option<Segment>,
    pub(super) next_segment: u64,
    pub(super) full: VecDeque<Full>,
    /// The last attempt to make room on the disk for something failed.
    pub(super) no_room: Option<String>,
    /// The tree has damage that compaction met: it rests, so as not to spread it.
    pub(super) compaction_halted: bool,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { directory, tree, disk, settings, clock, applied, tally, upkeep } = parts;
        Self {
            tree,
            disk,
            settings,
            life: Life { boot: tally.boot, since: clock.now() },
            clock,
            applied: AtomicU64::new(applied),
            tally: Mutex::new(tally),
            upkeep: Mutex::new(upkeep),
            news: Condvar::new(),
            poison: OnceLock::new(),
            directory,
        }
    }

    /// Reads a record. What is in the tree was synced before, so it may be told.
    pub(super) fn read(&self, id: &RecordId) -> Result<Option<Decoded>, StoreError> {
        let found = self.tree.get(&tree::record_key(id)).transpose();
        found.map(|value| self.decode(Entry { id: *id, value })).transpose()
    }

    /// What an entry of the tree says.
    pub(super) fn decode(&self, Entry { id, value }: Entry) -> Result<Decoded, StoreError> {
        codec::decode(&id, &value.map_err(unreadable)?, self.life).map_err(|error| {
            tracing::error!(%error, ?id, "a record cannot be read");
            failed(StoreErrorKind::Undecodable, Effect::NotApplied).caused_by(error)
        })
    }

    pub(super) fn stats(&self) -> Stats {
        self.tally.lock().stats()
    }

    /// Stops the store for good: nobody knows any more what is on the disk.
    pub(super) fn poison(&self, why: String) {
        tracing::error!(why, directory = ?self.directory.path(), "the embedded store stops");
        let _ = self.poison.set(why);
        // Under the lock, so that nobody misses it between looking and waiting.
        let _upkeep = self.upkeep.lock();
        self.news.notify_all();
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    pub(super) fn poisoned(&self, effect: Effect) -> StoreError {
        let why = self.poison.get().cloned().unwrap_or_else(|| "its writer is gone".into());
        failed(StoreErrorKind::Poisoned, effect).caused_by(why)
    }

    /// Refuses to go on with a store that has stopped.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.is_poisoned() { Err(self.poisoned(Effect::NotApplied)) } else { Ok(()) }
    }

    pub(super) fn log_directory(&self) -> PathBuf {
        self.directory.log()
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// What an open store is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) directory: Directory,
    pub(super) tree: Tree,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) settings: Settings,
    pub(super) clock: StoreClock,
    pub(super) applied: Number,
    pub(super) tally: Tally,
    pub(super) upkeep: Upkeep,
}

pub(super) fn failed(kind: StoreErrorKind, effect: Effect) -> StoreError {
    StoreError::new("embedded", kind, effect)
}

/// A read that failed; nothing was changed by it.
pub(super) fn unreadable(error: TreeError) -> StoreError {
    let kind = match &error {
        TreeError::Damaged(_) => StoreErrorKind::Undecodable,
        TreeError::NoRoom(_) => StoreErrorKind::Full,
        TreeError::Io(_) => StoreErrorKind::Unavailable,
    };
    tracing::error!(%error, "the embedded store cannot read");
    failed(kind, Effect::NotApplied).caused_by(error)
}
