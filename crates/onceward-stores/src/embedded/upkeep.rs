//! Two threads behind the writer. One writes memtables into the tree's files and prepares log
//! segments, the other compacts the tree.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::log::{self, Segment};
use super::shared::{Shared, Upkeep};
use super::tree::TreeError;

/// Time before the next attempt after the disk was full.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Dead values below which a full rewrite is not worth it, however small the store is.
const DEAD_BYTES_MIN: u64 = 256 << 20;

/// Starts both threads.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<[JoinHandle<()>; 2]> {
    let spawn = |name: &str, work: fn(&Shared)| {
        let shared = Arc::clone(shared);
        thread::Builder::new().name(name.into()).spawn(move || work(&shared))
    };
    Ok([spawn("onceward-flush", keep_flushed)?, spawn("onceward-compact", keep_compact)?])
}

enum Task {
    Flush,
    Segment { bytes: u64 },
}

fn keep_flushed(shared: &Shared) {
    while let Some(task) = next_task(shared) {
        // Files are created by name: the directory must not belong to another process by now.
        if let Err(error) = shared.directory.must_be_ours() {
            return shared
                .poison(format!("the directory no longer belongs to this process: {error}"));
        }
        let done = match task {
            Task::Flush => flush(shared),
            Task::Segment { bytes } => make_segment(shared, bytes),
        };
        match done {
            Ok(()) => shared.upkeep.lock().no_room = None,
            Err(TreeError::NoRoom(error)) => {
                tracing::warn!(%error, "the disk is full");
                let mut upkeep = shared.upkeep.lock();
                upkeep.no_room = Some(error.to_string());
                shared.news.notify_all();
                if !upkeep.stopping {
                    shared.news.wait_for(&mut upkeep, RETRY_AFTER);
                }
                continue;
            }
            Err(error) => return shared.poison(format!("writing records failed: {error:?}")),
        }
        shared.news.notify_all();
    }
}

/// Waits for the next task; `None` at the end.
fn next_task(shared: &Shared) -> Option<Task> {
    let mut upkeep = shared.upkeep.lock();
    loop {
        if upkeep.stopping || shared.is_poisoned() {
            return None;
        }
        // Segments first, as the writer may wait for one.
        if let Some(bytes) = upkeep.segment {
            return Some(Task::Segment { bytes });
        }
        if upkeep.flush {
            return Some(Task::Flush);
        }
        shared.news.wait(&mut upkeep);
    }
}

fn flush(shared: &Shared) -> Result<(), TreeError> {
    shared.upkeep.lock().flush = false;
    let done = shared.tree.flush();
    let mut upkeep = shared.upkeep.lock();
    match &done {
        Ok(()) => upkeep.compact = true,
        Err(_) => upkeep.flush = true,
    }
    drop(upkeep);
    done?;
    drop_surplus(shared).map_err(full_or_io)
}

/// Removes segments that the tree holds, but keeps one for reuse.
fn drop_surplus(shared: &Shared) -> io::Result<()> {
    let persisted = shared.tree.persisted();
    loop {
        let mut upkeep = shared.upkeep.lock();
        let within = upkeep.full.iter().take_while(|full| full.is_within(persisted)).count();
        let keep = usize::from(upkeep.ready.is_none());
        if within <= keep {
            return Ok(());
        }
        let Some(old) = upkeep.full.pop_front() else { return Ok(()) };
        drop(upkeep);
        log::remove(&shared.log_directory(), old)?;
    }
}

fn make_segment(shared: &Shared, bytes: u64) -> Result<(), TreeError> {
    let segment = new_segment(shared, bytes).map_err(full_or_io)?;
    let mut upkeep = shared.upkeep.lock();
    upkeep.ready = Some(segment);
    upkeep.segment = None;
    Ok(())
}

fn new_segment(shared: &Shared, bytes: u64) -> io::Result<Segment> {
    let (directory, persisted) = (shared.log_directory(), shared.tree.persisted());
    let mut upkeep = shared.upkeep.lock();
    let number = upkeep.next_segment;
    let ordinary = bytes <= shared.settings.segment_bytes;
    let old = upkeep.full.front().filter(|full| ordinary && full.is_within(persisted)).copied();
    if old.is_some() {
        upkeep.full.pop_front();
    }
    drop(upkeep);
    let segment = match old {
        Some(old) => log::recycle(&directory, &*shared.disk, old, number)?,
        None => log::prepare(&directory, &*shared.disk, number, bytes)?,
    };
    shared.upkeep.lock().next_segment = number + 1;
    Ok(segment)
}

fn full_or_io(error: io::Error) -> TreeError {
    TreeError::from(lsm_tree::Error::Io(error))
}

fn keep_compact(shared: &Shared) {
    while wait_for_compaction(shared) {
        if let Err(error) = shared.directory.must_be_ours() {
            return shared
                .poison(format!("the directory no longer belongs to this process: {error}"));
        }
        match compact(shared) {
            Ok(()) => {}
            Err(TreeError::Damaged(detail)) => {
                tracing::error!(detail, "compaction met damage and has stopped: run `verify`");
                shared.upkeep.lock().compaction_halted = true;
            }
            Err(error) => {
                tracing::warn!(%error, "compaction failed and will be tried again");
                let mut upkeep = shared.upkeep.lock();
                upkeep.compact = true;
                if !upkeep.stopping {
                    shared.news.wait_for(&mut upkeep, RETRY_AFTER);
                }
            }
        }
        shared.news.notify_all();
    }
}

/// Waits for a request to compact; `false` at the end.
fn wait_for_compaction(shared: &Shared) -> bool {
    let mut upkeep = shared.upkeep.lock();
    loop {
        if upkeep.stopping || shared.is_poisoned() {
            return false;
        }
        if upkeep.compact && !upkeep.compaction_halted {
            upkeep.compact = false;
            return true;
        }
        shared.news.wait(&mut upkeep);
    }
}

fn compact(shared: &Shared) -> Result<(), TreeError> {
    while shared.tree.compact_step()? {
        shared.news.notify_all();
        if stopping(&shared.upkeep.lock()) || shared.is_poisoned() {
            return Ok(());
        }
    }
    let tree = &shared.tree;
    let (all, dead) = (tree.disk_bytes(), tree.dead_bytes());
    if dead > DEAD_BYTES_MIN.max(all / 2) && has_room_for(shared, all.saturating_sub(dead)) {
        tree.compact_all()?;
    }
    Ok(())
}

/// True if this much fits in addition to the reserve, which is for settlements.
fn has_room_for(shared: &Shared, bytes: u64) -> bool {
    let free = shared.disk.free_bytes(shared.path());
    free.is_ok_and(|free| free >= shared.settings.reserve_bytes.saturating_add(bytes))
}

fn stopping(upkeep: &Upkeep) -> bool {
    upkeep.stopping
}
