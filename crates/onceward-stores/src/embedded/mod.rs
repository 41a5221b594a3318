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
//! # What it promises
//!
//! - A call is answered after what it changed was synced. Calls that come together share one
//!   sync; nobody waits for more to come.
//! - Whatever was acknowledged survives the death of the process and of the machine.
//! - What was running when the process died stands at *unknown* afterwards, never free; it
//!   can be taken over where the caller's policy says so.
//! - A damaged file is refused at open, or a damaged record answers
//!   [`Undecodable`](onceward_core::StoreErrorKind::Undecodable); neither is ever taken for
//!   absent, recreated or skipped.
//! - After a failed sync the store stops:
//!   [`Poisoned`](onceward_core::StoreErrorKind::Poisoned) until it is opened again.
//! - Below a reserve of free disk space new claims are refused, and settlements still fit.
//!
//! # How it works
//!
//! One writer thread decides calls by the core's truth table and appends them, a batch at a
//! time, to a log whose segments are written full before use, so that a sync never allocates.
//! After the sync a batch goes into the tree (lsm-tree), where callers read by themselves:
//! everything there is durable, so replays never wait for a sync. Behind it one thread writes
//! memory into the tree's files, and one cleans up.
//!
//! The tree is fjall's engine without fjall around it. fjall cuts its journal off at the first
//! entry that it cannot read, makes a new one where it is missing, and deletes keyspaces that
//! lack a file: good for a cache, but here that is a payment that never was. And its journal is
//! a sparse file, so that each sync pays for an allocation.
//!
//! Unix only: it writes at positions, and syncs directories.

mod directory;
mod disk;
mod error;
mod log;
mod ops;
mod recent;
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
    Claim, ClaimRequest, Clock, Effect, Fenced, Health, Imported, Lease, Page, Purged, Query,
    Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin,
    StoreError, StoreErrorKind, SystemAmbient,
};
use tokio::sync::{mpsc, oneshot};

pub use disk::{Disk, MachineDisk};
pub use error::OpenError;
pub use settings::Settings;
pub use verify::{Finding, Report, verify};

use crate::codec::Decoded;
use directory::{Directory, Found};
use log::{Log, Recovered};
use ops::OpKind;
use shared::{Parts, Shared, Upkeep, failed, unreadable};
use tally::Tally;
use time::StoreClock;
use tree::Tree;
use writer::{Answer, Job, Seen};

/// Calls that may wait for the writer before further ones wait for room.
const QUEUE: usize = 4_096;

/// What a store takes from its surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// Wall time, counted monotonically while the process lives.
    pub clock: Arc<dyn Clock>,
    /// The disk.
    pub disk: Arc<dyn Disk>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { clock: Arc::new(SystemAmbient::new()), disk: Arc::new(MachineDisk) }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// A durable store in one directory. See the [module](self) for what it promises.
///
/// Dropping it ends its threads and waits for them; nothing acknowledged depends on that.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    upkeep: Vec<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, making one if the directory is new or empty.
    ///
    /// Blocks while the log's tail is read: some tenths of a second.
    pub fn open(directory: impl AsRef<Path>, settings: Settings) -> Result<Self, OpenError> {
        Self::open_in(directory, settings, Surroundings::default())
    }

    /// Opens the store with a clock and a disk of the caller's.
    pub fn open_in(
        directory: impl AsRef<Path>,
        settings: Settings,
        surroundings: Surroundings,
    ) -> Result<Self, OpenError> {
        let Surroundings { clock, disk } = surroundings;
        let settings = settings.sane();
        let mut directory = Directory::take(directory.as_ref())?;
        if directory.state() == Found::Nothing {
            Tree::create(&directory.tree(), &settings)?;
            Log::create(&directory.log(), &*disk, settings.segment_bytes)?;
            directory.created()?;
        }
        let Contents { tree, recovered, tally } = Contents::read(&directory, &settings, &disk)?;
        let Recovered { log, full, ready } = recovered;
        log.settle()?;
        let sealed = tree.persisted();
        let (clock, tally) = (StoreClock::new(clock, tally.time), tally.reborn());
        let next_segment = ready.as_ref().map_or(log.segment(), log::Segment::number) + 1;
        let upkeep = Upkeep { full: full.into(), ready, next_segment, ..Upkeep::default() };
        let path = directory.path().to_owned();
        let applied = log.last();
        let parts = Parts { directory, tree, disk, settings, clock, applied, tally, upkeep };
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

    /// Has everything rewritten that carries dead weight, and tells how far it is. For
    /// operators after large deletions; in daily life the store cleans up by itself.
    pub async fn compact(
        &self,
        mut progress: impl FnMut(Compaction) + Send,
    ) -> Result<Compaction, StoreError> {
        self.send(Job::Seal).await?;
        let shared = Arc::clone(&self.shared);
        let mut work = tokio::task::spawn_blocking(move || {
            shared.tree.flush()?;
            shared.tree.compact_all()?;
            // Which values are dead is known when the first pass is over.
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

    /// Hands a call to the writer and waits for its answer.
    async fn send<A>(&self, job: impl FnOnce(Answer<A>) -> Job) -> Result<A, StoreError> {
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

/// How far a compaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes of the tree's files; it grows before it shrinks.
    pub disk_bytes: u64,
    /// Bytes among them of values that are dead.
    pub dead_bytes: u64,
}

/// What a directory holds, read and checked.
struct Contents {
    tree: Tree,
    recovered: Recovered,
    tally: Tally,
}

impl Contents {
    /// Opens the tree, and brings it up to the end of the log in memory.
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
    /// Answered by a read alone where nothing is to be written: what is in the tree was
    /// synced before.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.shared.check()?;
        // Before the look: of what comes after it the writer knows.
        let applied = self.shared.applied.load(Ordering::Acquire);
        let mut seen = Seen::AbsentAt(applied);
        if let Some(Decoded { record, .. }) = self.shared.read(&request.id)? {
            seen = Seen::Unsaid;
            let now = self.shared.clock.now();
            let step = machine::claim(Some(&record), request, record.fence, now);
            if step.next == Next::Same {
                return Ok(step.answer);
            }
        }
        self.send(|answer| Job::Claim(Box::new(request.clone()), seen, answer)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        self.send(|answer| Job::Renew(*request, answer)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        self.send(|answer| Job::Settle(Box::new(request.clone()), answer)).await
    }
}

#[async_trait]
impl StoreAdmin for EmbeddedStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.shared.check()?;
        Ok(self.shared.read(id)?.map(|decoded| decoded.record))
    }

    /// Looks at every record after the query's start until the page is full: for operators,
    /// not for requests.
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

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.send(|answer| Job::Purge(limit, answer)).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.check()?;
        Ok(self.shared.stats())
    }

    /// What runs elsewhere runs in this life of the store: after the next opening its lease
    /// has lapsed, as that of everything else.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.send(|answer| Job::Import(Box::new(record.clone()), answer)).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.shared.check()?;
        let shared = Arc::clone(&self.shared);
        // A disk may take its time to answer.
        let looking = tokio::task::spawn_blocking(move || room(&shared));
        looking.await.map_err(|error| {
            failed(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(error)
        })
    }
}

/// Free space below which an operator is warned, as a multiple of the reserve.
const WARNED_RESERVES: u64 = 2;

/// Whether the disk has room for new claims.
fn room(shared: &Shared) -> Health {
    let (reserve, directory) = (shared.settings.reserve_bytes, shared.path().display());
    let free = match shared.disk.free_bytes(shared.path()) {
        Ok(free) => free,
        // Not knowing is no reason to refuse: writing will tell.
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
