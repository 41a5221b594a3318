//! Rounds of load, every subject between two runs of the bare handler.

use std::time::Duration;

use onceward_services as services;

use crate::Fallible;
use crate::client::Client;
use crate::orders::{Handler, TABLE};
use crate::server::Server;
use crate::subject::Subject;
use crate::wrk::{self, CONNECTIONS, Load, Measured};

/// wrk's shortest run.
const WARM_UP: Duration = Duration::from_secs(1);

/// Arguments of the comparison.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Number of rounds for each server
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Duration of each load
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Only with this handler
    #[arg(long)]
    handler: Option<Handler>,
    /// Only this subject; may be repeated
    #[arg(long)]
    subject: Vec<Subject>,
}

impl Plan {
    pub(crate) fn handlers(&self) -> impl Iterator<Item = Handler> {
        let only = self.handler;
        Handler::ALL.into_iter().filter(move |it| only.is_none_or(|only| only == *it))
    }

    fn layered(&self) -> impl Iterator<Item = Subject> {
        let all = self.subject.is_empty();
        Subject::LAYERED.into_iter().filter(move |it| all || self.subject.contains(it))
    }
}

/// One server under both loads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) first: Sample,
    pub(crate) replay: Sample,
    /// Growth of the process for each first request.
    pub(crate) bytes_per_key: f64,
}

/// One server under one load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    /// Processor time of the server for one request, the kernel's part included.
    pub(crate) cpu_micros: f64,
}

/// A guarded server between two bare ones, with the mean of which it is compared: this machine's
/// speed drifts.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) subject: Subject,
    pub(crate) layered: Run,
    pub(crate) bare: [Run; 2],
}

/// Measures all rounds with one handler.
pub(crate) async fn turns(plan: &Plan, handler: Handler) -> Fallible<Vec<Turn>> {
    let stage = Stage::of(plan.seconds, handler)?;
    let mut turns = Vec::new();
    let mut before = stage.run(Subject::Bare).await?;
    for round in 1..=plan.rounds {
        eprintln!("{}: round {round} of {}", handler.title(), plan.rounds);
        for subject in plan.layered() {
            let layered = stage.run(subject).await?;
            let after = stage.run(Subject::Bare).await?;
            turns.push(Turn { subject, layered, bare: [before, after] });
            before = after;
        }
    }
    Ok(turns)
}

/// Numbers of loads against one server, of which keys are made.
const WARM_UP_KEYS: u32 = 1;
const FIRST_KEYS: u32 = 2;
const REPLAY_KEYS: u32 = 3;

/// On which subjects take turns.
struct Stage {
    /// Duration of one load.
    duration: Duration,
    handler: Handler,
    /// A PostgreSQL of our own, where the handler writes to one. A commit waits for the disk.
    database: Option<services::Server>,
}

impl Stage {
    fn of(seconds: u64, handler: Handler) -> Fallible<Self> {
        let database = match handler {
            Handler::Quick => None,
            Handler::Writing => Some(services::Postgres::default().start()?),
        };
        if let Some(database) = &database {
            services::query(database, TABLE)?;
        }
        Ok(Self { duration: Duration::from_secs(seconds), handler, database })
    }

    /// A fresh server under both loads.
    async fn run(&self, subject: Subject) -> Fallible<Run> {
        if let Some(database) = &self.database {
            services::query(database, "TRUNCATE orders")?;
        }
        let url = self.database.as_ref().map(services::Server::url);
        let server = Server::start(subject, url).await?;
        let measured = self.loads(&server, subject).await;
        server.stop().await?;
        measured.map_err(|error| format!("{subject}: {error}").into())
    }

    async fn loads(&self, server: &Server, subject: Subject) -> Fallible<Run> {
        let (path, duration) = (self.handler.path(), self.duration);
        probe(server, subject, path).await?;

        wrk::send(Load::First, WARM_UP_KEYS, server.address, path, WARM_UP).await?;
        let small = server.usage()?.resident_bytes;
        let (first, keys) =
            loaded(server, path, Load::First, FIRST_KEYS, duration, Expect::EachRuns).await?;
        let grown = server.usage()?.resident_bytes.saturating_sub(small);

        // Duplicates may come while the first of a key still runs, so this one is not checked.
        wrk::send(Load::Replay, REPLAY_KEYS, server.address, path, WARM_UP).await?;
        let expect = if subject.guards() { Expect::NoneRuns } else { Expect::EachRuns };
        let (replay, _) = loaded(server, path, Load::Replay, REPLAY_KEYS, duration, expect).await?;
        Ok(Run { first, replay, bytes_per_key: grown as f64 / keys as f64 })
    }
}

/// How often a handler is to run under a load.
#[derive(Debug, Clone, Copy)]
enum Expect {
    EachRuns,
    NoneRuns,
}

/// One load, every answer of it checked: by its status, and by how often the handler ran.
async fn loaded(
    server: &Server,
    path: &str,
    load: Load,
    keys: u32,
    duration: Duration,
    expect: Expect,
) -> Fallible<(Sample, u64)> {
    let mut client = Client::connect(server.address).await?;
    let executed = client.number("/executions").await?;
    let used = server.usage()?.cpu;
    let measured = wrk::send(load, keys, server.address, path, duration).await?;
    let cpu = server.usage()?.cpu - used;
    let executed = client.number("/executions").await? - executed;
    measured.check()?;
    let right = match expect {
        // wrk leaves without waiting for the last answers, now and after the load before.
        Expect::EachRuns => measured.requests..=measured.requests + 2 * CONNECTIONS,
        Expect::NoneRuns => 0..=0,
    };
    if !right.contains(&executed) {
        let Measured { requests, .. } = measured;
        return Err(format!("{load:?}: {requests} requests, {executed} executions").into());
    }
    let sample = Sample {
        per_second: measured.per_second(),
        p50_micros: measured.p50_micros as f64,
        p99_micros: measured.p99_micros as f64,
        cpu_micros: cpu.as_secs_f64() * 1e6 / measured.requests as f64,
    };
    Ok((sample, measured.requests))
}

/// Whether a subject does what it is measured for: a first answer without a mark, and a
/// replay of it with one.
async fn probe(server: &Server, subject: Subject, path: &str) -> Fallible<()> {
    let mut client = Client::connect(server.address).await?;
    let first = client.post(path, "probe", crate::orders::BODY).await?;
    let second = client.post(path, "probe", crate::orders::BODY).await?;
    let guarded = subject.guards();
    let same = second.body == first.body;
    if (first.status, second.status) != (201, 201)
        || first.replayed
        || (second.replayed, same) != (guarded, guarded)
    {
        return Err(format!("answers {first:?}, then {second:?}").into());
    }
    Ok(())
}
