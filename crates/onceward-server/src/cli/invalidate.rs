//! `onceward records invalidate`, and the selection of records that it shares with
//! `onceward store invalidate`.

use std::collections::HashSet;

use clap::Args;
use serde::Serialize;

use super::confirm::confirm;
use super::failure::Failure;
use super::interrupt::{Interrupt, Interrupted};
use super::output::{self, count};
use super::progress::Progress;
use super::target::Target;
use super::{Fallible, pages, show};
use crate::admin::{
    AdminApi, InvalidateRecord, ListRecords, OutcomeContent, RecordPage, RecordView, ShowRecord,
    without_outcome,
};
use crate::api::{RecordRef, RecordState};

/// Records in a preview. The whole list is what `records list` is for.
const PREVIEW: usize = 10;

/// Records by their ids, or by a filter.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Operation ids or record ids
    #[arg(value_name = "ID", conflicts_with_all = ["tenant", "caller", "operation"])]
    pub(super) ids: Vec<RecordRef>,
    /// All records of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// All records of this caller
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// All records of the operation with this name
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
}

impl Selection {
    /// True if it selects by a filter.
    pub(super) fn is_filter(&self) -> bool {
        self.tenant.is_some() || self.caller.is_some() || self.operation.is_some()
    }

    /// The filter as text, for the audit log.
    pub(super) fn filter_text(&self) -> String {
        let parts =
            [("tenant", &self.tenant), ("caller", &self.caller), ("operation", &self.operation)];
        let set =
            parts.into_iter().filter_map(|(name, it)| Some(format!("{name} {}", it.as_ref()?)));
        set.collect::<Vec<_>>().join(", ")
    }

    /// Collects the records that the filter selects, each once.
    pub(super) async fn filtered(&self, admin: &dyn AdminApi) -> Fallible<Vec<RecordView>> {
        let wanted = ListRecords {
            tenant: self.tenant.clone(),
            caller: self.caller.clone(),
            operation: self.operation.clone(),
            ..ListRecords::default()
        };
        let RecordPage { records, undecodable, .. } = pages::records(admin, wanted, None).await?;
        if !undecodable.is_empty() {
            eprintln!(
                "{} records cannot be read and are left out; `onceward store verify` lists them",
                count(undecodable.len() as u64)
            );
        }
        let mut seen = HashSet::new();
        Ok(records.into_iter().filter(|it| seen.insert(it.record.clone())).collect())
    }
}

#[derive(Debug, Args)]
pub(crate) struct InvalidateArgs {
    #[command(flatten)]
    selection: Selection,
    /// The correction that removed the effect, for the audit log; must not contain secrets
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

/// The records that a command invalidates, and those that it leaves.
#[derive(Debug, Default)]
struct Plan {
    due: Vec<RecordView>,
    /// Invalidated before.
    done: u64,
    /// Running and unknown: they have no response yet.
    open: Vec<RecordView>,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    dry_run: bool,
    invalidated: u64,
    already_invalidated: u64,
    /// Ids of operations that are running or unknown. They may still store a response.
    open: Vec<&'a str>,
}

impl Plan {
    fn of(records: Vec<RecordView>) -> Self {
        let mut plan = Self::default();
        for record in records {
            let content = record.outcome.as_ref().map(|outcome| outcome.content);
            match record.state {
                RecordState::Running | RecordState::Unknown => plan.open.push(record),
                _ if content == Some(OutcomeContent::Invalidated) => plan.done += 1,
                RecordState::Completed | RecordState::Failed => plan.due.push(record),
                RecordState::Released | RecordState::Expired => {}
            }
        }
        plan
    }

    /// The change, for its confirmation.
    fn change(&self, reason: &str) -> String {
        let due = count(self.due.len() as u64);
        format!(
            "{due} stored responses will be deleted: their retries get 409, and do not run again\n\
             reason: {}",
            output::plain(reason)
        )
    }

    /// Prints the first records that will be invalidated.
    fn preview(&self) -> Fallible {
        let first = self.due.iter().take(PREVIEW).cloned().collect();
        show::listing(&RecordPage { records: first, ..RecordPage::default() })?;
        match self.due.len().saturating_sub(PREVIEW) {
            0 => Ok(()),
            more => output::line(format!("… and {} more", count(more as u64))),
        }
    }
}

impl InvalidateArgs {
    pub(super) async fn execute(self) -> Fallible {
        if self.selection.ids.is_empty() && !self.selection.is_filter() {
            return Err(
                "which records? Give their ids, or --tenant, --caller or --operation".into()
            );
        }
        let admin = self.target.admin().await?;
        let plan = self.plan(&*admin).await?;
        if !self.target.json && (self.dry_run || plan.due.len() > 1) {
            plan.preview()?;
        }
        if !self.dry_run && !plan.due.is_empty() {
            confirm(&plan.change(&self.reason), self.yes)?;
            invalidate(&*admin, &plan.due, &self.reason).await?;
        }
        self.report(&plan)
    }

    async fn plan(&self, admin: &dyn AdminApi) -> Fallible<Plan> {
        if self.selection.is_filter() {
            return Ok(Plan::of(self.selection.filtered(admin).await?));
        }
        let (mut records, mut seen) = (Vec::new(), HashSet::new());
        for id in &self.selection.ids {
            let record = admin.record(id, &ShowRecord::default()).await?.record;
            if let Some(why) = without_outcome(record.state) {
                return Err(format!("{id}: {why} Nothing has changed").into());
            }
            if seen.insert(record.record.clone()) {
                records.push(record);
            }
        }
        Ok(Plan::of(records))
    }

    fn report(&self, plan: &Plan) -> Fallible {
        let (due, open) = (plan.due.len() as u64, plan.open.len() as u64);
        if self.target.json {
            return output::json(&Report {
                dry_run: self.dry_run,
                invalidated: due,
                already_invalidated: plan.done,
                open: plan.open.iter().map(|it| it.operation_id.as_str()).collect(),
            });
        }
        if open > 0 {
            eprintln!(
                "{} matching operations are running or unknown and have no response yet: settle \
                 them, then repeat the command",
                count(open)
            );
        }
        let would = if self.dry_run { "would be " } else { "" };
        let before = match plan.done {
            0 => String::new(),
            done => format!(", {} were before", count(done)),
        };
        output::line(format!("{} responses {would}invalidated{before}", count(due)))
    }
}

async fn invalidate(admin: &dyn AdminApi, records: &[RecordView], reason: &str) -> Fallible {
    let total = records.len() as u64;
    let mut interrupt = Interrupt::listen()?;
    let mut progress = Progress::new("responses invalidated", Some(total));
    for (done, record) in (0..).zip(records) {
        let rest = || format!("{} of {} responses invalidated", count(done), count(total));
        let id: RecordRef = record.record.parse().map_err(|wrong| format!("{wrong}"))?;
        let request = InvalidateRecord { fence: record.fence, reason: reason.to_owned() };
        // Not interruptible: a call is short, and its result must be reported.
        admin.invalidate(&id, &request).await.map_err(|problem| match total {
            1 => Failure::from(problem),
            _ => Failure::Error(format!(
                "{}: {problem}; {}, repeat the command for the others",
                record.operation_id,
                rest()
            )),
        })?;
        progress.at(done + 1);
        let stopped = |Interrupted| {
            Failure::Interrupted(format!(
                "{} of {} responses invalidated; repeat the command for the others",
                count(done + 1),
                count(total)
            ))
        };
        if done + 1 < total {
            interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
        }
    }
    Ok(())
}
