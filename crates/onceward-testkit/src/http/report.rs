//! What a run came to.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::case::{Case, CaseInfo, Section, Stop, Verdict};
use super::target::Target;

/// At most so many exchanges are shown of a failed case: the last ones.
const EXCHANGES_SHOWN: usize = 8;

/// What a run came to. Displays as a table.
#[derive(Debug)]
pub struct Report {
    title: String,
    lines: Vec<Line>,
}

/// One case of a report.
#[derive(Debug)]
pub struct Line {
    pub(super) info: &'static CaseInfo,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server does what the case asks for.
    Passed,
    /// It does something else.
    Failed {
        /// What the case expected.
        expected: String,
        /// What it saw.
        seen: String,
        /// The exchange up to there, without keys, credentials and bodies.
        exchanges: Vec<String>,
    },
    /// The server does not promise it, or the suite cannot see it.
    Skipped(String),
    /// That fact of the store suite shows it.
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

    /// Which document asks for it.
    pub fn source(&self) -> &'static str {
        self.info.source
    }

    /// What it asks for.
    pub fn expectation(&self) -> &'static str {
        self.info.expects
    }

    /// Whether the server did something else.
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

    /// How a case ended.
    pub fn outcome_of(&self, name: &str) -> Option<&Outcome> {
        self.lines.iter().find(|line| line.name() == name).map(|line| &line.outcome)
    }

    /// The cases in which the server did something else.
    pub fn failures(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.has_failed())
    }

    /// Whether cases ran and none failed. Skipped ones do not count either way, and a
    /// report without any passed case shows nothing.
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

/// Prints reports, and tells which cases none of them shows, in the order of their names.
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
