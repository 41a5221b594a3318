//! `onceward records …`

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::confirm::confirm;
use super::export::ExportArgs;
use super::failure::Failure;
use super::interrupt::{Interrupt, Interrupted};
use super::output::{self, age, count};
use super::progress::Progress;
use super::target::Target;
use super::{Fallible, pages, show};
use crate::admin::{
    AdminApi, HeaderLine, ListRecords, PurgeDone, PurgeRecords, RecordDetails, ReleaseRecord,
    Reply, ResolveRecord, ShowRecord,
};
use crate::api::{RecordRef, RecordState};

/// Show records, and decide about those whose outcome is unknown
#[derive(Debug, Subcommand)]
pub(crate) enum RecordsCommand {
    /// List records
    ///
    /// Examples:
    ///   onceward records list --config onceward.toml --state unknown
    ///   onceward records list --admin http://127.0.0.1:9090 --older-than 5m --all
    ///   onceward records list --store file:./onceward-data --tenant acme --json
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Show one record: state, times, attempts and decisions
    ///
    /// Examples:
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --config onceward.toml
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --outcome \
    ///       --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Decide the outcome of an operation whose outcome is unknown
    ///
    /// With --happened, retries get the given reply. With --did-not-happen, the key becomes free
    /// and the next retry runs: be sure that the operation can no longer happen. The decision is
    /// written to the audit log before it takes effect, with your user name and the reason.
    ///
    /// Examples:
    ///   onceward records resolve 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --happened \
    ///       --status 201 --header 'content-type: application/json' --body-file reply.json \
    ///       --reason 'charge ch_17 is in the provider'\''s dashboard' --config onceward.toml
    ///   onceward records resolve 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --did-not-happen \
    ///       --reason 'voided at the provider, ticket 4711' --admin http://127.0.0.1:9090 --yes
    #[command(verbatim_doc_comment)]
    Resolve(ResolveArgs),
    /// Free the key of an operation that did not and can no longer happen
    ///
    /// The same as `resolve --did-not-happen`. The outcome must be unknown: an operation with a
    /// live lease is refused.
    ///
    /// Examples:
    ///   onceward records release 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 \
    ///       --reason 'the worker was down before it sent anything' --config onceward.toml
    #[command(verbatim_doc_comment)]
    Release(ReleaseArgs),
    /// Remove expired records now, without waiting for the gateway to do it
    ///
    /// Never removes records that are running, unknown or within their retention.
    ///
    /// Examples:
    ///   onceward records purge --config onceward.toml --dry-run
    ///   onceward records purge --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Purge(PurgeArgs),
    /// Export records as JSON lines
    ///
    /// Contains no keys, and replies only with --outcomes.
    ///
    /// Examples:
    ///   onceward records export --config onceward.toml --to records.jsonl
    ///   onceward records export --admin http://127.0.0.1:9090 --to - | jq .state
    #[command(verbatim_doc_comment)]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// List at most N records
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List all records
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Filter of records.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only records in this state; a record with a lapsed lease is unknown
    #[arg(long, value_name = "STATE", value_enum)]
    state: Option<RecordState>,
    /// Only records of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only records of the operation with this name
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only records unchanged for this time, such as 5m or 2h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// Include Onceward's internal records
    #[arg(long)]
    internal: bool,
}

impl Filter {
    pub(super) fn wanted(&self) -> ListRecords {
        ListRecords {
            state: self.state,
            tenant: self.tenant.clone(),
            operation: self.operation.clone(),
            older_than_seconds: self.older_than.map(|it| it.as_secs()),
            internal: self.internal,
            ..ListRecords::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The operation's id or the record's id
    #[arg(value_name = "ID")]
    id: RecordRef,
    /// Print the stored reply too
    #[arg(long)]
    outcome: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The operation's id or the record's id
    #[arg(value_name = "ID")]
    id: RecordRef,
    #[command(flatten)]
    verdict: VerdictArgs,
    /// Status of the reply that retries get
    #[arg(long, value_name = "CODE", requires = "happened")]
    status: Option<u16>,
    /// A header of the reply; can be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "happened", value_parser = header_line)]
    header: Vec<HeaderLine>,
    /// File with the body of the reply; - is standard input
    #[arg(long, value_name = "FILE", requires = "happened")]
    body_file: Option<PathBuf>,
    /// Retention of the reply [default: as configured for the operation]
    #[arg(long, value_name = "TIME", requires = "happened", value_parser = humantime::parse_duration)]
    keep: Option<Duration>,
    #[command(flatten)]
    decision: DecisionArgs,
}

/// The verdict: exactly one.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct VerdictArgs {
    /// The operation happened; needs --status
    #[arg(long, requires = "status")]
    happened: bool,
    /// The operation did not happen and can no longer happen
    #[arg(long)]
    did_not_happen: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The operation's id or the record's id
    #[arg(value_name = "ID")]
    id: RecordRef,
    #[command(flatten)]
    decision: DecisionArgs,
}

/// Arguments of every decision.
#[derive(Debug, Args)]
struct DecisionArgs {
    /// The evidence, for the audit log; must not contain secrets
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    target: Target,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

impl RecordsCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::List(args) => list(&args).await,
            Self::Show(args) => show(args.id, args.outcome, &args.target).await,
            Self::Resolve(args) => resolve(args).await,
            Self::Release(args) => release(&args.id, args.decision).await,
            Self::Purge(args) => purge(&args).await,
            Self::Export(args) => args.execute().await,
        }
    }
}

async fn list(args: &ListArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let limit = (!args.all).then_some(args.limit as usize);
    let listing = pages::records(&*admin, args.filter.wanted(), limit).await?;
    if args.target.json {
        return output::json(&listing);
    }
    show::listing(&listing)?;
    if listing.records.is_empty() && listing.undecodable.is_empty() {
        return output::line("no records");
    }
    if listing.next.is_some() {
        eprintln!("there are more records: add --limit N or --all");
    }
    Ok(())
}

/// Shows one record.
pub(super) async fn show(id: RecordRef, outcome: bool, target: &Target) -> Fallible {
    let details = target.admin().await?.record(&id, &ShowRecord { outcome }).await?;
    if target.json {
        return output::json(&details);
    }
    show::record(&details)?;
    match details.record.outcome.as_ref().and_then(|it| it.reply.as_ref()) {
        Some(reply) => show::reply(reply),
        None => Ok(()),
    }
}

async fn resolve(args: ResolveArgs) -> Fallible {
    let (VerdictArgs { happened, .. }, Some(status)) = (&args.verdict, args.status) else {
        return release(&args.id, args.decision).await;
    };
    debug_assert!(happened, "clap accepts --status only with --happened");
    let body = args.body_file.as_deref().map(read).transpose()?.unwrap_or_default();
    let reply = Reply::new(status, args.header, &body);
    let DecisionArgs { reason, yes, target } = args.decision;
    let admin = target.admin().await?;
    let before = admin.record(&args.id, &ShowRecord::default()).await?;
    let change = format!(
        "{}\nwill be completed: every retry gets {status} with {} headers and {} bytes",
        summary(&before, &reason),
        reply.headers.len(),
        body.len()
    );
    confirm(&change, yes)?;
    let _not_interrupted_meanwhile = Interrupt::listen()?;
    let keep_seconds = args.keep.map(|it| it.as_secs());
    let request = ResolveRecord { fence: before.record.fence, reason, reply, keep_seconds };
    print_decided(&target, &admin.resolve(&args.id, &request).await?)
}

async fn release(id: &RecordRef, decision: DecisionArgs) -> Fallible {
    let DecisionArgs { reason, yes, target } = decision;
    let admin = target.admin().await?;
    let before = admin.record(id, &ShowRecord::default()).await?;
    let change =
        format!("{}\nwill be released: the next retry runs it again", summary(&before, &reason));
    confirm(&change, yes)?;
    let _not_interrupted_meanwhile = Interrupt::listen()?;
    let request = ReleaseRecord { fence: before.record.fence, reason };
    print_decided(&target, &admin.release(id, &request).await?)
}

/// The record and the reason of a decision, for its confirmation.
fn summary(before: &RecordDetails, reason: &str) -> String {
    let record = &before.record;
    let since = age(record.updated_at.age(show::now()));
    let (operation, state, attempts) = (&record.operation_id, record.state, record.attempts);
    let (name, tenant) = (&record.operation, &record.tenant);
    output::plain(&format!(
        "{operation} ({name} of {tenant}), {state} for {since}, attempt {attempts}"
    )) + &format!("\nreason: {}", output::plain(reason))
}

fn print_decided(target: &Target, after: &RecordDetails) -> Fallible {
    if target.json {
        return output::json(after);
    }
    output::line(format!("{} is now {}", after.record.operation_id, after.record.state))
}

fn read(file: &Path) -> Fallible<Vec<u8>> {
    let mut body = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut body).map(|_| body),
        _ => fs::read(file),
    };
    read.map_err(|error| format!("{}: {error}", file.display()).into())
}

fn header_line(text: &str) -> Result<HeaderLine, String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} does not have the form NAME: VALUE"))?;
    Ok(HeaderLine { name: name.trim().to_owned(), value: value.trim().to_owned() })
}

async fn purge(args: &PurgeArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let purged = if args.dry_run { count_due(&*admin).await? } else { purge_all(&*admin).await? };
    if args.target.json {
        return output::json(&purged);
    }
    let would = if args.dry_run { "would be " } else { "" };
    let (removed, tombstoned) = (count(purged.removed), count(purged.tombstoned));
    output::line(format!(
        "{removed} records {would}removed, {tombstoned} {would}reduced to tombstones"
    ))
}

async fn purge_all(admin: &dyn AdminApi) -> Fallible<PurgeDone> {
    let (mut interrupt, mut all) = (Interrupt::listen()?, PurgeDone::default());
    let mut progress = Progress::new("records removed", None);
    loop {
        // Not interruptible: a call is short, and its count must be reported.
        let purged = admin.purge(&PurgeRecords::default()).await?;
        all.removed += purged.removed;
        all.tombstoned += purged.tombstoned;
        progress.at(all.removed);
        if !purged.more {
            return Ok(all);
        }
        let stopped = |Interrupted| {
            Failure::Interrupted(format!("{} records removed; more are due", all.removed))
        };
        interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
    }
}

/// Counts expired records: those that are counted but no longer listed, and those that are listed
/// as expired and still have their outcome. Approximate while the store is in use.
async fn count_due(admin: &dyn AdminApi) -> Fallible<PurgeDone> {
    let counted = admin.stats().await?.records;
    let wanted = ListRecords { internal: true, ..ListRecords::default() };
    let mut tombstoned = 0;
    let listed = pages::each_page(admin, wanted, None, |page| {
        let is_due = |it: &&crate::admin::RecordView| {
            it.state == RecordState::Expired && it.outcome.is_some()
        };
        tombstoned += page.records.iter().filter(is_due).count() as u64;
        Ok(())
    })
    .await?;
    let removed = counted.saturating_sub(listed as u64);
    Ok(PurgeDone { removed, tombstoned, more: removed + tombstoned > 0 })
}
