//! The report of a run.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::case::{Case, CaseInfo, Section, Stop, Verdict};
use super::target::Target;

/// At most so many exchanges are shown of a failed case: the last ones.
const EXCHANGES_SHOWN: usize = 8;

/// The report of a run. Displays as a table.
#[derive(Debug)]
pub struct Report {
    title: String,
    lines: Vec<Line>,
}

/// One case of a report.
#[derive(Debug)]
pub struct Line {
    pub(super) info: &'static CaseInfo,
    /// Its result.
    pub outcome: Outcome,
    /// Its duration.
    pub took: Duration,
}

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server behaves as required.
    Passed,
    /// The server behaves otherwise.
    Failed {
        /// Expected behaviour.
        expected: String,
        /// Observed behaviour.
        seen: String,
        /// The exchange up to there, without keys, credentials and bodies.
        exchanges: Vec<String>,
    },
    /// The server does not promise it, or the suite cannot see it.
    Skipped(String),
    /// The named case of the store suite shows it.
    ProvedBy(&'static str),
}

impl Outcome {
    pub(super) fn new(verdict: Verdict, case: &Case) -> Self {
        match verdict {
            Ok(()) => Self::Passed,
            Err(Stop::Skipped(reason)) => Self::Skipped(reason),
            Err(Stop::ProvedBy(fact)) => Self::ProvedBy(fact),
            Err(Stop::Failed { expected, seen }) => {
                let mut exchanges = std::mem::take(&mut *case.seen.exchanges.lock());
                exchanges.drain(..exchanges.len().saturating_sub(EXCHANGES_SHOWN));
                Self::Failed { expected, seen, exchanges }
            }
        }
    }
}

impl Line {
    /// The case's name.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// The part of the protocol it belongs to.
    pub fn section(&self) -> Section {
        self.info.section
    }

    /// The document that requires it.
    pub fn source(&self) -> &'static str {
        self.info.source
    }

    /// The required behaviour.
    pub fn expectation(&self) -> &'static str {
        self.info.expects
    }

    /// True if the server behaved otherwise.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }
}

impl Report {
    pub(super) fn new(target: &Target, lines: Vec<Line>) -> Self {
        let title = format!("{} at {} over {}", target.name, target.base, target.protocol);
        Self { title, lines }
    }

    /// All cases, in the order in which they ran.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the result of a case.
    pub fn outcome_of(&self, name: &str) -> Option<&Outcome> {
        self.lines.iter().find(|line| line.name() == name).map(|line| &line.outcome)
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.has_failed())
    }

    /// True if at least one case passed and none failed. Skipped cases do not count.
    pub fn is_clean(&self) -> bool {
        self.failures().next().is_none() && self.counts().passed > 0
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for line in &self.lines {
            match line.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed { .. } => counts.failed += 1,
                Outcome::Skipped(_) => counts.skipped += 1,
                Outcome::ProvedBy(_) => counts.proved += 1,
            }
        }
        counts
    }

    fn width(&self, of: impl Fn(&Line) -> usize) -> usize {
        self.lines.iter().map(of).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    proved: usize,
}

/// Prints reports, and returns the cases that none of them shows, in the order of their names.
///
/// # Panics
///
/// If a case has failed.
pub fn shown_by_none(reports: &[Report]) -> Vec<&'static str> {
    let (mut skipped, mut shown) = (BTreeSet::new(), BTreeSet::new());
    for report in reports {
        println!("{report}");
        assert!(report.is_clean(), "{report}");
        for line in report.lines() {
            match line.outcome {
                Outcome::Skipped(_) => skipped.insert(line.name()),
                _ => shown.insert(line.name()),
            };
        }
    }
    skipped.difference(&shown).copied().collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.width(|line| line.name().len());
        let source = self.width(|line| line.source().chars().count());
        let section = self.width(|line| line.section().to_string().len());
        writeln!(f, "{}", self.title)?;
        for line in &self.lines {
            let (part, case, asks) = (line.section(), line.name(), line.source());
            writeln!(f, "{part:section$}  {case:name$}  {asks:source$}  {}", line.outcome)?;
            show_failure(f, line)?;
        }
        let Counts { passed, failed, skipped, proved } = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped, ")?;
        writeln!(f, "{proved} proved by the store suite")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Failed { .. } => f.write_str("FAIL"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::ProvedBy(fact) => write!(f, "proved by {fact}"),
        }
    }
}

fn show_failure(f: &mut fmt::Formatter<'_>, line: &Line) -> fmt::Result {
    let Outcome::Failed { expected, seen, exchanges } = &line.outcome else { return Ok(()) };
    writeln!(f, "    the case: {}", line.expectation())?;
    writeln!(f, "    expected: {expected}")?;
    writeln!(f, "    seen:     {seen}")?;
    exchanges.iter().try_for_each(|exchange| writeln!(f, "    exchange: {exchange}"))
}
