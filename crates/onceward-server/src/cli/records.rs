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

/// Look at records, and decide about those whose outcome nobody knows
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
    /// Show one record: state, times, attempts, and what was decided about it
    ///
    /// Examples:
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --config onceward.toml
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --outcome \
    ///       --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Decide what became of an operation whose outcome is unknown
    ///
    /// With --happened, retries get the reply that you give. With --did-not-happen, its key
    /// is free and the next retry runs: be sure that it cannot happen any more. The decision
    /// is written into the trail before it is made, with who you are and the reason.
    ///
    /// Examples:
    ///   onceward records resolve 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --happened \
    ///       --status 201 --header 'content-type: application/json' --body-file reply.json \
    ///       --reason 'charge ch_17 is in the provider'\''s dashboard' --config onceward.toml
    ///   onceward records resolve 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --did-not-happen \
    ///       --reason 'voided at the provider, ticket 4711' --admin http://127.0.0.1:9090 --yes
    #[command(verbatim_doc_comment)]
    Resolve(ResolveArgs),
    /// Free the key of an operation that did not happen and cannot any more
    ///
    /// The same as `resolve --did-not-happen`. Only where the outcome is unknown: a live
    /// lease is refused.
    ///
    /// Examples:
    ///   onceward records release 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 \
    ///       --reason 'the worker was down before it sent anything' --config onceward.toml
    #[command(verbatim_doc_comment)]
    Release(ReleaseArgs),
    /// Remove what is past its time now, instead of when the gateway gets to it
    ///
    /// Never touches what is running, unknown, or within its retention.
    ///
    /// Examples:
    ///   onceward records purge --config onceward.toml --dry-run
    ///   onceward records purge --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Purge(PurgeArgs),
    /// Write all records as JSON lines; no keys, and no replies unless you ask for them
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
    place: Target,
    #[command(flatten)]
    filter: Filter,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Which records.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only those that stand there; a lapsed lease stands at unknown
    #[arg(long, value_name = "STATE", value_enum)]
    state: Option<RecordState>,
    /// Only this tenant's
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only those of the operation with this name
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only those that have not changed for so long, such as 5m or 2h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// Also what Onceward keeps for itself
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
    /// The operation's id, or the record's
    #[arg(value_name = "ID")]
    id: RecordRef,
    /// Print its stored reply too
    #[arg(long)]
    outcome: bool,
    #[command(flatten)]
    place: Target,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The operation's id, or the record's
    #[arg(value_name = "OPERATION")]
    id: RecordRef,
    #[command(flatten)]
    verdict: VerdictArgs,
    /// The status of the reply that retries get
    #[arg(long, value_name = "CODE", requires = "happened")]
    status: Option<u16>,
    /// A header of that reply; as often as there are headers
    #[arg(long, value_name = "NAME: VALUE", requires = "happened", value_parser = header_line)]
    header: Vec<HeaderLine>,
    /// The body of that reply; - is standard input
    #[arg(long, value_name = "FILE", requires = "happened")]
    body_file: Option<PathBuf>,
    /// How long that reply is kept [default: as configured for the operation]
    #[arg(long, value_name = "TIME", requires = "happened", value_parser = humantime::parse_duration)]
    keep: Option<Duration>,
    #[command(flatten)]
    force: Force,
}

/// One of the two.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct VerdictArgs {
    /// It happened; needs --status
    #[arg(long, requires = "status")]
    happened: bool,
    /// It did not happen, and cannot any more
    #[arg(long)]
    did_not_happen: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The operation's id, or the record's
    #[arg(value_name = "OPERATION")]
    id: RecordRef,
    #[command(flatten)]
    force: Force,
}

/// What every forced decision takes.
#[derive(Debug, Args)]
struct Force {
    /// How it is known, for the trail; no secrets
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: Target,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    place: Target,
    /// Say what would be removed
    #[arg(long)]
    dry_run: bool,
}

impl RecordsCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::List(args) => list(&args).await,
            Self::Show(args) => look(args.id, args.outcome, &args.place).await,
            Self::Resolve(args) => resolve(args).await,
            Self::Release(args) => release(&args.id, args.force).await,
            Self::Purge(args) => purge(&args).await,
            Self::Export(args) => args.execute().await,
        }
    }
}

async fn list(args: &ListArgs) -> Fallible {
    let admin = args.place.admin().await?;
    let limit = (!args.all).then_some(args.limit as usize);
    let listing = pages::records(&*admin, args.filter.wanted(), limit).await?;
    if args.place.json {
        return output::json(&listing);
    }
    show::listing(&listing)?;
    if listing.records.is_empty() && listing.undecodable.is_empty() {
        return output::line("no records");
    }
    if listing.next.is_some() {
        eprintln!("there are more: give --limit or --all");
    }
    Ok(())
}

/// Shows one record.
pub(super) async fn look(id: RecordRef, outcome: bool, place: &Target) -> Fallible {
    let shown = place.admin().await?.record(&id, &ShowRecord { outcome }).await?;
    if place.json {
        return output::json(&shown);
    }
    show::record(&shown)?;
    match shown.record.outcome.as_ref().and_then(|it| it.reply.as_ref()) {
        Some(reply) => show::reply(reply),
        None => Ok(()),
    }
}

async fn resolve(args: ResolveArgs) -> Fallible {
    let (VerdictArgs { happened, .. }, Some(status)) = (&args.verdict, args.status) else {
        return release(&args.id, args.force).await;
    };
    debug_assert!(happened, "clap lets a status pass with it only");
    let body = args.body_file.as_deref().map(read).transpose()?.unwrap_or_default();
    let reply = Reply::new(status, args.header, &body);
    let Force { reason, yes, place } = args.force;
    let admin = place.admin().await?;
    let seen = admin.record(&args.id, &ShowRecord::default()).await?;
    let what = format!(
        "{}\nwill be completed: every retry gets {status} with {} headers and {} bytes",
        about(&seen, &reason),
        reply.headers.len(),
        body.len()
    );
    confirm(&what, yes)?;
    let _not_in_the_middle = Interrupt::listen()?;
    let keep_seconds = args.keep.map(|it| it.as_secs());
    let order = ResolveRecord { fence: seen.record.fence, reason, reply, keep_seconds };
    done(&place, &admin.resolve(&args.id, &order).await?)
}

async fn release(id: &RecordRef, force: Force) -> Fallible {
    let Force { reason, yes, place } = force;
    let admin = place.admin().await?;
    let seen = admin.record(id, &ShowRecord::default()).await?;
    let what = format!("{}\nwill be released: the next retry runs it again", about(&seen, &reason));
    confirm(&what, yes)?;
    let _not_in_the_middle = Interrupt::listen()?;
    let order = ReleaseRecord { fence: seen.record.fence, reason };
    done(&place, &admin.release(id, &order).await?)
}

/// What a decision is about.
fn about(seen: &RecordDetails, reason: &str) -> String {
    let record = &seen.record;
    let since = age(record.updated_at.age(show::now()));
    let (operation, state, attempts) = (&record.operation_id, record.state, record.attempts);
    let (name, tenant) = (&record.operation, &record.tenant);
    output::plain(&format!(
        "{operation} ({name} of {tenant}), {state} for {since}, attempt {attempts}"
    )) + &format!("\nreason: {}", output::plain(reason))
}

fn done(place: &Target, shown: &RecordDetails) -> Fallible {
    if place.json {
        return output::json(shown);
    }
    output::line(format!("{} is {} now", shown.record.operation_id, shown.record.state))
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
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("{text:?} is not NAME: VALUE"))?;
    Ok(HeaderLine { name: name.trim().to_owned(), value: value.trim().to_owned() })
}

async fn purge(args: &PurgeArgs) -> Fallible {
    let admin = args.place.admin().await?;
    let purged = if args.dry_run { due(&*admin).await? } else { purge_all(&*admin).await? };
    if args.place.json {
        return output::json(&purged);
    }
    let would = if args.dry_run { "would be " } else { "" };
    let (removed, tombstoned) = (count(purged.removed), count(purged.tombstoned));
    output::line(format!("{removed} records {would}removed, {tombstoned} {would}cut to tombstones"))
}

async fn purge_all(admin: &dyn AdminApi) -> Fallible<PurgeDone> {
    let (mut interrupt, mut all) = (Interrupt::listen()?, PurgeDone::default());
    let mut progress = Progress::new("records removed", None);
    loop {
        // Not left off in the middle: a call is short, and its count is told.
        let purged = admin.purge(&PurgeRecords::default()).await?;
        all.removed += purged.removed;
        all.tombstoned += purged.tombstoned;
        progress.at(all.removed);
        if !purged.more {
            return Ok(all);
        }
        let stopped = |Interrupted| {
            Failure::Interrupted(format!("{} records were removed; more are due", all.removed))
        };
        interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
    }
}

/// What is past its time: what is counted and not listed any more, and what is listed as
/// expired and still has its outcome. While the store is in use, about so many.
async fn due(admin: &dyn AdminApi) -> Fallible<PurgeDone> {
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
