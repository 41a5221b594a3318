//! The tree: records by id and due entries by time, in lsm-tree's files.
//!
//! The first byte of a key is its kind. Numbers of batches are the tree's sequence numbers, so it
//! knows up to which batch it holds the log.

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::compaction::Leveled;
use lsm_tree::{
    AbstractTree as _, AnyTree, Cache, Config, KvSeparationOptions, SeqNo, SequenceNumberCounter,
};
use onceward_core::{RecordId, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::disk::sync_directory;
use super::error::OpenError;
use super::log::Number;
use super::settings::Settings;
use super::tally::Tally;

/// Larger values are in files of their own. Those are dropped as a whole when all values in them
/// have expired, and are not rewritten when keys move.
const APART_FROM_BYTES: u32 = 512;
/// Share of dead values at which [`Tree::compact_all`] rewrites a value file.
const DEAD_SHARE: f32 = 0.5;

/// Table size of a full rewrite.
const TABLE_BYTES: u64 = 64 << 20;

/// Reads always use the newest version, so older ones can be dropped at once.
const NEWEST: SeqNo = SeqNo::MAX;
const KEEP_NO_OLD_VERSIONS: SeqNo = SeqNo::MAX;

const RECORD: u8 = b'r';
const DUE: u8 = b'd';
const TALLY: &[u8] = b"m";

const CURRENT: &str = "current";
const BLOBS: &str = "blobs";

/// Key of a record.
pub(super) fn record_key(id: &RecordId) -> [u8; 33] {
    let mut key = [RECORD; 33];
    key[1..].copy_from_slice(id.as_bytes());
    key
}

/// Key of a due entry, which says when a record changes by time alone.
pub(super) fn due_key(due: Due) -> [u8; 41] {
    let mut key = [DUE; 41];
    key[1..9].copy_from_slice(&due.at.as_millis().to_be_bytes());
    key[9..].copy_from_slice(due.id.as_bytes());
    key
}

/// A time at which a record changes by time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Due {
    pub(super) at: Timestamp,
    pub(super) id: RecordId,
}

impl Due {
    fn parse(key: &[u8]) -> Option<Self> {
        let (at, id) = key.strip_prefix(&[DUE])?.split_at_checked(8)?;
        let at = Timestamp::from_millis(u64::from_be_bytes(at.try_into().ok()?));
        Some(Self { at, id: RecordId::from_bytes(id.try_into().ok()?) })
    }
}

/// Why the tree could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    /// The disk has other bytes than were written.
    #[error("the tree is damaged: {0}")]
    Damaged(String),
    /// The disk is full.
    #[error("the disk is full")]
    NoRoom(#[source] std::io::Error),
    #[error("the tree cannot be read or written")]
    Io(#[source] std::io::Error),
}

impl From<lsm_tree::Error> for TreeError {
    fn from(error: lsm_tree::Error) -> Self {
        use std::io::ErrorKind::{
            InvalidData, InvalidInput, NotFound, QuotaExceeded, StorageFull, UnexpectedEof,
        };
        match error {
            lsm_tree::Error::Io(error) => match error.kind() {
                StorageFull | QuotaExceeded => Self::NoRoom(error),
                // Wrong lengths and positions come from wrong bytes, and nothing else removes
                // files.
                UnexpectedEof | NotFound | InvalidData | InvalidInput => {
                    Self::Damaged(error.to_string())
                }
                _ => Self::Io(error),
            },
            other => Self::Damaged(other.to_string()),
        }
    }
}

/// Records, due entries and the last tally.
pub(super) struct Tree {
    tree: AnyTree,
    path: PathBuf,
    strategy: Arc<Leveled>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tree {
    pub(super) fn create(path: &Path, settings: &Settings) -> Result<(), OpenError> {
        Self::open_files(path, settings).map(drop)
    }

    /// Opens an existing tree. Refuses it unless its table of contents is complete.
    pub(super) fn open(path: &Path, settings: &Settings) -> Result<Self, OpenError> {
        check_contents(path)?;
        Self::open_files(path, settings)
    }

    fn open_files(path: &Path, settings: &Settings) -> Result<Self, OpenError> {
        let versions = SequenceNumberCounter::default();
        let separation = KvSeparationOptions::default()
            .separation_threshold(APART_FROM_BYTES)
            .staleness_threshold(DEAD_SHARE)
            .age_cutoff(1.0);
        let config = Config::new(path, versions.clone(), versions)
            .use_cache(Arc::new(Cache::with_capacity_bytes(settings.cache_bytes)))
            .with_kv_separation(Some(separation));
        let tree = guarded(|| config.open()).map_err(|error| match error {
            TreeError::Damaged(detail) => OpenError::corrupt(path, detail),
            TreeError::NoRoom(source) | TreeError::Io(source) => {
                OpenError::io("open", path)(source)
            }
        })?;
        Ok(Self { tree, path: path.into(), strategy: Arc::new(Leveled::default()) })
    }

    /// The last batch that is in the tree's files.
    pub(super) fn persisted(&self) -> Number {
        self.tree.get_highest_persisted_seqno().unwrap_or(0)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>, TreeError> {
        guarded(|| self.tree.get(key, NEWEST))
    }

    pub(super) fn tally(&self) -> Result<Option<Tally>, TreeError> {
        let Some(bytes) = self.get(TALLY)? else { return Ok(None) };
        let damaged = || TreeError::Damaged("the tally cannot be read".into());
        Tally::decode(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Returns the records after an id, in order. An error of an item is damage of the tree, and
    /// nothing can be read behind it; an error in an entry concerns that record only.
    pub(super) fn records(
        &self,
        after: Option<&RecordId>,
    ) -> impl Iterator<Item = Result<Entry, TreeError>> + use<> {
        use std::ops::Bound::{Excluded, Included};
        let from = after.map_or(Included(vec![RECORD]), |id| Excluded(record_key(id).to_vec()));
        let mut items = self.tree.range((from, Excluded(vec![RECORD + 1])), NEWEST, None);
        std::iter::from_fn(move || {
            let item = guarded(|| Ok(items.next()));
            Some(item.transpose()?.and_then(Entry::read))
        })
    }

    /// Returns the due entries from a time on, in order.
    pub(super) fn due(
        &self,
        from: Timestamp,
    ) -> impl Iterator<Item = Result<Due, TreeError>> + use<> {
        let from = due_key(Due { at: from, id: RecordId::from_bytes([0; 32]) });
        let mut items = self.tree.range(from.to_vec()..vec![DUE + 1], NEWEST, None);
        std::iter::from_fn(move || {
            let item = guarded(|| items.next().map(lsm_tree::Guard::key).transpose());
            Some(item.transpose()?.and_then(|key| {
                Due::parse(&key)
                    .ok_or_else(|| TreeError::Damaged("a due entry has an odd format".into()))
            }))
        })
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8], number: Number) {
        self.tree.insert(key, value, number);
    }

    pub(super) fn remove(&self, key: &[u8], number: Number) {
        self.tree.remove(key, number);
    }

    pub(super) fn memtable_bytes(&self) -> u64 {
        self.tree.active_memtable().size()
    }

    /// Number of sealed memtables that are not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.tree.sealed_memtable_count()
    }

    /// Number of young runs of tables. A read checks each of them.
    pub(super) fn young_runs(&self) -> usize {
        self.tree.l0_run_count()
    }

    /// Begins a new memtable. The old one includes the tally, so that the tree's files are complete
    /// as of their last batch.
    pub(super) fn seal(&self, tally: &Tally, number: Number) {
        self.put(TALLY, &tally.encode(), number);
        self.tree.rotate_memtable();
    }

    /// Writes sealed memtables into files, durably.
    pub(super) fn flush(&self) -> Result<(), TreeError> {
        guarded(|| {
            let lock = self.tree.get_flush_lock();
            self.tree.flush(&lock, KEEP_NO_OLD_VERSIONS).map(drop)
        })?;
        self.sync_value_names()
    }

    /// lsm-tree syncs its value files, but not the directory that contains them.
    fn sync_value_names(&self) -> Result<(), TreeError> {
        sync_directory(&self.path.join(BLOBS)).map_err(TreeError::Io)
    }

    /// Does one step of compaction. Returns whether there may be another.
    pub(super) fn compact_step(&self) -> Result<bool, TreeError> {
        let before = self.tree.current_version().id();
        guarded(|| self.tree.compact(self.strategy.clone(), KEEP_NO_OLD_VERSIONS))?;
        let changed = self.tree.current_version().id() != before;
        if changed {
            self.sync_value_names()?;
        }
        Ok(changed)
    }

    /// Rewrites all keys, and the values in files that are known to be mostly dead.
    pub(super) fn compact_all(&self) -> Result<(), TreeError> {
        guarded(|| self.tree.major_compact(TABLE_BYTES, KEEP_NO_OLD_VERSIONS))?;
        self.sync_value_names()
    }

    /// Bytes of dead values that are still on the disk.
    pub(super) fn dead_bytes(&self) -> u64 {
        self.tree.stale_blob_bytes()
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.tree.disk_space()
    }
}

/// A record's bytes, or why they cannot be read.
pub(super) struct Entry {
    pub(super) id: RecordId,
    pub(super) value: Result<lsm_tree::Slice, TreeError>,
}

impl Entry {
    /// A value may be damaged while its key is not.
    fn read(item: impl lsm_tree::Guard) -> Result<Self, TreeError> {
        let id = Cell::new(None);
        let value = guarded(|| {
            item.into_inner_if(|key| {
                id.set(key.strip_prefix(&[RECORD]).and_then(|id| id.try_into().ok()));
                true
            })
        });
        let odd = || TreeError::Damaged("a key has an odd length".into());
        match (id.get().map(RecordId::from_bytes), value) {
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(odd()),
            (Some(id), value) => {
                let value = value.and_then(|(_, value)| value.ok_or_else(odd));
                Ok(Self { id, value })
            }
        }
    }
}

/// lsm-tree panics on some kinds of damage: the panic becomes an error.
fn guarded<T>(work: impl FnOnce() -> lsm_tree::Result<T>) -> Result<T, TreeError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(TreeError::from),
        Err(_) => Err(TreeError::Damaged("its reader panicked".into())),
    }
}

/// lsm-tree creates a new tree where `current` is missing, and does not check the checksum in it.
/// This check does both, so that a store is never replaced by an empty tree.
fn check_contents(path: &Path) -> Result<(), OpenError> {
    let current = path.join(CURRENT);
    let bytes = match fs::read(&current) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::corrupt(&current, "it is missing"));
        }
        read => read.map_err(OpenError::io("read", &current))?,
    };
    let [version, sum] = match (bytes.get(..8), bytes.get(8..24), bytes.len()) {
        (Some(version), Some(sum), 25) => [version, sum],
        _ => return Err(OpenError::corrupt(&current, "it has an odd length")),
    };
    let version = u64::from_le_bytes(version.try_into().unwrap_or_default());
    let contents = path.join(format!("v{version}"));
    let bytes = fs::read(&contents)
        .map_err(|error| OpenError::corrupt(&contents, format!("it cannot be read ({error})")))?;
    if xxh3_128(&bytes).to_le_bytes() != *sum {
        return Err(OpenError::corrupt(&contents, "its checksum does not fit"));
    }
    Ok(())
}
