//! `onceward store verify`: reads every record.

use std::path::PathBuf;

use onceward_stores::embedded::{self, VerifyReport};
use serde::Serialize;

use crate::admin::{AdminApi, VerifyRecords};
use crate::backend;
use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, count};
use crate::cli::progress::Progress;
use crate::cli::target::{Target, must_exist};

/// The result of a verification.
#[derive(Debug, Default, Serialize)]
struct Verification {
    read: u64,
    undecodable: Vec<String>,
    /// Other problems of a directory.
    findings: Vec<String>,
}

pub(super) async fn verify(target: &Target) -> Fallible {
    let findings = check_directory(target).await?;
    let admin = target.admin().await?;
    let result = Verification { findings, ..read_all(&*admin).await? };
    if target.json {
        output::json(&result)?;
    } else {
        result.undecodable.iter().try_for_each(|id| output::line(format!("unreadable  {id}")))?;
        result.findings.iter().try_for_each(output::line)?;
        output::line(format!("{} records read", count(result.read)))?;
    }
    match result.undecodable.len() + result.findings.len() {
        0 => Ok(()),
        problems => Err(format!(
            "{problems} problems; claims of unreadable records fail, others are not affected. Keep \
             a copy of the store, and see \"a record cannot be read\" in docs/runbook.md"
        )
        .into()),
    }
}

async fn read_all(admin: &dyn AdminApi) -> Fallible<Verification> {
    let (mut interrupt, mut result) = (Interrupt::listen()?, Verification::default());
    let total = admin.stats().await?.records;
    let mut progress = Progress::new("records read", Some(total));
    let mut request = VerifyRecords { limit: Some(500), ..VerifyRecords::default() };
    loop {
        let stopped = |Interrupted| {
            let unreadable = result.undecodable.len();
            let read = count(result.read);
            Failure::Interrupted(format!("{read} records read, {unreadable} unreadable"))
        };
        let page = interrupt.or(admin.verify(&request)).await.map_err(stopped)??;
        result.read += page.read;
        result.undecodable.extend(page.undecodable);
        progress.at(result.read);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(result),
        }
    }
}

/// Checks that need exclusive access to a directory.
async fn check_directory(target: &Target) -> Fallible<Vec<String>> {
    let Some(direct) = target.direct() else { return Ok(Vec::new()) };
    let settings = direct.config()?.store;
    must_exist(&settings)?;
    let directory = backend::directory(&settings.url).map_err(|error| error.to_string())?;
    let Some(directory) = directory else { return Ok(Vec::new()) };
    let checking = tokio::task::spawn_blocking(move || verify_files(directory));
    let report = checking.await.map_err(|error| error.to_string())?;
    match report {
        Ok(report) => Ok(report.findings.iter().filter_map(describe).collect()),
        // Opening the store reports it better.
        Err(embedded::OpenError::Locked { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.to_string().into()),
    }
}

fn verify_files(directory: PathBuf) -> Result<VerifyReport, embedded::OpenError> {
    let mut progress = Progress::new("records checked", None);
    embedded::verify(directory, |read| progress.at(read))
}

/// Describes a finding; `None` for undecodable records, which `read_all` finds again.
fn describe(finding: &embedded::VerifyFinding) -> Option<String> {
    match finding {
        embedded::VerifyFinding::Undecodable { .. } => None,
        embedded::VerifyFinding::NeverDue { id } => Some(format!("never expires  {id}")),
        embedded::VerifyFinding::Unreadable { what, why } => Some(format!("{what}: {why}")),
        embedded::VerifyFinding::Miscounted { believed, counted } => {
            Some(format!("wrong counters: stored {believed}, counted {counted}"))
        }
        other => Some(format!("{other:?}")),
    }
}
