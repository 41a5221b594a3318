//! The black-box suite: checks that a server keeps the promises of the `Idempotency-Key` header.
//!
//! It takes a base URL and works against any server. A [`Target`] says where the server is
//! and which [`Expectations`] it sets; a case that the server does not promise is skipped
//! with the reason, never passed in silence. The cases are those of `docs/protocol.md`,
//! each a small function with the document that asks for it.
//!
//! - [`run`] runs the cases and returns a [`Report`], which displays as a table.
//! - [`fixture`] is the handler behind our own servers: headers steer it, and it counts how
//!   often it ran.
//! - [`Controls`] lets the suite cause trouble: a store that fails, time that passes, a
//!   crash. Only our own servers have them.

mod answer;
mod ask;
mod case;
mod client;
mod concurrency;
mod controls;
mod expiry;
mod failures;
pub mod fixture;
mod gzip;
mod mismatch;
mod problem;
mod raw;
mod replay;
mod report;
mod scope;
pub mod server;
mod syntax;
mod target;

use std::time::{Duration, Instant};

use tokio::time::timeout;

pub use case::{Case, Section, Stop, Verdict};
pub use client::Protocol;
pub use concurrency::{burst, hang_up_at};
pub use controls::{Controls, NotOffered, StoreControls, Trouble};
pub use report::{Line, Outcome, Report, shown_by_none};
pub use target::{
    Compares, Expectations, Expiry, Flood, Handler, Headers, InProgress, KeyRule, KeySyntax, Lapse,
    Mismatch, OutcomePolicy, ReplayStatus, Role, ServerErrors, Target,
};

use case::CaseInfo;

/// Time limit of a case. The largest bursts take seconds on a busy machine, and a server that
/// never answers must not hold up the other cases.
const CASE_MAX: Duration = Duration::from_secs(120);

/// Runs the cases whose name or section contains `filter`, one after the other.
///
/// ```no_run
/// # async fn check() {
/// use onceward_testkit::http::{Target, run};
///
/// let report = run(&Target::orders("http://127.0.0.1:8083"), None).await;
/// println!("{report}");
/// assert!(report.is_clean());
/// # }
/// ```
pub async fn run(target: &Target, filter: Option<&str>) -> Report {
    let mut lines = Vec::new();
    for info in catalogue().filter(|info| filter.is_none_or(|filter| info.matches(filter))) {
        lines.push(run_one(target, info).await);
    }
    Report::new(target, lines)
}

/// Every case, in the order in which they run.
fn catalogue() -> impl Iterator<Item = &'static CaseInfo> {
    [
        syntax::CASES,
        replay::CASES,
        mismatch::CASES,
        concurrency::CASES,
        failures::CASES,
        scope::CASES,
        expiry::CASES,
    ]
    .into_iter()
    .flatten()
}

async fn run_one(target: &Target, info: &'static CaseInfo) -> Line {
    let case = Case::new(target, info.name);
    let start = Instant::now();
    let verdict = timeout(CASE_MAX, (info.run)(&case)).await.unwrap_or_else(|_| {
        Err(Stop::failed("an end", format!("still waiting after {CASE_MAX:?}")))
    });
    case.tidy_up().await;
    let outcome = Outcome::new(verdict, &case);
    Line { info, outcome, took: start.elapsed() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let names: Vec<_> = catalogue().map(|info| info.name).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
    }

    /// A case that is not listed would never run.
    #[test]
    fn every_case_is_in_its_list() {
        for source in [
            include_str!("syntax.rs"),
            include_str!("replay.rs"),
            include_str!("mismatch.rs"),
            include_str!("concurrency.rs"),
            include_str!("failures.rs"),
            include_str!("scope.rs"),
            include_str!("expiry.rs"),
        ] {
            let cases = source.lines().filter_map(|line| {
                line.strip_prefix("async fn ")?.strip_suffix("(case: &Case) -> Verdict {")
            });
            for name in cases {
                assert!(catalogue().any(|info| info.name == name), "{name} is not listed");
            }
        }
    }

    /// The cases of the store suite that stand in for others must exist.
    #[test]
    fn what_is_proved_by_the_store_suite_exists_there() {
        let facts = include_str!("../conformance/cases.rs");
        for name in concurrency::PROVED_BY_STORES {
            assert!(facts.contains(&format!("pub async fn {name}(")), "{name} is gone");
        }
    }
}
