//! State that callers, the writer and the upkeep threads share.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use onceward_core::{Effect, RecordId, Stats, StoreError, StoreErrorKind};
use parking_lot::{Condvar, Mutex};

use super::directory::Directory;
use super::disk::Disk;
use super::log::{FullSegment, Number, Segment};
use super::open_records::OpenRecords;
use super::settings::Settings;
use super::tally::Tally;
use super::time::StoreClock;
use super::tree::{self, Entry, Tree, TreeError};
use crate::codec::{self, CurrentBoot, Decoded};

/// One open store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) settings: Settings,
    pub(super) clock: StoreClock,
    pub(super) boot: CurrentBoot,
    /// The last batch that is in the tree.
    pub(super) applied: AtomicU64,
    /// The counters after the last batch.
    pub(super) tally: Mutex<Tally>,
    pub(super) open_records: OpenRecords,
    pub(super) upkeep: Mutex<Upkeep>,
    /// Signals a change of `upkeep`, or poison.
    pub(super) news: Condvar,
    poison: OnceLock<String>,
    /// Last, as dropping the tree removes files, which must happen under the lock.
    pub(super) directory: Directory,
}

/// Requests to the upkeep threads, and their results.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    pub(super) stopping: bool,
    pub(super) flush: bool,
    pub(super) compact: bool,
    /// The size of a segment to make.
    pub(super) segment: Option<u64>,
    pub(super) ready: Option<Segment>,
    pub(super) next_segment: u64,
    pub(super) full: VecDeque<FullSegment>,
    /// Why the last attempt to write to the disk found no room.
    pub(super) no_room: Option<String>,
    /// Compaction has met damage and stopped, so as not to spread it.
    pub(super) compaction_halted: bool,
}

impl Shared {
    pub(super) fn new(parts: StoreParts) -> Self {
        let StoreParts { directory, tree, disk, settings, clock, applied, tally, upkeep } = parts;
        Self {
            tree,
            disk,
            settings,
            boot: CurrentBoot { boot: tally.boot, since: clock.now() },
            clock,
            applied: AtomicU64::new(applied),
            open_records: OpenRecords::new(&tally),
            tally: Mutex::new(tally),
            upkeep: Mutex::new(upkeep),
            news: Condvar::new(),
            poison: OnceLock::new(),
            directory,
        }
    }

    /// Reads a record. Everything in the tree is durable, so it may be answered.
    pub(super) fn read(&self, id: &RecordId) -> Result<Option<Decoded>, StoreError> {
        let found = self.tree.get(&tree::record_key(id)).transpose();
        found.map(|value| self.decode(Entry { id: *id, value })).transpose()
    }

    /// Decodes an entry of the tree.
    pub(super) fn decode(&self, Entry { id, value }: Entry) -> Result<Decoded, StoreError> {
        codec::decode(&id, &value.map_err(unreadable)?, self.boot).map_err(|error| {
            tracing::error!(%error, ?id, "a record cannot be read");
            failed(StoreErrorKind::Undecodable, Effect::NotApplied).caused_by(error)
        })
    }

    /// Counts the records. The first call may read all of them, see [`OpenRecords`].
    pub(super) fn stats(&self) -> Result<Stats, StoreError> {
        self.open_records.find_earlier(self)?;
        let mut stats = self.tally.lock().stats();
        self.open_records.correct(&mut stats, self.clock.now());
        Ok(stats)
    }

    /// Stops the store for good, as the content of the disk is unknown.
    pub(super) fn poison(&self, why: String) {
        tracing::error!(why, directory = ?self.directory.path(), "the embedded store stops");
        let _ = self.poison.set(why);
        // Under the lock, so that a thread between its check and its wait is woken too.
        let _upkeep = self.upkeep.lock();
        self.news.notify_all();
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    pub(super) fn poisoned(&self, effect: Effect) -> StoreError {
        let why = self.poison.get().cloned().unwrap_or_else(|| "its writer has ended".into());
        failed(StoreErrorKind::Poisoned, effect).caused_by(why)
    }

    /// Fails if the store has stopped.
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

/// The parts of an open store.
#[derive(Debug)]
pub(super) struct StoreParts {
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

/// The error of a failed read, which changed nothing.
pub(super) fn unreadable(error: TreeError) -> StoreError {
    let kind = match &error {
        TreeError::Damaged(_) => StoreErrorKind::Undecodable,
        TreeError::NoRoom(_) => StoreErrorKind::Full,
        TreeError::Io(_) => StoreErrorKind::Unavailable,
    };
    tracing::error!(%error, "the embedded store cannot read");
    failed(kind, Effect::NotApplied).caused_by(error)
}
