//! Looking at everything in a store's directory.

use std::path::Path;
use std::sync::Arc;

use onceward_core::{RecordId, Timestamp};

use super::Contents;
use super::directory::Directory;
use super::disk::{Disk, MachineDisk};
use super::error::OpenError;
use super::settings::Settings;
use super::tally::{Counted, Tally};
use super::tree::{Due, Entry, Tree, TreeError, due_key};
use super::writer::due_of;
use crate::codec::{self, Life};

/// Records between two calls of `progress`.
const TELL_EVERY: u64 = 10_000;

/// What a look at everything came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Records that were read.
    pub records: u64,
    /// Due entries that were read.
    pub due_entries: u64,
    /// Those among them that let a record expire. The others are of records that have gone
    /// on since; purging removes them.
    pub due_entries_current: u64,
    /// What is wrong, at most [`Report::FINDINGS_MAX`] of it.
    pub findings: Vec<Finding>,
}

impl Report {
    /// More findings are not listed: by then the directory is beyond repair by hand.
    pub const FINDINGS_MAX: usize = 1_000;

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, finding: Finding) {
        if self.findings.len() < Self::FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Something that is wrong in a store that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A record is there and cannot be read. Claims of its key are answered as such.
    Undecodable {
        /// Which.
        id: RecordId,
        /// Why.
        why: String,
    },
    /// A part of the tree's files cannot be read; what follows in them was not looked at.
    Unreadable {
        /// What was being read.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A record has no entry that would let it expire.
    NeverDue {
        /// Which.
        id: RecordId,
    },
    /// The counters do not fit what is there.
    Miscounted {
        /// What the store believes.
        believed: String,
        /// What is there.
        counted: String,
    },
}

/// Reads everything in a store that no process has open, and changes nothing that is ours
/// (lsm-tree removes files of an interrupted compaction when it opens). `progress` is told
/// the number of records read.
///
/// # Errors
///
/// What [`EmbeddedStore::open`](super::EmbeddedStore::open) would say: a directory that is
/// locked, foreign, newer, or so damaged that it cannot be opened.
pub fn verify(
    directory: impl AsRef<Path>,
    mut progress: impl FnMut(u64),
) -> Result<Report, OpenError> {
    let directory = Directory::take_store(directory.as_ref())?;
    let disk: Arc<dyn Disk> = Arc::new(MachineDisk);
    let Contents { tree, tally, .. } = Contents::read(&directory, &Settings::default(), &disk)?;
    let mut report = Report::default();
    let counted = look_at_records(&tree, &tally, &mut report, &mut progress);
    look_at_dues(&tree, &mut report);
    if counted.stats() != tally.stats() {
        report.found(Finding::Miscounted {
            believed: format!("{:?}", tally.stats()),
            counted: format!("{:?}", counted.stats()),
        });
    }
    Ok(report)
}

fn look_at_records(
    tree: &Tree,
    tally: &Tally,
    report: &mut Report,
    progress: &mut impl FnMut(u64),
) -> Tally {
    let mut counted = Tally::default();
    let life = Life { boot: tally.boot, since: tally.time };
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
            .and_then(|bytes| codec::decode(&id, &bytes, life).map_err(|error| why(&error)));
        match decoded {
            Ok(decoded) => {
                counted.add(Counted { state: decoded.state, bytes: decoded.bytes });
                let record = decoded.record;
                let due = due_of(Some(&record)).map(|at| due_key(Due { at, id }));
                match due.map(|key| tree.get(&key)) {
                    Some(Ok(None)) => report.found(Finding::NeverDue { id }),
                    Some(Err(error)) => report.found(unreadable("a due entry", &error)),
                    Some(Ok(Some(_))) => report.due_entries_current += 1,
                    None => {}
                }
            }
            Err(why) => report.found(Finding::Undecodable { id, why }),
        }
    }
    progress(report.records);
    counted
}

fn look_at_dues(tree: &Tree, report: &mut Report) {
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

fn unreadable(what: &'static str, error: &TreeError) -> Finding {
    Finding::Unreadable { what, why: error.to_string() }
}
