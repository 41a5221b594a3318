//! `onceward records …`

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::confirm::confirm;
use super::export::ExportArgs;
use super::failure::Failure;
use super::interrupt::{Interrupt, Interrupted};
use super::invalidate::InvalidateArgs;
use super::output::{self, age, count};
use super::progress::Progress;
use super::target::Target;
use super::{Fallible, pages, show};
use crate::admin::{
    AdminApi, FindRecord, HeaderLine, ListRecords, PurgeDone, PurgeRecords, RecordDetails,
    ReleaseRecord, Reply, ResolveRecord, ShowRecord,
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
    ///   onceward records list --store file:./onceward-data --tenant acme --caller shop --json
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Show one record: state and its cause, times, attempts, outcome and decisions
    ///
    /// Examples:
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --config onceward.toml
    ///   onceward records show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --outcome \
    ///       --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Find and show the record of a client's idempotency key
    ///
    /// The key is hashed together with tenant, caller and operation, which have to be those of the
    /// request. It is never logged, and goes to a gateway in the body of the request. Other users of
    /// the machine can read command lines: with `--key -` it is read from standard input.
    ///
    /// Examples:
    ///   onceward records find --key 7f3c… --tenant acme --caller shop \
    ///       --operation payments.create --config onceward.toml
    ///   onceward records find --key - --tenant acme --caller shop \
    ///       --operation payments.create --admin http://127.0.0.1:9090 < key.txt
    #[command(verbatim_doc_comment)]
    Find(FindArgs),
    /// List the callers that have the most records
    ///
    /// Reads all records that match.
    ///
    /// Examples:
    ///   onceward records callers --config onceward.toml
    ///   onceward records callers --top 3 --state unknown --admin http://127.0.0.1:9090 --json
    #[command(verbatim_doc_comment)]
    Callers(CallersArgs),
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
    /// Delete stored responses that must not be replayed any more
    ///
    /// For corrections of data that removed what an operation did. The response is deleted, and
    /// retries get 409 IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE. The record stays, so its key does not
    /// run again within its retention. Running and unknown operations have no response yet. The
    /// decision is written to the audit log before it takes effect.
    ///
    /// Examples:
    ///   onceward records invalidate 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 \
    ///       --reason 'the payment was deleted, ticket 4711' --config onceward.toml
    ///   onceward records invalidate --tenant acme --operation payments.create --dry-run \
    ///       --reason 'import of 2026-11-16 undone' --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Invalidate(InvalidateArgs),
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
    /// Only records of this caller
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
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
            caller: self.caller.clone(),
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
pub(crate) struct FindArgs {
    /// The client's idempotency key; - reads it from standard input
    #[arg(long, value_name = "KEY")]
    key: SecretText,
    /// The tenant
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The caller
    #[arg(long, value_name = "NAME")]
    caller: String,
    /// The name of the operation, such as payments.create
    #[arg(long, value_name = "NAME")]
    operation: String,
    /// The API version, if it is part of the scope
    #[arg(long, value_name = "VERSION")]
    api_version: Option<String>,
    /// The parent resource, if it is part of the scope
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// The region, if it is part of the scope
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Print the stored reply too
    #[arg(long)]
    outcome: bool,
    #[command(flatten)]
    target: Target,
}

/// A text that `Debug` does not show.
#[derive(Clone)]
struct SecretText(String);

impl FromStr for SecretText {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CallersArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// List the N callers with the most records
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
}

/// The records of one caller.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CallerCount {
    pub(super) tenant: String,
    pub(super) caller: String,
    pub(super) records: u64,
    /// Records whose outcome is unknown.
    pub(super) unknown: u64,
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
            Self::Find(args) => find(args).await,
            Self::Callers(args) => callers(&args).await,
            Self::Resolve(args) => resolve(args).await,
            Self::Release(args) => release(&args.id, args.decision).await,
            Self::Invalidate(args) => args.execute().await,
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
    print_details(&target.admin().await?.record(&id, &ShowRecord { outcome }).await?, target)
}

async fn find(args: FindArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let key = match args.key.0.as_str() {
        "-" => key_from_stdin()?,
        _ => args.key.0,
    };
    let request = FindRecord {
        tenant: args.tenant,
        caller: args.caller,
        operation: args.operation,
        api_version: args.api_version,
        parent: args.parent,
        region: args.region,
        key,
        outcome: args.outcome,
    };
    print_details(&admin.find(&request).await?, &args.target)
}

fn key_from_stdin() -> Fallible<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| format!("the key: {error}"))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

async fn callers(args: &CallersArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let mut counts: HashMap<(String, String), CallerCount> = HashMap::new();
    pages::each_page(&*admin, args.filter.wanted(), None, |page| {
        for record in page.records {
            let (tenant, caller) = (record.tenant, record.caller);
            let count = counts.entry((tenant.clone(), caller.clone()));
            let none = || CallerCount { tenant, caller, records: 0, unknown: 0 };
            let count = count.or_insert_with(none);
            count.records += 1;
            count.unknown += u64::from(record.state == RecordState::Unknown);
        }
        Ok(())
    })
    .await?;
    let mut callers: Vec<_> = counts.into_values().collect();
    let rank = |it: &CallerCount| (Reverse(it.records), it.tenant.clone(), it.caller.clone());
    callers.sort_by_cached_key(rank);
    callers.truncate(args.top as usize);
    if args.target.json {
        return output::json(&callers);
    }
    show::callers(&callers)
}

fn print_details(details: &RecordDetails, target: &Target) -> Fallible {
    if target.json {
        return output::json(details);
    }
    show::record(details)?;
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
