//! `onceward store copy`: copies one store to another.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use onceward_core::StoreError;
use onceward_stores::{Copied, DifferenceKind, SharedStore, Verified};

use crate::backend;
use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, count};
use crate::cli::progress::Progress;
use crate::cli::target::{must_exist, of_url};
use crate::config::StoreUrl;

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The source
    #[arg(long, value_name = "URL")]
    from: StoreUrl,
    /// The target
    #[arg(long, value_name = "URL")]
    to: StoreUrl,
    /// Compare the two stores afterwards, record by record
    #[arg(long)]
    verify: bool,
}

impl CopyArgs {
    pub(super) async fn execute(self) -> Fallible {
        if self.from == self.to {
            return Err("--from and --to are the same store".into());
        }
        let from = of_url(&self.from)?.store;
        must_exist(&from)?;
        let failure = |error: backend::OpenError| Failure::Error(error.to_string());
        let from = backend::open_for_command(&from).await.map_err(failure)?;
        let to = backend::open_for_command(&of_url(&self.to)?.store).await.map_err(failure)?;
        let mut interrupt = Interrupt::listen()?;
        copy(&from, &to, &mut interrupt).await?;
        if self.verify { compare(&from, &to, &mut interrupt).await } else { Ok(()) }
    }
}

async fn copy(from: &SharedStore, to: &SharedStore, interrupt: &mut Interrupt) -> Fallible {
    let total = from.stats().await.map_err(|error| failed(&error))?.records;
    let mut progress = Progress::new("records copied", Some(total));
    let done = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&done);
    let copying = onceward_stores::copy(from, to, move |copied| {
        let so_far = copied.written + copied.kept;
        counting.store(so_far, Ordering::Relaxed);
        progress.at(so_far);
    });
    let stopped = |Interrupted| {
        let done = count(done.load(Ordering::Relaxed));
        Failure::Interrupted(format!(
            "{done} of about {} records are in the target, all of them complete; repeat the \
             command to copy the rest",
            count(total)
        ))
    };
    let copied = interrupt.or(copying).await.map_err(stopped)?.map_err(|error| failed(&error))?;
    print_copied(&copied)
}

fn print_copied(copied: &Copied) -> Fallible {
    let (written, kept) = (count(copied.written), count(copied.kept));
    output::line(format!("{written} records copied, {kept} were already in the target"))?;
    if copied.is_whole() {
        return Ok(());
    }
    for id in &copied.undecodable {
        output::line(format!("unreadable in the source  {id}"))?;
    }
    for id in &copied.blocked {
        output::line(format!("unreadable in the target  {id}"))?;
    }
    Err("the copy is incomplete: the records above are unreadable; see \"a record cannot be read\" \
         in docs/runbook.md"
        .into())
}

async fn compare(from: &SharedStore, to: &SharedStore, interrupt: &mut Interrupt) -> Fallible {
    let total = from.stats().await.map_err(|error| failed(&error))?.records;
    let mut progress = Progress::new("records compared", Some(total));
    let comparing = onceward_stores::verify(from, to, move |verified| progress.at(verified.equal));
    let stopped = |Interrupted| {
        Failure::Interrupted("all records are copied, but not all of them compared".to_owned())
    };
    let verified =
        interrupt.or(comparing).await.map_err(stopped)?.map_err(|error| failed(&error))?;
    print_differences(&verified)
}

fn print_differences(verified: &Verified) -> Fallible {
    for difference in &verified.differences {
        let what = match &difference.kind {
            DifferenceKind::Missing => "is missing".to_owned(),
            DifferenceKind::Undecodable => "cannot be read in the target".to_owned(),
            DifferenceKind::Properties(properties) => {
                format!("differs in {}", properties.join(", "))
            }
        };
        output::line(format!("{}  {what}", difference.id))?;
    }
    output::line(format!("{} records are the same in both stores", count(verified.equal)))?;
    if verified.is_clean() { Ok(()) } else { Err("the stores differ".into()) }
}

fn failed(error: &StoreError) -> Failure {
    let source = error.source().map(|it| format!(": {it}")).unwrap_or_default();
    Failure::Error(format!("{error}{source}; repeat the command to copy the rest"))
}
