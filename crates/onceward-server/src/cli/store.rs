//! `onceward store …`: maintenance of stores.

mod accept_loss;
mod copy;
mod invalidate;
mod reseal;
mod upkeep;
mod verify;

use clap::{Args, Subcommand};

use super::target::{StoreTarget, Target};
use super::{Fallible, output};
use accept_loss::AcceptLossArgs;
use copy::CopyArgs;
use invalidate::InvalidateCacheArgs;

/// Inspect and maintain a store
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Print the number of records and their size
    ///
    /// Examples:
    ///   onceward store stats --config onceward.toml
    ///   onceward store stats --admin http://127.0.0.1:9090 --json
    #[command(verbatim_doc_comment)]
    Stats(Target),
    /// Read every record, and list those that cannot be read
    ///
    /// Also opens sealed records. In a directory that no process has open, also checks the
    /// counters, and that every record will expire. Fails if anything is wrong.
    ///
    /// Examples:
    ///   onceward store verify --config onceward.toml
    ///   onceward store verify --admin http://127.0.0.1:9090
    #[command(verbatim_doc_comment)]
    Verify(Target),
    /// Free the disk space of removed records
    ///
    /// Stores normally do this by themselves. Use it after large deletions.
    ///
    /// Examples:
    ///   onceward store compact --store file:./onceward-data
    #[command(verbatim_doc_comment)]
    Compact(StoreTarget),
    /// Create or update the tables of a PostgreSQL store
    ///
    /// Gateways do this when they start, unless the store's URL has migrate=false.
    ///
    /// Examples:
    ///   onceward store migrate --config onceward.toml --dry-run
    ///   onceward store migrate --store postgres://onceward@db/onceward
    #[command(verbatim_doc_comment)]
    Migrate(MigrateArgs),
    /// Copy all records of one store to another
    ///
    /// Records are copied unchanged, sealed ones sealed. A record that is newer in the target
    /// stays, so the command can be interrupted and repeated. Both stores may be in use; to move
    /// without downtime, see "moving" in docs/stores.md.
    ///
    /// Examples:
    ///   onceward store copy --from file:./onceward-data --to postgres://onceward@db/onceward
    ///   onceward store copy --from redis://cache --to postgres://onceward@db/onceward --verify
    #[command(verbatim_doc_comment)]
    Copy(CopyArgs),
    /// Make retries ask PostgreSQL again, after its records were changed by hand
    ///
    /// For PostgreSQL with a Redis in front of it (store.cache). Copies of records in Redis do not
    /// count any more when the command ends; those of the given records also leave Redis at once.
    /// Safe at any time: copies are made again. If a stored response must not be replayed any more,
    /// use `onceward records invalidate` instead.
    ///
    /// Examples:
    ///   onceward store invalidate 019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8 \
    ///       --reason 'row deleted by hand, ticket 4711' --config onceward.toml
    ///   onceward store invalidate --all --reason 'backup restored' \
    ///       --admin http://127.0.0.1:9090 --yes
    #[command(verbatim_doc_comment)]
    Invalidate(InvalidateCacheArgs),
    /// Accept the loss of records, so that the store grants claims again
    ///
    /// A Redis that was flushed or has evicted keys, and a PostgreSQL table that was emptied, grant
    /// no claims, because a missing key may have run before. Use this command if no client repeats
    /// a request from before the loss, or if such effects may be repeated. It is written to the
    /// audit log.
    ///
    /// Examples:
    ///   onceward store accept-loss --config onceward.toml \
    ///       --reason 'flushed on purpose; all clients were stopped since yesterday'
    ///   onceward store accept-loss --admin http://127.0.0.1:9090 --reason 'ticket 4711' --yes
    #[command(verbatim_doc_comment)]
    AcceptLoss(AcceptLossArgs),
    /// Reseal all records with the first sealing key
    ///
    /// Afterwards the other keys can be removed. All gateways must have the first key before. The
    /// command can be interrupted and repeated, and run while gateways use the store, but not
    /// while records move to another store.
    ///
    /// Examples:
    ///   onceward store reseal --config onceward.toml
    #[command(verbatim_doc_comment)]
    Reseal(StoreTarget),
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    target: StoreTarget,
    /// Print the SQL, and run nothing
    #[arg(long)]
    dry_run: bool,
}

impl StoreCommand {
    pub(super) async fn execute(self) -> Fallible {
        match self {
            Self::Stats(target) => stats(&target).await,
            Self::Verify(target) => verify::verify(&target).await,
            Self::Compact(target) => upkeep::compact(&target.config()?.store).await,
            Self::Migrate(args) => {
                upkeep::migrate(&args.target.config()?.store, args.dry_run).await
            }
            Self::Copy(args) => args.execute().await,
            Self::Invalidate(args) => args.execute().await,
            Self::AcceptLoss(args) => args.execute().await,
            Self::Reseal(target) => reseal::reseal(&target.config()?.store).await,
        }
    }
}

async fn stats(target: &Target) -> Fallible {
    let totals = target.admin().await?.stats().await?;
    if target.json {
        return output::json(&totals);
    }
    output::line(format!("{:10} {:>15}", "records", output::count(totals.records)))?;
    for total in &totals.by_state {
        output::line(format!("  {:9} {:>14}", total.state, output::count(total.records)))?;
    }
    if let Some(oldest) = totals.oldest_unknown {
        let age = output::age(oldest.age(super::show::now()));
        output::line(format!("the oldest unknown one has not changed for {age}, since {oldest}"))?;
    }
    output::line(format!("{:10} {:>15}", "about", output::size(totals.bytes)))
}
