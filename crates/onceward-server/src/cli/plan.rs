//! `onceward plan`

mod amounts;
mod needs;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Fallible;
use super::output::{self, count};
use amounts::{Rate, Size};
use needs::{Load, Need};

/// Say how much memory and disk records will take
///
/// records = rate × retention, and what they take = records × bytes of each. What a record
/// takes beside its reply was measured for every store (docs/benchmarks.md).
///
/// Examples:
///   onceward plan --rate 200/s --ttl 24h --record 1.5KiB
///   onceward plan --rate 1000000/d --ttl 7d --record 800 --store postgres --retry-horizon 3d
///   onceward plan --rate 50/s --ttl 24h --tombstone 30d --record 2KiB --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlanArgs {
    /// New keys, such as 200/s, 5000/m or 1000000/d; on average over the retention
    #[arg(long, value_name = "N/UNIT")]
    rate: Rate,
    /// How long replies are kept (`ttl`), such as 24h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Bytes of a reply on average, its headers included, such as 1.5KiB
    #[arg(long, value_name = "BYTES")]
    record: Size,
    /// How much longer keys are known as expired (`tombstone`)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    tombstone: Option<Duration>,
    /// How long anybody retries: clients, queues, people on Monday
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    retry_horizon: Option<Duration>,
    /// Only for this store
    #[arg(long, value_name = "STORE", value_enum)]
    store: Option<PlannedStore>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Stores whose records were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum PlannedStore {
    /// A directory
    Embedded,
    /// A Redis
    Redis,
    /// A PostgreSQL
    Postgres,
}

#[derive(Debug, Serialize)]
struct Plan {
    records: u64,
    tombstones: u64,
    needs: Vec<Need>,
    warnings: Vec<String>,
}

impl PlanArgs {
    pub(super) fn execute(&self) -> Fallible {
        let load = self.load();
        let all = PlannedStore::value_variants().iter().copied();
        let wanted = all.filter(|it| self.store.is_none_or(|only| only == *it));
        let plan = Plan {
            records: load.records,
            tombstones: load.tombstones,
            needs: wanted.flat_map(|store| needs::of(store, &load)).collect(),
            warnings: self.warnings(),
        };
        if self.json { output::json(&plan) } else { self.tell(&plan) }
    }

    fn load(&self) -> Load {
        let of = |time: Duration| (self.rate.per_second() * time.as_secs_f64()).ceil() as u64;
        Load {
            records: of(self.ttl),
            tombstones: of(self.tombstone.unwrap_or_default()),
            reply_bytes: self.record.0,
        }
    }

    fn tell(&self, plan: &Plan) -> Fallible {
        let seconds = |time: Duration| count(time.as_secs());
        let (rate, ttl) = (self.rate.per_second(), seconds(self.ttl));
        output::line(format!("records     {rate}/s x {ttl} s = {}", count(plan.records)))?;
        if let Some(tombstone) = self.tombstone {
            let (time, known) = (seconds(tombstone), count(plan.tombstones));
            output::line(format!("tombstones  {rate}/s x {time} s = {known}"))?;
        }
        for need in &plan.needs {
            let store = format!("{:?}", need.store).to_lowercase();
            output::line(format!("\n{store:11} {} {}", need.what, output::size(need.bytes)))?;
            output::line(format!("{:11} {}", "", need.formula))?;
        }
        plan.warnings.iter().try_for_each(|warning| {
            output::line(output::wrapped(&format!("warning: {warning}"), "").as_str())
        })
    }

    /// Retention is how long a retry is recognised: shorter than anybody retries, it lets
    /// the last retries run again.
    fn warnings(&self) -> Vec<String> {
        let Some(horizon) = self.retry_horizon.filter(|horizon| *horizon > self.ttl) else {
            return Vec::new();
        };
        let [ttl, horizon_text] = [self.ttl, horizon].map(humantime::format_duration);
        let known = self.ttl + self.tombstone.unwrap_or_default();
        vec![if horizon > known {
            format!(
                "retention ({ttl}) is shorter than the retry horizon ({horizon_text}): a retry \
                 after that runs again. Raise --ttl, or keep --tombstone for the rest"
            )
        } else {
            format!(
                "retention ({ttl}) is shorter than the retry horizon ({horizon_text}): a retry \
                 after that does not run again, but is refused as expired instead of answered"
            )
        }]
    }
}
