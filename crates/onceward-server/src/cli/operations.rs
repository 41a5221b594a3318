//! `onceward operations …`

use clap::{Args, Subcommand};
use onceward_core::OperationId;

use super::target::Target;
use super::{Fallible, output, pages, records, show};
use crate::admin::{ListDecisions, ListRecords};
use crate::api::{RecordRef, RecordState};

/// Show operations and the audit log of decisions
#[derive(Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    /// Show one operation
    ///
    /// Examples:
    ///   onceward operations show 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --config onceward.toml
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Show the audit log: who decided what, when and why
    ///
    /// Shows the decisions about one operation, or all of them.
    ///
    /// Examples:
    ///   onceward operations trail --config onceward.toml
    ///   onceward operations trail 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 --json \
    ///       --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Trail(TrailArgs),
    /// List operations whose outcome is unknown, oldest first
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
    /// Print the stored reply too
    #[arg(long)]
    outcome: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct TrailArgs {
    /// The operation's id; by default, all decisions
    #[arg(value_name = "ID")]
    id: Option<OperationId>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct UnknownArgs {
    /// Only records of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only records of the operation with this name
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl OperationsCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::Show(args) => {
                records::show(RecordRef::Operation(args.id), args.outcome, &args.target).await
            }
            Self::Trail(args) => trail(&args).await,
            Self::Unknown(args) => unknown(args).await,
        }
    }
}

async fn trail(args: &TrailArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let decisions = match args.id {
        Some(id) => {
            let query =
                ListDecisions { operation_id: Some(id.to_string()), ..ListDecisions::default() };
            admin.decisions(&query).await?.decisions
        }
        None => pages::decisions(&*admin).await?,
    };
    if args.target.json {
        return output::json(&decisions);
    }
    if decisions.is_empty() {
        return output::line("no decisions");
    }
    for decision in &decisions {
        output::line(&decision.operation_id)?;
        show::decision(decision, "  ")?;
    }
    Ok(())
}

async fn unknown(args: UnknownArgs) -> Fallible {
    let admin = args.target.admin().await?;
    let UnknownArgs { tenant, operation, target } = args;
    let state = Some(RecordState::Unknown);
    let wanted = ListRecords { state, tenant, operation, ..ListRecords::default() };
    let mut listing = pages::records(&*admin, wanted, None).await?;
    pages::oldest_first(&mut listing.records);
    if target.json {
        return output::json(&listing);
    }
    show::listing(&listing)?;
    match listing.records.is_empty() {
        true => output::line("no unknown operations"),
        false => {
            eprintln!(
                "show each with `onceward records show ID`, then decide with `onceward records \
                 resolve ID`"
            );
            Ok(())
        }
    }
}
