//! Reading every record.

use std::path::PathBuf;

use onceward_stores::embedded::{self, Report};
use serde::Serialize;

use crate::admin::{AdminApi, VerifyRecords};
use crate::backend;
use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, count};
use crate::cli::progress::Progress;
use crate::cli::target::{Target, must_exist};

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Found {
    read: u64,
    undecodable: Vec<String>,
    /// What is wrong with a directory beside that.
    findings: Vec<String>,
}

pub(super) async fn verify(place: &Target) -> Fallible {
    let findings = look_at_directory(place).await?;
    let admin = place.admin().await?;
    let found = Found { findings, ..read_all(&*admin).await? };
    if place.json {
        output::json(&found)?;
    } else {
        found.undecodable.iter().try_for_each(|id| output::line(format!("unreadable  {id}")))?;
        found.findings.iter().try_for_each(output::line)?;
        output::line(format!("{} records were read", count(found.read)))?;
    }
    match found.undecodable.len() + found.findings.len() {
        0 => Ok(()),
        wrong => Err(format!(
            "{wrong} things are wrong; claims of unreadable records fail, and others go on. Keep \
             a copy of the store, and see \"a record cannot be read\" in docs/runbook.md"
        )
        .into()),
    }
}

async fn read_all(admin: &dyn AdminApi) -> Fallible<Found> {
    let (mut interrupt, mut found) = (Interrupt::listen()?, Found::default());
    let total = admin.stats().await?.records;
    let mut progress = Progress::new("records read", Some(total));
    let mut order = VerifyRecords { limit: Some(500), ..VerifyRecords::default() };
    loop {
        let stopped = |Interrupted| {
            let unreadable = found.undecodable.len();
            let read = count(found.read);
            Failure::Interrupted(format!("{read} records were read, {unreadable} unreadable"))
        };
        let page = interrupt.or(admin.verify(&order)).await.map_err(stopped)??;
        found.read += page.read;
        found.undecodable.extend(page.undecodable);
        progress.at(found.read);
        match page.next {
            Some(next) => order.after = Some(next),
            None => return Ok(found),
        }
    }
}

/// What only whoever has the directory alone can see.
async fn look_at_directory(place: &Target) -> Fallible<Vec<String>> {
    let Some(direct) = place.direct() else { return Ok(Vec::new()) };
    let settings = direct.config()?.store;
    must_exist(&settings)?;
    let directory = backend::directory(&settings.url).map_err(|error| error.to_string())?;
    let Some(directory) = directory else { return Ok(Vec::new()) };
    let looking = tokio::task::spawn_blocking(move || look(directory));
    let report = looking.await.map_err(|error| error.to_string())?;
    match report {
        Ok(report) => Ok(report.findings.iter().filter_map(told).collect()),
        // Said better when the store is opened.
        Err(embedded::OpenError::Locked { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.to_string().into()),
    }
}

fn look(directory: PathBuf) -> Result<Report, embedded::OpenError> {
    let mut progress = Progress::new("records looked at", None);
    embedded::verify(directory, |read| progress.at(read))
}

/// What is undecodable is found again by reading.
fn told(finding: &embedded::Finding) -> Option<String> {
    match finding {
        embedded::Finding::Undecodable { .. } => None,
        embedded::Finding::NeverDue { id } => Some(format!("never expires  {id}")),
        embedded::Finding::Unreadable { what, why } => Some(format!("{what}: {why}")),
        embedded::Finding::Miscounted { believed, counted } => {
            Some(format!("miscounted: {believed} believed, {counted} counted"))
        }
        other => Some(format!("{other:?}")),
    }
}
