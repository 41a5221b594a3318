//! Copying one store into another.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use onceward_core::StoreError;
use onceward_stores::{Copied, Differs, SharedStore, Verified};

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
    /// The store to copy
    #[arg(long, value_name = "URL")]
    from: StoreUrl,
    /// The store to copy it into
    #[arg(long, value_name = "URL")]
    to: StoreUrl,
    /// Compare the two afterwards, record by record
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
        let told = |error: backend::OpenError| Failure::Told(error.to_string());
        let from = backend::open_for_command(&from).await.map_err(told)?;
        let to = backend::open_for_command(&of_url(&self.to)?.store).await.map_err(told)?;
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
        let through = copied.written + copied.kept;
        counting.store(through, Ordering::Relaxed);
        progress.at(through);
    });
    let stopped = |Interrupted| {
        let done = count(done.load(Ordering::Relaxed));
        Failure::Interrupted(format!(
            "{done} of about {} records are in the target, each of them whole; run it again to \
             copy the rest",
            count(total)
        ))
    };
    let copied = interrupt.or(copying).await.map_err(stopped)?.map_err(|error| failed(&error))?;
    tell(&copied)
}

fn tell(copied: &Copied) -> Fallible {
    let (written, kept) = (count(copied.written), count(copied.kept));
    output::line(format!("{written} records were copied, {kept} were there already"))?;
    if copied.is_whole() {
        return Ok(());
    }
    for id in &copied.undecodable {
        output::line(format!("unreadable in the source  {id}"))?;
    }
    for id in &copied.blocked {
        output::line(format!("unreadable in the target  {id}"))?;
    }
    Err("the copy is not whole".into())
}

async fn compare(from: &SharedStore, to: &SharedStore, interrupt: &mut Interrupt) -> Fallible {
    let total = from.stats().await.map_err(|error| failed(&error))?.records;
    let mut progress = Progress::new("records compared", Some(total));
    let comparing = onceward_stores::verify(from, to, move |verified| progress.at(verified.equal));
    let stopped = |Interrupted| {
        Failure::Interrupted("everything was copied, and not all of it compared".to_owned())
    };
    let verified =
        interrupt.or(comparing).await.map_err(stopped)?.map_err(|error| failed(&error))?;
    tell_differences(&verified)
}

fn tell_differences(verified: &Verified) -> Fallible {
    for difference in &verified.differences {
        let what = match &difference.what {
            Differs::Missing => "is missing".to_owned(),
            Differs::Undecodable => "cannot be read in the target".to_owned(),
            Differs::In(properties) => format!("differs in {}", properties.join(", ")),
        };
        output::line(format!("{}  {what}", difference.id))?;
    }
    output::line(format!("{} records are the same in both", count(verified.equal)))?;
    if verified.is_clean() { Ok(()) } else { Err("the two stores differ".into()) }
}

fn failed(error: &StoreError) -> Failure {
    let source = error.source().map(|it| format!(": {it}")).unwrap_or_default();
    Failure::Told(format!("{error}{source}; what was copied stays, run it again"))
}
