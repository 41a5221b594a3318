//! `onceward plan`: memory and disk that records will need.

mod amounts;
mod needs;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Fallible;
use super::output::{self, count};
use amounts::{Rate, Size};
use needs::{Load, Need};

/// Estimate the memory and disk that records will need
///
/// Computes records = rate × retention and bytes = records × size of each. The overhead of a
/// record was measured for each store (docs/benchmarks.md).
///
/// Examples:
///   onceward plan --rate 200/s --ttl 24h --record 1.5KiB
///   onceward plan --rate 1000000/d --ttl 7d --record 800 --store postgres --retry-horizon 3d
///   onceward plan --rate 50/s --ttl 24h --tombstone 30d --record 2KiB --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlanArgs {
    /// Average rate of new keys, such as 200/s, 5000/m or 1000000/d
    #[arg(long, value_name = "N/UNIT")]
    rate: Rate,
    /// Retention of replies (the setting `ttl`), such as 24h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Average size of a reply with its headers, such as 1.5KiB
    #[arg(long, value_name = "BYTES")]
    record: Size,
    /// Time after the retention in which keys are answered as expired (the setting `tombstone`)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    tombstone: Option<Duration>,
    /// Longest time after which clients, queues and people still retry
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    retry_horizon: Option<Duration>,
    /// Only this store
    #[arg(long, value_name = "STORE", value_enum)]
    store: Option<PlannedStore>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Stores with measured overheads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum PlannedStore {
    /// A directory
    Embedded,
    /// Redis
    Redis,
    /// PostgreSQL
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
        if self.json { output::json(&plan) } else { self.print(&plan) }
    }

    fn load(&self) -> Load {
        let of = |time: Duration| (self.rate.per_second() * time.as_secs_f64()).ceil() as u64;
        Load {
            records: of(self.ttl),
            tombstones: of(self.tombstone.unwrap_or_default()),
            reply_bytes: self.record.0,
        }
    }

    fn print(&self, plan: &Plan) -> Fallible {
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

    /// Warns if retries come later than the retention, and therefore run again.
    fn warnings(&self) -> Vec<String> {
        let Some(horizon) = self.retry_horizon.filter(|horizon| *horizon > self.ttl) else {
            return Vec::new();
        };
        let [ttl, horizon_text] = [self.ttl, horizon].map(humantime::format_duration);
        let known = self.ttl + self.tombstone.unwrap_or_default();
        vec![if horizon > known {
            format!(
                "retention ({ttl}) is shorter than the retry horizon ({horizon_text}): a later \
                 retry runs again. Raise --ttl, or cover the rest with --tombstone"
            )
        } else {
            format!(
                "retention ({ttl}) is shorter than the retry horizon ({horizon_text}): a later \
                 retry does not run again, but is refused as expired"
            )
        }]
    }
}
