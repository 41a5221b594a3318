//! Benchmarks of the HTTP layer and the gateway, beside the bare handler and other products.
//!
//! `cargo xtask bench http` runs it; `docs/benchmarks.md` has the results.

mod client;
mod compare;
mod duplicates;
mod fronts;
mod gateway;
mod layer;
mod least;
mod orders;
mod report;
mod server;
mod subject;
mod wrk;

use std::time::Duration;

use clap::Parser;

use compare::Plan;
use duplicates::Duplicates;
use layer::Calls;
use subject::Subject;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Far longer than all duplicates take, shorter than a lease that is never ended.
const DUPLICATES_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
enum Bench {
    /// Throughput by wrk, and duplicate executions, of all servers
    Compare(Plan),
    /// Only the duplicate executions
    Duplicates,
    /// The gateway beside nginx and Restate
    Gateway(gateway::Plan),
    /// Calls in the process, without sockets
    Layer(Calls),
    /// Takes a gibibyte of memory, writes to it and ends
    Touch,
    /// One of the servers; its address is the first line that it prints
    Serve {
        /// The server
        subject: Subject,
        /// The URL of the PostgreSQL that one of its handlers writes to
        database: Option<String>,
    },
}

fn main() -> Fallible<()> {
    let bench = Bench::parse();
    let runtime = match bench {
        // One thread, so that a call is timed and not a change of threads.
        Bench::Layer(_) => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        _ => tokio::runtime::Runtime::new()?,
    };
    runtime.block_on(async {
        match bench {
            Bench::Compare(plan) => {
                for handler in plan.handlers() {
                    report::print_turns(handler, &compare::turns(&plan, handler).await?);
                }
                duplicates().await
            }
            Bench::Duplicates => duplicates().await,
            Bench::Gateway(plan) => gateway::measure(plan).await,
            Bench::Layer(calls) => layer::measure(calls).await,
            Bench::Touch => {
                std::hint::black_box(vec![1_u8; 1 << 30]);
                Ok(())
            }
            Bench::Serve { subject, database } => server::serve(subject, database.as_deref()).await,
        }
    })
}

/// Counts duplicate executions, and fails if Onceward made one.
async fn duplicates() -> Fallible<()> {
    let mut counted = Vec::new();
    for subject in Subject::USABLE {
        eprintln!("duplicates: {subject}");
        let duplicates = tokio::time::timeout(DUPLICATES_MAX, duplicates::count(subject)).await??;
        counted.push((subject, duplicates));
    }
    report::print_duplicates(&counted);
    let made = |(subject, Duplicates { racing, hung_up, .. }): &(Subject, Duplicates)| {
        *subject == Subject::Onceward && racing + hung_up > 0
    };
    if counted.iter().any(made) {
        return Err("onceward executed a duplicate".into());
    }
    Ok(())
}
