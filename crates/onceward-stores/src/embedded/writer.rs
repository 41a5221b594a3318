//! The one writer. It takes the calls that have queued up, decides them one after another by the
//! core's truth table, makes them durable by one sync, and only then answers them.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onceward_core::machine::{self, Next, Step};
use onceward_core::{
    Claim, ClaimRequest, Effect, Fence, Fenced, Imported, InvalidateRequest, Lease, Purged, Record,
    RecordId, RecordVersion, RenewRequest, ResolveRequest, SettleRequest, StateName, StoreError,
    StoreErrorKind, Timestamp,
};
use tokio::sync::{mpsc, oneshot};

use super::log::{AppendError, Frame, Log, Number, Segment};
use super::ops::{self, OpKind};
use super::recent_changes::{IdMap, RecentChange, RecentChanges};
use super::shared::{Shared, failed, unreadable};
use super::tally::{Counted, Tally};
use super::tree::{self, Due};
use crate::codec::{self, Decoded};

/// How often the free space is read: no disk fills the reserve in between.
const LOOK_AT_ROOM_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for the upkeep threads before checking again whether that is needed.
const WAIT_AT_MOST: Duration = Duration::from_millis(500);
/// Sealed memtables that may wait; beyond that, calls wait for the disk.
const WAITING_MAX: usize = 4;
/// Young runs of tables before calls wait for compaction, as a read checks each of them.
const YOUNG_RUNS_MAX: usize = 24;
/// Full segments at which even a small memtable is written.
const FULL_SEGMENTS_MAX: usize = 6;
/// Most records that one purge touches, so that one sync does not take too long.
const PURGE_MAX: usize = 10_000;

const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);

pub(super) type ReplySender<A> = oneshot::Sender<Result<A, StoreError>>;

/// A call that may change something.
#[derive(Debug)]
pub(super) enum Job {
    Claim(Box<ClaimRequest>, ReadHint, ReplySender<Claim>),
    Renew(RenewRequest, ReplySender<Fenced<Lease>>),
    Settle(Box<SettleRequest>, ReplySender<Fenced<()>>),
    Resolve(Box<ResolveRequest>, ReplySender<Fenced<()>>),
    Invalidate(InvalidateRequest, ReplySender<Fenced<()>>),
    Purge(usize, ReplySender<Purged>),
    PurgeVersions(Vec<RecordVersion>, ReplySender<Purged>),
    Import(Box<Record>, ReplySender<Imported>),
    /// Writes everything in memory into the tree's files.
    Seal(ReplySender<()>),
}

/// The result of a caller's own read, for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadHint {
    /// The record was absent when the tree held at least this batch.
    AbsentAt(Number),
    /// Nothing: there was a record, or no read.
    None,
}

/// A decided call that waits until its batch is durable.
enum Decided {
    Claim(ReplySender<Claim>, Claim),
    Lease(ReplySender<Fenced<Lease>>, Fenced<Lease>),
    Fenced(ReplySender<Fenced<()>>, Fenced<()>),
    Purged(ReplySender<Purged>, Purged),
    Imported(ReplySender<Imported>, Imported),
}

impl Decided {
    /// The caller may have gone away; the step is taken all the same.
    fn tell(self) {
        match self {
            Self::Claim(to, answer) => drop(to.send(Ok(answer))),
            Self::Lease(to, answer) => drop(to.send(Ok(answer))),
            Self::Fenced(to, answer) => drop(to.send(Ok(answer))),
            Self::Purged(to, answer) => drop(to.send(Ok(answer))),
            Self::Imported(to, answer) => drop(to.send(Ok(answer))),
        }
    }

    fn fail(self, error: StoreError) {
        match self {
            Self::Claim(to, _) => drop(to.send(Err(error))),
            Self::Lease(to, _) => drop(to.send(Err(error))),
            Self::Fenced(to, _) => drop(to.send(Err(error))),
            Self::Purged(to, _) => drop(to.send(Err(error))),
            Self::Imported(to, _) => drop(to.send(Err(error))),
        }
    }
}

/// One record within the batch.
struct Slot {
    id: RecordId,
    /// How the tree's record is counted.
    stored: Option<Counted>,
    record: Option<Box<Record>>,
    changed: bool,
}

/// A record, and how it is counted.
type StoredRecord = (Option<Box<Record>>, Option<Counted>);

/// State of the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    log: Log,
    tally: Tally,
    recent: RecentChanges,
    /// The last batch that is in a sealed memtable.
    sealed: u64,
    has_room: bool,
    room_looked_at: Option<Instant>,
    // The batch under construction; its buffers are reused.
    frame: Frame,
    slots: Vec<Slot>,
    places: IdMap<usize>,
    dues_done: Vec<Due>,
    /// The earliest due time among the batch's imports.
    imported_due: Timestamp,
    decided: Vec<Decided>,
    bytes: usize,
}

/// Starts the writer, which ends when the last sender is dropped.
pub(super) fn start(
    shared: Arc<Shared>,
    log: Log,
    tally: Tally,
    sealed: u64,
    jobs: mpsc::Receiver<Job>,
) -> std::io::Result<JoinHandle<()>> {
    let recent = RecentChanges::after(log.last());
    let writer = Writer {
        shared,
        log,
        recent,
        tally,
        sealed,
        has_room: true,
        room_looked_at: None,
        frame: Frame::new(),
        slots: Vec::new(),
        places: IdMap::default(),
        dues_done: Vec::new(),
        imported_due: NEVER,
        decided: Vec::new(),
        bytes: 0,
    };
    thread::Builder::new().name("onceward-writer".into()).spawn(move || writer.run(jobs))
}

impl Writer {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let _guard = PoisonOnPanic(Arc::clone(&self.shared));
        let most = self.shared.settings.batch_calls_max;
        let mut queue = Vec::with_capacity(most);
        while jobs.blocking_recv_many(&mut queue, most) > 0 {
            let mut queued = queue.drain(..);
            while queued.len() > 0 {
                self.batch(&mut queued);
            }
        }
        if let Err(error) = self.log.close() {
            tracing::warn!(%error, "the log's mark could not be synced at the end");
        }
    }

    /// Decides calls until the batch is large enough, and makes them durable.
    fn batch(&mut self, queued: &mut impl Iterator<Item = Job>) {
        self.look_at_room();
        let now = self.shared.clock.now();
        self.tally.time = now;
        let limit = self.shared.settings.batch_bytes_max;
        while self.bytes < limit
            && let Some(job) = queued.next()
        {
            self.decide(job, now);
        }
        self.commit();
        self.slots.clear();
        self.places.clear();
        self.dues_done.clear();
        self.imported_due = NEVER;
        self.bytes = 0;
        self.frame.clear();
        self.keep_memory_bounded();
    }

    fn decide(&mut self, job: Job, now: Timestamp) {
        match job {
            Job::Claim(request, hint, to) => match self.claim(&request, hint, now) {
                Ok(answer) => self.decided.push(Decided::Claim(to, answer)),
                Err(error) => drop(to.send(Err(error))),
            },
            Job::Renew(request, to) => {
                match self.step(&request.id, |record, _| machine::renew(record, &request, now)) {
                    Ok(answer) => self.decided.push(Decided::Lease(to, answer)),
                    Err(error) => drop(to.send(Err(error))),
                }
            }
            Job::Settle(request, to) => {
                let step = self.step(&request.id, |it, _| machine::settle(it, &request, now));
                self.fenced(to, step);
            }
            Job::Resolve(request, to) => {
                let step = self.step(&request.id, |it, _| machine::resolve(it, &request, now));
                self.fenced(to, step);
            }
            Job::Invalidate(request, to) => {
                let step = self.step(&request.id, |it, _| machine::invalidate(it, &request, now));
                self.fenced(to, step);
            }
            Job::Purge(limit, to) => match self.purge(limit.min(PURGE_MAX), now) {
                Ok(purged) => self.decided.push(Decided::Purged(to, purged)),
                Err(error) => drop(to.send(Err(error))),
            },
            Job::PurgeVersions(versions, to) => match self.purge_versions(&versions, now) {
                Ok(purged) => self.decided.push(Decided::Purged(to, purged)),
                Err(error) => drop(to.send(Err(error))),
            },
            Job::Import(record, to) => match self.import(&record) {
                Ok(imported) => self.decided.push(Decided::Imported(to, imported)),
                Err(error) => drop(to.send(Err(error))),
            },
            Job::Seal(to) => {
                self.seal();
                drop(to.send(Ok(())));
            }
        }
    }

    fn fenced(&mut self, to: ReplySender<Fenced<()>>, step: Result<Fenced<()>, StoreError>) {
        match step {
            Ok(answer) => self.decided.push(Decided::Fenced(to, answer)),
            Err(error) => drop(to.send(Err(error))),
        }
    }

    fn claim(
        &mut self,
        request: &ClaimRequest,
        hint: ReadHint,
        now: Timestamp,
    ) -> Result<Claim, StoreError> {
        let place = self.place(&request.id, hint)?;
        let record = self.slots[place].record.as_deref();
        let step = machine::claim(record, request, self.tally.forgotten, now);
        let grants = matches!(step.answer, Claim::Granted { .. }) && step.next != Next::Same;
        if grants && !self.has_room {
            return Err(full());
        }
        Ok(self.take(place, step))
    }

    fn import(&mut self, record: &Record) -> Result<Imported, StoreError> {
        let place = self.place(&record.id, ReadHint::None)?;
        let stored = self.slots[place].record.as_deref();
        if stored.is_none() && !self.has_room {
            return Err(full());
        }
        let step = machine::import(stored, record);
        // It may be due at a time that purging has passed already.
        if let (Next::Put(_), Some(due)) = (&step.next, due_of(Some(record))) {
            self.tally.swept = self.tally.swept.min(due);
            self.imported_due = self.imported_due.min(due);
        }
        Ok(self.take(place, step))
    }

    /// Takes one step of the machine on one record.
    fn step<A>(
        &mut self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>, Fence) -> Step<A>,
    ) -> Result<A, StoreError> {
        let place = self.place(id, ReadHint::None)?;
        let step = step(self.slots[place].record.as_deref(), self.tally.forgotten);
        Ok(self.take(place, step))
    }

    fn take<A>(&mut self, place: usize, step: Step<A>) -> A {
        let slot = &mut self.slots[place];
        if let Some(written) = step.next.written(slot.record.as_deref()) {
            self.bytes += written.as_ref().map_or(0, |record| record.bytes());
            slot.record = written;
            slot.changed = true;
        }
        step.answer
    }

    /// Returns the record's slot in the batch. Reads the record at its first use.
    fn place(&mut self, id: &RecordId, hint: ReadHint) -> Result<usize, StoreError> {
        if let Some(place) = self.places.get(id) {
            return Ok(*place);
        }
        let (record, stored) = self.find(id, hint)?;
        // The record stays in memory until the batch is done.
        self.bytes += stored.map_or(0, |stored| stored.bytes);
        let place = self.slots.len();
        self.slots.push(Slot { id: *id, stored, record, changed: false });
        self.places.insert(*id, place);
        Ok(place)
    }

    /// Returns a record as the last batch left it, with as few reads as possible.
    fn find(&self, id: &RecordId, hint: ReadHint) -> Result<StoredRecord, StoreError> {
        match (self.recent.get(id), hint) {
            (Some(RecentChange::Running(record, stored)), _) => {
                return Ok((Some(record.clone()), Some(*stored)));
            }
            (None, ReadHint::AbsentAt(number)) if self.recent.covers(number) => {
                return Ok((None, None));
            }
            (Some(RecentChange::Changed) | None, _) => {}
        }
        Ok(match self.shared.read(id)? {
            Some(Decoded { record, state, bytes }) => {
                (Some(Box::new(record)), Some(Counted { state, bytes }))
            }
            None => (None, None),
        })
    }

    /// Expires and removes what is due. Visits due entries only.
    fn purge(&mut self, limit: usize, now: Timestamp) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        let mut swept = now;
        // Each purge does some work, even if earlier calls have filled the batch.
        let limit_bytes = self.bytes + self.shared.settings.batch_bytes_max;
        for due in self.shared.tree.due(self.tally.swept) {
            let due = due.map_err(unreadable)?;
            if due.at > now {
                break;
            }
            if self.bytes >= limit_bytes || self.dues_done.len() >= PURGE_MAX {
                purged.more = true;
                swept = due.at;
                break;
            }
            let place = match self.place(&due.id, ReadHint::None) {
                Ok(place) => place,
                // A record that cannot be read is not removed; `verify` reports it.
                Err(error) if error.kind == StoreErrorKind::Undecodable => continue,
                Err(error) => return Err(error),
            };
            // If its record has changed since, only the due entry is removed.
            let current = due_of(self.slots[place].record.as_deref()) == Some(due.at);
            if current && purged.removed + purged.tombstoned >= limit {
                purged.more = true;
                swept = due.at;
                break;
            }
            if current {
                self.expire(place, now, &mut purged);
            }
            self.dues_done.push(due);
            self.bytes += size_of::<Due>();
        }
        // More entries of this millisecond may come, and entries of this batch's imports are not in
        // the tree yet.
        self.tally.swept = swept.min(self.imported_due);
        Ok(purged)
    }

    /// Expires and removes records that are due, if these are their versions.
    fn purge_versions(
        &mut self,
        versions: &[RecordVersion],
        now: Timestamp,
    ) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        for version in versions {
            let place = match self.place(&version.id, ReadHint::None) {
                Ok(place) => place,
                Err(error) if error.kind == StoreErrorKind::Undecodable => continue,
                Err(error) => return Err(error),
            };
            let record = self.slots[place].record.as_deref();
            let due = record.filter(|it| machine::sweep_version(it, version, now) != Next::Same);
            if let Some(at) = due_of(due) {
                self.expire(place, now, &mut purged);
                self.dues_done.push(Due { at, id: version.id });
            }
        }
        self.pass_by(now)?;
        Ok(purged)
    }

    /// Moves the time up to which everything was purged: to the first record that stays. Removes due
    /// entries whose records have changed since.
    fn pass_by(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let done: HashSet<Due> = self.dues_done.iter().copied().collect();
        let mut swept = now;
        for due in self.shared.tree.due(self.tally.swept) {
            let due = due.map_err(unreadable)?;
            if due.at > now {
                break;
            }
            if done.contains(&due) {
                continue;
            }
            let current = match self.place(&due.id, ReadHint::None) {
                Ok(place) => due_of(self.slots[place].record.as_deref()) == Some(due.at),
                Err(error) if error.kind == StoreErrorKind::Undecodable => continue,
                Err(error) => return Err(error),
            };
            if current || self.dues_done.len() >= PURGE_MAX {
                swept = due.at;
                break;
            }
            self.dues_done.push(due);
            self.bytes += size_of::<Due>();
        }
        self.tally.swept = swept.min(self.imported_due);
        Ok(())
    }

    fn expire(&mut self, place: usize, now: Timestamp, purged: &mut Purged) {
        let Some(record) = self.slots[place].record.as_deref() else { return };
        let (next, fence) = (machine::sweep(record, now), record.fence);
        match next {
            Next::Same => return,
            Next::Put(_) | Next::Stand(..) => purged.tombstoned += 1,
            Next::Remove => {
                purged.removed += 1;
                self.tally.forgotten = self.tally.forgotten.max(fence);
            }
        }
        self.take(place, Step { answer: (), next });
    }

    /// Makes the batch durable, applies it to the tree, and answers its calls.
    fn commit(&mut self) {
        let before = *self.shared.tally.lock();
        let written = self.write_frame();
        let outcome = if written.is_empty() { Ok(None) } else { self.append().map(Some) };
        match outcome {
            Ok(number) => {
                if let Some(number) = number {
                    self.apply(&written, number);
                    self.remember(number);
                    self.shared.applied.store(number, Ordering::Release);
                }
                *self.shared.tally.lock() = self.tally;
                self.decided.drain(..).for_each(Decided::tell);
            }
            Err(AppendError::NoRoom(error)) => {
                self.tally = before;
                let error = error.to_string();
                self.fail_all(|| {
                    failed(StoreErrorKind::Full, Effect::NotApplied).caused_by(error.clone())
                });
            }
            Err(AppendError::Broken(error)) => {
                self.shared.poison(format!("writing the log failed: {error}"));
                let shared = Arc::clone(&self.shared);
                self.fail_all(|| shared.poisoned(Effect::MayHaveBeenApplied));
            }
        }
    }

    fn fail_all(&mut self, error: impl Fn() -> StoreError) {
        self.decided.drain(..).for_each(|decided| decided.fail(error()));
    }

    /// Writes the changes into the frame. Returns the positions of each.
    fn write_frame(&mut self) -> Vec<Written> {
        let mut written = Vec::new();
        let payload = self.frame.payload();
        let tally_at = payload.len();
        payload.extend([0; Tally::BYTES]);
        for slot in self.slots.iter_mut().filter(|slot| slot.changed) {
            if let Some(stored) = slot.stored.take() {
                self.tally.subtract(stored);
            }
            let key = tree::record_key(&slot.id);
            let Some(record) = slot.record.as_deref() else {
                written.push(Written::remove(payload, &key));
                continue;
            };
            let put =
                Written::put(payload, &key, |out| codec::encode(record, self.tally.boot, out));
            let stored = Counted { state: record.state.name(), bytes: put.value.len() };
            self.tally.add(stored);
            slot.stored = Some(stored);
            written.push(put);
            if let Some(at) = due_of(Some(record)) {
                let key = tree::due_key(Due { at, id: slot.id });
                written.push(Written::put(payload, &key, |_| {}));
            }
        }
        self.dues_done.sort_unstable_by_key(|due| (due.at, due.id));
        self.dues_done.dedup();
        for due in &self.dues_done {
            let slot = self.places.get(&due.id).map(|place| &self.slots[*place]);
            let again =
                slot.is_some_and(|it| it.changed && due_of(it.record.as_deref()) == Some(due.at));
            if !again {
                written.push(Written::remove(payload, &tree::due_key(*due)));
            }
        }
        payload[tally_at..tally_at + Tally::BYTES].copy_from_slice(&self.tally.encode());
        written
    }

    fn append(&mut self) -> Result<u64, AppendError> {
        if self.shared.is_poisoned() {
            return Err(AppendError::Broken(std::io::Error::other("the store has stopped")));
        }
        while !self.log.has_room(&self.frame) {
            let next = self.next_segment()?;
            let full = self.log.turn(next);
            self.shared.upkeep.lock().full.push_back(full);
        }
        let number = self.log.append(&mut self.frame)?;
        // After the sync and before the answers: the frame must be in a file that the next opening
        // finds, and no other process may have the store.
        let ours = self.shared.directory.must_be_ours().and_then(|()| self.log.must_be_in_place());
        ours.map_err(AppendError::Broken)?;
        Ok(number)
    }

    /// Takes the prepared segment, or waits for one.
    fn next_segment(&mut self) -> Result<Segment, AppendError> {
        let mut upkeep = self.shared.upkeep.lock();
        let bytes = Log::bytes_for(&self.frame).max(self.shared.settings.segment_bytes);
        upkeep.no_room = None;
        loop {
            if let Some(segment) = upkeep.ready.take() {
                return Ok(segment);
            }
            if self.shared.is_poisoned() {
                return Err(AppendError::Broken(std::io::Error::other("the store has stopped")));
            }
            if let Some(error) = upkeep.no_room.clone() {
                return Err(AppendError::NoRoom(std::io::Error::other(error)));
            }
            upkeep.segment = Some(bytes);
            self.shared.news.notify_all();
            self.shared.news.wait(&mut upkeep);
        }
    }

    fn apply(&self, written: &[Written], number: u64) {
        for part in written {
            let key = self.frame.slice(part.key.clone());
            match part.kind {
                OpKind::Put => {
                    self.shared.tree.put(key, self.frame.slice(part.value.clone()), number);
                }
                OpKind::Remove => self.shared.tree.remove(key, number),
            }
        }
    }

    /// Notes the changes of this batch as recent.
    fn remember(&mut self, number: Number) {
        let changed = self.slots.iter().filter(|slot| slot.changed);
        self.shared.open_records.note(changed.map(|slot| (slot.id, slot.record.as_deref())));
        for slot in self.slots.drain(..).filter(|slot| slot.changed) {
            let known = match (slot.record, slot.stored) {
                (Some(record), Some(stored)) if stored.state == StateName::Running => {
                    RecentChange::Running(record, stored)
                }
                _ => RecentChange::Changed,
            };
            self.recent.put(slot.id, known, number);
        }
    }

    fn look_at_room(&mut self) {
        if self.room_looked_at.is_some_and(|at| at.elapsed() < LOOK_AT_ROOM_EVERY) {
            return;
        }
        self.room_looked_at = Some(Instant::now());
        // Unknown is no reason to refuse: a write will tell.
        self.has_room = match self.shared.disk.free_bytes(self.shared.path()) {
            Ok(free) => free >= self.shared.settings.reserve_bytes,
            Err(error) => {
                tracing::warn!(%error, "the free space of the disk cannot be read");
                true
            }
        };
    }

    /// Seals the memtable when it is large, and waits while the files cannot keep up.
    fn keep_memory_bounded(&mut self) {
        self.want_segment();
        let shared = Arc::clone(&self.shared);
        let large = shared.tree.memtable_bytes() > shared.settings.memtable_bytes;
        let long = shared.upkeep.lock().full.len() > FULL_SEGMENTS_MAX;
        if (large || long && shared.tree.waiting() == 0) && shared.tree.waiting() < WAITING_MAX {
            self.seal();
        }
        let mut upkeep = shared.upkeep.lock();
        while !shared.is_poisoned() && upkeep.no_room.is_none() {
            let flushing = large && shared.tree.waiting() >= WAITING_MAX;
            let cleaning = !upkeep.compaction_halted && shared.tree.young_runs() >= YOUNG_RUNS_MAX;
            if !flushing && !cleaning {
                break;
            }
            upkeep.flush |= flushing;
            upkeep.compact |= cleaning;
            shared.news.notify_all();
            shared.news.wait_for(&mut upkeep, WAIT_AT_MOST);
        }
    }

    fn want_segment(&self) {
        let mut upkeep = self.shared.upkeep.lock();
        if self.log.is_half_full() && upkeep.ready.is_none() && upkeep.segment.is_none() {
            upkeep.segment = Some(self.shared.settings.segment_bytes);
            self.shared.news.notify_all();
        }
    }

    fn seal(&mut self) {
        let last = self.log.last();
        if last > self.sealed {
            self.shared.tree.seal(&self.tally, last);
            self.sealed = last;
        }
        self.shared.upkeep.lock().flush = true;
        self.shared.news.notify_all();
    }
}

fn full() -> StoreError {
    failed(StoreErrorKind::Full, Effect::NotApplied)
        .caused_by("the disk's free space is below the reserve")
}

/// A change in a frame, by its positions.
struct Written {
    kind: OpKind,
    key: Range<usize>,
    value: Range<usize>,
}

impl Written {
    fn put(payload: &mut Vec<u8>, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) -> Self {
        let (key, value) = ops::put(payload, key, value);
        Self { kind: OpKind::Put, key, value }
    }

    fn remove(payload: &mut Vec<u8>, key: &[u8]) -> Self {
        Self { kind: OpKind::Remove, key: ops::remove(payload, key), value: 0..0 }
    }
}

/// The next time at which a record changes by time alone.
pub(super) fn due_of(record: Option<&Record>) -> Option<Timestamp> {
    let state = &record?.state;
    let retained = state.retained()?;
    Some(match state.name() {
        StateName::Expired => retained.tombstone_until,
        _ => retained.until,
    })
}

/// Poisons the store if the writer panics, so that callers fail at once.
struct PoisonOnPanic(Arc<Shared>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poison("the writer panicked".into());
        }
    }
}
