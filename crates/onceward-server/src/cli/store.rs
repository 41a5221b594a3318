//! `onceward store …`

mod accept_loss;
mod copy;
mod reseal;
mod upkeep;
mod verify;

use clap::{Args, Subcommand};

use super::target::{StoreTarget, Target};
use super::{Fallible, output};
use accept_loss::AcceptLossArgs;
use copy::CopyArgs;

/// Look after the store
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Say how much the store holds
    ///
    /// Examples:
    ///   onceward store stats --config onceward.toml
    ///   onceward store stats --admin http://127.0.0.1:9090 --json
    #[command(verbatim_doc_comment)]
    Stats(Target),
    /// Read every record, and tell which of them cannot be read
    ///
    /// Opens seals too. A directory that no process has open is looked at more closely: its
    /// counters, and whether everything in it is going to expire. Fails if anything is wrong.
    ///
    /// Examples:
    ///   onceward store verify --config onceward.toml
    ///   onceward store verify --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Verify(Target),
    /// Give space back that dead records take
    ///
    /// In daily life stores clean up by themselves; this is for after large deletions.
    ///
    /// Examples:
    ///   onceward store compact --store file:./onceward-data
    #[command(verbatim_doc_comment)]
    Compact(StoreTarget),
    /// Bring the tables of a PostgreSQL store up to date
    ///
    /// Gateways do so when they start, unless the store's URL says migrate=false.
    ///
    /// Examples:
    ///   onceward store migrate --config onceward.toml --dry-run
    ///   onceward store migrate --store postgres://onceward@db/onceward
    #[command(verbatim_doc_comment)]
    Migrate(MigrateArgs),
    /// Copy all records of one store into another
    ///
    /// Records are copied as they are, sealed ones sealed. What is later in the target stays,
    /// so it may be interrupted and run again. Both may be in use; to move without a pause,
    /// see "moving" in docs/stores.md.
    ///
    /// Examples:
    ///   onceward store copy --from file:./onceward-data --to postgres://onceward@db/onceward
    ///   onceward store copy --from redis://cache --to postgres://onceward@db/onceward --verify
    #[command(verbatim_doc_comment)]
    Copy(CopyArgs),
    /// Grant claims again after the store has lost records
    ///
    /// A Redis that was flushed or has evicted keys, and a PostgreSQL table that was emptied, grant
    /// no claims: what is not there may have run before. This says that no client sends again
    /// what it sent before the loss, or that such effects may be repeated. The trail has it.
    ///
    /// Examples:
    ///   onceward store accept-loss --config onceward.toml \
    ///       --reason 'flushed on purpose; all clients were stopped since yesterday'
    ///   onceward store accept-loss --admin http://127.0.0.1:9090 --reason 'ticket 4711' --yes
    #[command(verbatim_doc_comment)]
    AcceptLoss(AcceptLossArgs),
    /// Seal with the first sealing key what earlier keys have sealed
    ///
    /// After it, the earlier keys can be removed. All gateways need the first key before.
    /// May be interrupted, and run while gateways work on the store; not while records move
    /// to another store.
    ///
    /// Examples:
    ///   onceward store reseal --config onceward.toml
    #[command(verbatim_doc_comment)]
    Reseal(StoreTarget),
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    place: StoreTarget,
    /// Print the SQL, and run nothing
    #[arg(long)]
    dry_run: bool,
}

impl StoreCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::Stats(place) => stats(&place).await,
            Self::Verify(place) => verify::verify(&place).await,
            Self::Compact(place) => upkeep::compact(&place.config()?.store).await,
            Self::Migrate(args) => upkeep::migrate(&args.place.config()?.store, args.dry_run).await,
            Self::Copy(args) => args.execute().await,
            Self::AcceptLoss(args) => args.execute().await,
            Self::Reseal(place) => reseal::reseal(&place.config()?.store).await,
        }
    }
}

async fn stats(place: &Target) -> Fallible {
    let totals = place.admin().await?.stats().await?;
    if place.json {
        return output::json(&totals);
    }
    output::line(format!("{:10} {:>15}", "records", output::count(totals.records)))?;
    for total in &totals.by_state {
        output::line(format!("  {:9} {:>14}", total.state, output::count(total.records)))?;
    }
    output::line(format!("{:10} {:>15}", "about", output::size(totals.bytes)))
}
