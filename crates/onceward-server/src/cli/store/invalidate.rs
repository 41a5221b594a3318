//! `onceward store invalidate`: copies of records in the cache.

use clap::Args;
use serde::Serialize;

use crate::admin::{AdminApi, CacheInvalidationDone, InvalidateCache};
use crate::cli::Fallible;
use crate::cli::confirm::confirm;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::invalidate::Selection;
use crate::cli::output::{self, count};
use crate::cli::target::Target;

/// Records of one call, the most that the API takes.
const CHUNK: usize = 1_000;

#[derive(Debug, Args)]
pub(crate) struct InvalidateCacheArgs {
    #[command(flatten)]
    selection: Selection,
    /// All copies
    #[arg(long, conflicts_with_all = ["ids", "tenant", "caller", "operation"])]
    all: bool,
    /// Why the copies are wrong, for the audit log; must not contain secrets
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print what would be invalidated, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    /// Records whose copies left the cache at once; absent if all copies were invalidated.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    /// Ids of operations that no record has any more.
    missing: u64,
}

impl InvalidateCacheArgs {
    pub(super) async fn execute(self) -> Fallible {
        let admin = self.target.admin().await?;
        let records = self.records(&*admin).await?;
        let what = match &records {
            None => "all copies in the cache".to_owned(),
            Some(ids) => format!("the copies of {} records in the cache", count(ids.len() as u64)),
        };
        if self.dry_run {
            let planned = records.map(|ids| ids.len() as u64);
            return self.report(planned, 0, &format!("{what} would be invalidated"));
        }
        let change = format!(
            "{what} will be invalidated, and the next retries ask PostgreSQL\nreason: {}",
            output::plain(&self.reason)
        );
        confirm(&change, self.yes)?;
        let Some(records) = records else {
            self.invalidate(&*admin, None).await?;
            return self.report(None, 0, &format!("{what} are invalid"));
        };
        let done = self.invalidate_records(&*admin, &records).await?;
        self.report(Some(done.records), done.missing, &format!("{what} are invalid"))
    }

    /// The records whose copies are invalidated; `None` for all.
    async fn records(&self, admin: &dyn AdminApi) -> Fallible<Option<Vec<String>>> {
        let ids = &self.selection.ids;
        if self.all {
            Ok(None)
        } else if self.selection.is_filter() {
            let records = self.selection.filtered(admin).await?;
            Ok(Some(records.into_iter().map(|it| it.record).collect()))
        } else if ids.is_empty() {
            Err("which copies? Give ids, --tenant, --caller or --operation, or --all".into())
        } else {
            Ok(Some(ids.iter().map(ToString::to_string).collect()))
        }
    }

    async fn invalidate_records(
        &self,
        admin: &dyn AdminApi,
        records: &[String],
    ) -> Fallible<CacheInvalidationDone> {
        let (mut interrupt, mut all) = (Interrupt::listen()?, CacheInvalidationDone::default());
        for chunk in records.chunks(CHUNK) {
            let done = self.invalidate(admin, Some(chunk.to_vec())).await?;
            all.records += done.records;
            all.missing += done.missing;
            let stopped = |Interrupted| {
                let rest = count(all.records + all.missing);
                Failure::Interrupted(format!("the copies of {rest} records are invalid"))
            };
            interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
        }
        Ok(all)
    }

    async fn invalidate(
        &self,
        admin: &dyn AdminApi,
        records: Option<Vec<String>>,
    ) -> Fallible<CacheInvalidationDone> {
        let reason = match self.selection.is_filter() {
            true => format!("{} ({})", self.reason, self.selection.filter_text()),
            false => self.reason.clone(),
        };
        Ok(admin.invalidate_cache(&InvalidateCache { records, reason }).await?)
    }

    fn report(&self, records: Option<u64>, missing: u64, text: &str) -> Fallible {
        if self.target.json {
            return output::json(&Report { dry_run: self.dry_run, records, missing });
        }
        output::line(text)?;
        match missing {
            0 => Ok(()),
            missing => output::line(format!(
                "{} of these operations have no record any more; their copies do not count either",
                count(missing)
            )),
        }
    }
}
