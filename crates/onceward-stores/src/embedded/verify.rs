//! Checking everything in a store's directory.

use std::path::Path;
use std::sync::Arc;

use onceward_core::{RecordId, Timestamp};

use super::Contents;
use super::directory::Directory;
use super::disk::{Disk, SystemDisk};
use super::error::OpenError;
use super::settings::Settings;
use super::tally::{Counted, Tally};
use super::tree::{Due, Entry, Tree, TreeError, due_key};
use super::writer::due_of;
use crate::codec::{self, CurrentBoot};

/// Records between two calls of `progress`.
const TELL_EVERY: u64 = 10_000;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Records that were read.
    pub records: u64,
    /// Due entries that were read.
    pub due_entries: u64,
    /// Due entries by which a record expires. The others are of records that have changed since;
    /// purging removes them.
    pub due_entries_current: u64,
    /// Defects, at most [`VerifyReport::FINDINGS_MAX`].
    pub findings: Vec<VerifyFinding>,
}

impl VerifyReport {
    /// Further findings are not listed: by then the directory cannot be repaired by hand.
    pub const FINDINGS_MAX: usize = 1_000;

    /// True if there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, finding: VerifyFinding) {
        if self.findings.len() < Self::FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// A defect of a store that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyFinding {
    /// A record cannot be read. Claims of its key fail.
    Undecodable {
        /// The record's id.
        id: RecordId,
        /// The reason.
        why: String,
    },
    /// A part of the tree's files cannot be read. What follows it was not checked.
    Unreadable {
        /// The part.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// A record has no due entry, so it would never expire.
    NeverDue {
        /// The record's id.
        id: RecordId,
    },
    /// The counters do not match the records.
    Miscounted {
        /// The stored counters.
        believed: String,
        /// The actual counts.
        counted: String,
    },
}

/// Reads everything in a store that no process has open. Changes none of our data, although
/// lsm-tree removes files of an interrupted compaction when it opens. Calls `progress` with the
/// number of records read.
///
/// # Errors
///
/// The errors of [`EmbeddedStore::open`](super::EmbeddedStore::open): a directory that is locked,
/// foreign, newer, or too damaged to be opened.
pub fn verify(
    directory: impl AsRef<Path>,
    mut progress: impl FnMut(u64),
) -> Result<VerifyReport, OpenError> {
    let directory = Directory::take_store(directory.as_ref())?;
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let Contents { tree, tally, .. } = Contents::read(&directory, &Settings::default(), &disk)?;
    let mut report = VerifyReport::default();
    let counted = look_at_records(&tree, &tally, &mut report, &mut progress);
    look_at_dues(&tree, &mut report);
    if counted.stats() != tally.stats() {
        report.found(VerifyFinding::Miscounted {
            believed: format!("{:?}", tally.stats()),
            counted: format!("{:?}", counted.stats()),
        });
    }
    Ok(report)
}

fn look_at_records(
    tree: &Tree,
    tally: &Tally,
    report: &mut VerifyReport,
    progress: &mut impl FnMut(u64),
) -> Tally {
    let mut counted = Tally::default();
    let boot = CurrentBoot { boot: tally.boot, since: tally.time };
    for entry in tree.records(None) {
        let Entry { id, value } = match entry {
            Ok(entry) => entry,
            Err(error) => {
                report.found(unreadable("records", &error));
                break;
            }
        };
        report.records += 1;
        if report.records.is_multiple_of(TELL_EVERY) {
            progress(report.records);
        }
        let why = |error: &dyn std::error::Error| error.to_string();
        let decoded = value
            .map_err(|error| why(&error))
            .and_then(|bytes| codec::decode(&id, &bytes, boot).map_err(|error| why(&error)));
        match decoded {
            Ok(decoded) => {
                counted.add(Counted { state: decoded.state, bytes: decoded.bytes });
                let record = decoded.record;
                let due = due_of(Some(&record)).map(|at| due_key(Due { at, id }));
                match due.map(|key| tree.get(&key)) {
                    Some(Ok(None)) => report.found(VerifyFinding::NeverDue { id }),
                    Some(Err(error)) => report.found(unreadable("a due entry", &error)),
                    Some(Ok(Some(_))) => report.due_entries_current += 1,
                    None => {}
                }
            }
            Err(why) => report.found(VerifyFinding::Undecodable { id, why }),
        }
    }
    progress(report.records);
    counted
}

fn look_at_dues(tree: &Tree, report: &mut VerifyReport) {
    for due in tree.due(Timestamp::default()) {
        match due {
            Ok(_) => report.due_entries += 1,
            Err(error) => {
                report.found(unreadable("due entries", &error));
                break;
            }
        }
    }
}

fn unreadable(what: &'static str, error: &TreeError) -> VerifyFinding {
    VerifyFinding::Unreadable { what, why: error.to_string() }
}
