//! A durable store in one directory of one process: no server, nothing to install.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onceward_stores::embedded::{EmbeddedStore, Settings};
//!
//! let store = EmbeddedStore::open("./data", Settings::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A call is answered after its change was synced. Calls that arrive together share one sync; no
//!   call waits for others to arrive.
//! - Acknowledged calls survive the death of the process and of the machine.
//! - A record that was running when the process died stands at *unknown* afterwards, never free. It
//!   can be taken over where the caller's policy allows that.
//! - A damaged file is refused at open, and a damaged record answers
//!   [`Undecodable`](onceward_core::StoreErrorKind::Undecodable). Neither counts as absent, is
//!   recreated or skipped.
//! - After a failed sync the store stops: [`Poisoned`](onceward_core::StoreErrorKind::Poisoned)
//!   until it is opened again.
//! - Below a reserve of free disk space new claims are refused, and settlements still fit.
//!
//! # How it works
//!
//! One writer thread decides calls by the core's truth table. It appends them in batches to a log
//! whose segments are filled before use, so that a sync never allocates. After the sync a batch
//! goes into the tree (lsm-tree), which callers read themselves: everything there is durable, so
//! replays never wait for a sync. Two more threads write memory into the tree's files, and compact
//! them.
//!
//! The tree is fjall's engine without fjall around it. fjall truncates its journal at the first
//! entry that it cannot read, creates a new journal where it is missing, and deletes keyspaces that
//! lack a file. That suits a cache; here it would lose a payment. And its journal is a sparse file,
//! so that each sync pays for an allocation.
//!
//! Unix only: it writes at offsets, and syncs directories.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the store: opening, reads by callers, compaction |
//! | `writer` | batches: decide, sync, answer |
//! | `log` | segments and frames; tells a torn end from damage |
//! | `tree` | records by id and due entries by time, in lsm-tree's files |
//! | `upkeep` | the two threads for flushing and compaction |
//! | `recent_changes` | the last changes, which save the writer reads |
//! | `ops`, `tally` | batches and counters as bytes |
//! | `open_records` | running and unknown records, for the counts |
//! | `directory`, `disk`, `time` | lock and format; the disk; time that never goes back |
//! | `shared` | what callers and threads share |
//! | `verify` | reading everything |
//! | `settings`, `error` | sizes and limits; why a directory does not open |

mod directory;
mod disk;
mod error;
mod log;
mod open_records;
mod ops;
mod recent_changes;
mod settings;
mod shared;
mod tally;
mod time;
mod tree;
mod upkeep;
mod verify;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::machine::{self, Next};
use onceward_core::{
    Claim, ClaimRequest, Clock, DUE_BYTES_MAX, Due, Effect, Fenced, Fingerprint, Health, Imported,
    InvalidateRequest, Lease, Page, Purged, Query, Record, RecordId, RecordVersion, RenewRequest,
    Replay, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin, StoreError, StoreErrorKind,
    SystemAmbient,
};
use tokio::sync::{mpsc, oneshot};

pub use disk::{Disk, SystemDisk};
pub use error::OpenError;
pub use settings::Settings;
pub use verify::{VerifyFinding, VerifyReport, verify};

use crate::codec::Decoded;
use directory::{Directory, DirectoryState};
use log::{Log, Recovered};
use ops::OpKind;
use shared::{Shared, StoreParts, Upkeep, failed, unreadable};
use tally::Tally;
use time::StoreClock;
use tree::Tree;
use writer::{Job, ReadHint, ReplySender};

/// Calls in the writer's queue before further ones wait for room.
const QUEUE: usize = 4_096;

/// The clock and the disk of a store.
#[derive(Clone)]
pub struct Environment {
    /// Wall time, monotonic while the process lives.
    pub clock: Arc<dyn Clock>,
    /// The disk of the log.
    pub disk: Arc<dyn Disk>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemAmbient::new()), disk: Arc::new(SystemDisk) }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// A durable store in one directory. See the [module](self) for its guarantees.
///
/// Dropping it ends its threads and waits for them. Nothing that was acknowledged depends on that.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    upkeep: Vec<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, and creates it if the directory is new or empty.
    ///
    /// Blocks while the log's tail is read: some tenths of a second.
    pub fn open(directory: impl AsRef<Path>, settings: Settings) -> Result<Self, OpenError> {
        Self::open_in(directory, settings, Environment::default())
    }

    /// Opens the store with another clock and disk.
    pub fn open_in(
        directory: impl AsRef<Path>,
        settings: Settings,
        environment: Environment,
    ) -> Result<Self, OpenError> {
        let Environment { clock, disk } = environment;
        let settings = settings.sane();
        let mut directory = Directory::take(directory.as_ref())?;
        if directory.state() == DirectoryState::Empty {
            Tree::create(&directory.tree(), &settings)?;
            Log::create(&directory.log(), &*disk, settings.segment_bytes)?;
            directory.created()?;
        }
        let Contents { tree, recovered, tally } = Contents::read(&directory, &settings, &disk)?;
        let Recovered { log, full, ready } = recovered;
        log.settle()?;
        let sealed = tree.persisted();
        let (clock, tally) = (StoreClock::new(clock, tally.time), tally.next_boot());
        let next_segment = ready.as_ref().map_or(log.segment(), log::Segment::number) + 1;
        let upkeep = Upkeep { full: full.into(), ready, next_segment, ..Upkeep::default() };
        let path = directory.path().to_owned();
        let applied = log.last();
        let parts = StoreParts { directory, tree, disk, settings, clock, applied, tally, upkeep };
        Self::start(Shared::new(parts), log, tally, sealed)
            .map_err(OpenError::io("start the threads of", &path))
    }

    fn start(shared: Shared, log: Log, tally: Tally, sealed: u64) -> std::io::Result<Self> {
        let shared = Arc::new(shared);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = writer::start(Arc::clone(&shared), log, tally, sealed, queue)?;
        let mut store = Self { shared, jobs: Some(jobs), writer: Some(writer), upkeep: Vec::new() };
        store.upkeep.extend(upkeep::start(&store.shared)?);
        Ok(store)
    }

    /// Rewrites everything that contains dead data, and reports progress. For operators after large
    /// deletions; usually the store compacts by itself.
    pub async fn compact(
        &self,
        mut progress: impl FnMut(Compaction) + Send,
    ) -> Result<Compaction, StoreError> {
        self.send(Job::Seal).await?;
        let shared = Arc::clone(&self.shared);
        let mut work = tokio::task::spawn_blocking(move || {
            shared.tree.flush()?;
            shared.tree.compact_all()?;
            // The first pass finds out which values are dead.
            if shared.tree.dead_bytes() > 0 { shared.tree.compact_all() } else { Ok(()) }
        });
        loop {
            tokio::select! {
                done = &mut work => {
                    done.map_err(|error| {
                        failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
                    })?.map_err(unreadable)?;
                    break;
                }
                () = tokio::time::sleep(Duration::from_millis(200)) => {
                    progress(self.compaction());
                }
            }
        }
        let end = self.compaction();
        progress(end);
        Ok(end)
    }

    fn compaction(&self) -> Compaction {
        let tree = &self.shared.tree;
        Compaction { disk_bytes: tree.disk_bytes(), dead_bytes: tree.dead_bytes() }
    }

    /// Sends a call to the writer and waits for its answer.
    async fn send<A>(&self, job: impl FnOnce(ReplySender<A>) -> Job) -> Result<A, StoreError> {
        self.shared.check()?;
        let (answer, answered) = oneshot::channel();
        let gone = |effect| move || self.shared.poisoned(effect);
        let jobs = self.jobs.as_ref().ok_or_else(gone(Effect::NotApplied))?;
        if jobs.send(job(answer)).await.is_err() {
            return Err(gone(Effect::NotApplied)());
        }
        answered.await.unwrap_or_else(|_| Err(gone(Effect::MayHaveBeenApplied)()))
    }
}

/// Progress of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes of the tree's files; they grow before they shrink.
    pub disk_bytes: u64,
    /// Bytes of dead values in those files.
    pub dead_bytes: u64,
}

/// The content of a directory, read and checked.
struct Contents {
    tree: Tree,
    recovered: Recovered,
    tally: Tally,
}

impl Contents {
    /// Opens the tree, and applies the end of the log to it in memory.
    fn read(
        directory: &Directory,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let tree = Tree::open(&directory.tree(), settings)?;
        let damaged =
            |error: tree::TreeError| OpenError::corrupt(&directory.tree(), error.to_string());
        let persisted = tree.persisted();
        let stored = tree.tally().map_err(damaged)?;
        if stored.is_none() && persisted > 0 {
            return Err(OpenError::corrupt(&directory.tree(), "its tally is missing"));
        }
        let mut tally = stored.unwrap_or_default();
        let recovered =
            Log::read(&directory.log(), Arc::clone(disk), persisted, |number, payload| {
                let Some((told, ops)) = ops::parse(payload) else {
                    return Err(format!("frame {number} is of an unknown format"));
                };
                for op in ops {
                    match op.kind {
                        OpKind::Put => tree.put(op.key, op.value, number),
                        OpKind::Remove => tree.remove(op.key, number),
                    }
                }
                tally = told;
                Ok(())
            })?;
        Ok(Self { tree, recovered, tally })
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.shared.upkeep.lock().stopping = true;
        self.shared.news.notify_all();
        for thread in self.upkeep.drain(..) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("directory", &self.shared.path())
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    /// A claim that changes nothing is answered by a read alone: what is in the tree is durable.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.shared.check()?;
        // Loaded before the read: the writer knows of all later changes.
        let applied = self.shared.applied.load(Ordering::Acquire);
        let mut hint = ReadHint::AbsentAt(applied);
        if let Some(Decoded { record, .. }) = self.shared.read(&request.id)? {
            hint = ReadHint::None;
            let now = self.shared.clock.now();
            let step = machine::claim(Some(&record), request, record.fence, now);
            if step.next == Next::Same {
                return Ok(step.answer);
            }
        }
        self.send(|answer| Job::Claim(Box::new(request.clone()), hint, answer)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.send(|answer| Job::Renew(*request, answer)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.send(|answer| Job::Settle(Box::new(request.clone()), answer)).await
    }

    /// A read of the tree, as in `claim`.
    fn recall(&self, id: &RecordId, fingerprint: &Fingerprint) -> Option<Replay> {
        self.shared.check().ok()?;
        let Decoded { record, .. } = self.shared.read(id).ok()??;
        machine::recall(&record, fingerprint, self.shared.clock.now())
    }

    fn recalls(&self) -> bool {
        true
    }
}

#[async_trait]
impl StoreAdmin for EmbeddedStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.shared.check()?;
        Ok(self.shared.read(id)?.map(|decoded| decoded.record))
    }

    /// Reads every record after the query's start until the page is full. For operators, not for
    /// requests.
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.shared.check()?;
        let (shared, query) = (Arc::clone(&self.shared), query.clone());
        let page = tokio::task::spawn_blocking(move || page(&shared, &query));
        page.await.map_err(|error| {
            failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
        })?
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        self.send(|answer| Job::Resolve(Box::new(request.clone()), answer)).await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        let request = *request;
        self.send(|answer| Job::Invalidate(request, answer)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.send(|answer| Job::Purge(limit, answer)).await
    }

    fn archives(&self) -> bool {
        true
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.shared.check()?;
        let shared = Arc::clone(&self.shared);
        let due = tokio::task::spawn_blocking(move || due(&shared, limit));
        due.await.map_err(|error| {
            failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
        })?
    }

    async fn purge_versions(&self, versions: &[RecordVersion]) -> Result<Purged, StoreError> {
        self.send(|answer| Job::PurgeVersions(versions.to_vec(), answer)).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.check()?;
        let shared = Arc::clone(&self.shared);
        let counted = tokio::task::spawn_blocking(move || shared.stats());
        counted.await.map_err(|error| {
            failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
        })?
    }

    /// A running record belongs to this boot from now on: after the next opening its lease has
    /// lapsed, like all others.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.send(|answer| Job::Import(Box::new(record.clone()), answer)).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.shared.check()?;
        let shared = Arc::clone(&self.shared);
        // A disk may take long to answer.
        let looking = tokio::task::spawn_blocking(move || room(&shared));
        looking.await.map_err(|error| {
            failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
        })
    }
}

/// Free space below which health is a warning, as a multiple of the reserve.
const WARNED_RESERVES: u64 = 2;

/// Returns whether the disk has room for new claims.
fn room(shared: &Shared) -> Health {
    let (reserve, directory) = (shared.settings.reserve_bytes, shared.path().display());
    let free = match shared.disk.free_bytes(shared.path()) {
        Ok(free) => free,
        // Unknown is no reason to refuse: a write will tell.
        Err(error) => {
            return Health::warning([format!("the free space of {directory} is unknown: {error}")]);
        }
    };
    let text = format!(
        "{} MiB are free on the disk of {directory}. New claims are refused below {} MiB \
         (reserve_bytes), so that what runs can be settled; make room",
        free >> 20,
        reserve >> 20,
    );
    if free < reserve {
        return Health::refusing(text);
    }
    Health::warning((free < reserve.saturating_mul(WARNED_RESERVES)).then_some(text))
}

/// Reads records that are due, in the order of time. Visits due entries only.
fn due(shared: &Shared, limit: usize) -> Result<Due, StoreError> {
    let (swept, now) = (shared.tally.lock().swept, shared.clock.now());
    let (mut due, mut bytes) = (Due::default(), 0);
    for entry in shared.tree.due(swept) {
        let entry = entry.map_err(unreadable)?;
        if entry.at > now {
            break;
        }
        let record = match shared.read(&entry.id) {
            Ok(Some(Decoded { record, .. })) => record,
            Ok(None) => continue,
            // It is not removed either; `verify` reports it.
            Err(error) if error.kind == StoreErrorKind::Undecodable => continue,
            Err(error) => return Err(error),
        };
        let current = writer::due_of(Some(&record)) == Some(entry.at);
        if !current || machine::sweep(&record, now) == Next::Same {
            continue;
        }
        if due.records.len() == limit || bytes >= DUE_BYTES_MAX {
            due.more = true;
            break;
        }
        bytes += record.bytes();
        due.records.push(record);
    }
    Ok(due)
}

fn page(shared: &Shared, query: &Query) -> Result<Page, StoreError> {
    let now = shared.clock.now();
    let mut page = Page::default();
    let mut last = None;
    for entry in shared.tree.records(query.after.as_ref()) {
        let entry = entry.map_err(unreadable)?;
        let id = entry.id;
        let record = match shared.decode(entry) {
            Ok(Decoded { record, .. }) if query.matches(&record, now) => Some(record),
            Ok(_) => continue,
            Err(error) if error.kind == StoreErrorKind::Undecodable => None,
            Err(error) => return Err(error),
        };
        if page.records.len() + page.undecodable.len() == query.page_size() {
            page.next = last;
            break;
        }
        last = Some(id);
        match record {
            Some(record) => page.records.push(record),
            None => page.undecodable.push(id),
        }
    }
    Ok(page)
}
