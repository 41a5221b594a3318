//! `onceward operations …`

use clap::{Args, Subcommand};
use onceward_core::OperationId;

use super::target::Target;
use super::{Fallible, output, pages, records, show};
use crate::admin::{ListDecisions, ListRecords};
use crate::api::{RecordRef, RecordState};

/// Look at operations, and at what was decided about them
#[derive(Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    /// Show one operation
    ///
    /// Examples:
    ///   onceward operations show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --config onceward.toml
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Show who decided what, when and why; about one operation or about all
    ///
    /// Examples:
    ///   onceward operations trail --config onceward.toml
    ///   onceward operations trail 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --json \
    ///       --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Trail(TrailArgs),
    /// Show what needs somebody: operations whose outcome nobody knows, oldest first
    ///
    /// Examples:
    ///   onceward operations unknown --config onceward.toml
    ///   onceward operations unknown --admin http://127.0.0.1:9090 --tenant acme
    #[command(verbatim_doc_comment)]
    Unknown(UnknownArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The operation's id
    #[arg(value_name = "ID")]
    id: OperationId,
    /// Print its stored reply too
    #[arg(long)]
    outcome: bool,
    #[command(flatten)]
    place: Target,
}

#[derive(Debug, Args)]
pub(crate) struct TrailArgs {
    /// The operation's id; all decisions without it
    #[arg(value_name = "ID")]
    id: Option<OperationId>,
    #[command(flatten)]
    place: Target,
}

#[derive(Debug, Args)]
pub(crate) struct UnknownArgs {
    /// Only this tenant's
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only those of the operation with this name
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    place: Target,
}

impl OperationsCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::Show(args) => {
                records::look(RecordRef::Operation(args.id), args.outcome, &args.place).await
            }
            Self::Trail(args) => trail(&args).await,
            Self::Unknown(args) => unknown(args).await,
        }
    }
}

async fn trail(args: &TrailArgs) -> Fallible {
    let admin = args.place.admin().await?;
    let decisions = match args.id {
        Some(id) => {
            let trail =
                ListDecisions { operation_id: Some(id.to_string()), ..ListDecisions::default() };
            admin.decisions(&trail).await?.decisions
        }
        None => pages::decisions(&*admin).await?,
    };
    if args.place.json {
        return output::json(&decisions);
    }
    if decisions.is_empty() {
        return output::line("nothing was decided");
    }
    for decision in &decisions {
        output::line(&decision.operation_id)?;
        show::about(decision, "  ")?;
    }
    Ok(())
}

async fn unknown(args: UnknownArgs) -> Fallible {
    let admin = args.place.admin().await?;
    let UnknownArgs { tenant, operation, place } = args;
    let state = Some(RecordState::Unknown);
    let wanted = ListRecords { state, tenant, operation, ..ListRecords::default() };
    let mut listing = pages::records(&*admin, wanted, None).await?;
    pages::oldest_first(&mut listing.records);
    if place.json {
        return output::json(&listing);
    }
    show::listing(&listing)?;
    match listing.records.is_empty() {
        true => output::line("nothing is unknown"),
        false => {
            eprintln!("see each with `onceward records show ID`, then `records resolve ID`");
            Ok(())
        }
    }
}
