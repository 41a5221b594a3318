//! One call in the process, without sockets: the quickest answer to what the layer costs.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use http_body_util::BodyExt;
use rustix::time::{ClockId, clock_gettime};
use tower_service::Service;

use crate::Fallible;
use crate::orders::BODY;
use crate::report::Spread;
use crate::subject::Subject;
use crate::wrk::Load;

/// How many calls are timed together.
const BATCH: u64 = 2000;

/// Arguments of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Calls {
    /// Batches of 2,000 calls for each server and load, taken in turns
    #[arg(long, default_value_t = 31)]
    batches: u64,
    /// Only this server, for a profiler
    #[arg(long)]
    only: Option<Subject>,
    /// Only this load, for a profiler
    #[arg(long)]
    load: Option<Load>,
}

/// One server under one load.
struct Case {
    subject: Subject,
    load: Load,
    router: Router,
    calls: u64,
    nanos: Vec<f64>,
}

/// Measures calls and prints what one takes.
pub(crate) async fn measure(calls: Calls) -> Fallible<()> {
    let mut cases = Vec::new();
    for load in [Load::First, Load::Replay] {
        for subject in Subject::ALL {
            if calls.only.is_none_or(|only| only == subject)
                && calls.load.is_none_or(|only| only == load)
            {
                let router = subject.router(None)?;
                cases.push(Case { subject, load, router, calls: 0, nanos: Vec::new() });
            }
        }
    }
    for _ in 0..calls.batches {
        for case in &mut cases {
            case.batch().await?;
        }
    }
    println!("Processor time of one call\n");
    println!("| load | server | ns a call | in {} batches | more than bare |", calls.batches);
    println!("|---|---|---:|---:|---:|");
    let mut bare = 0.0;
    for case in cases {
        let Spread { median, low, high } = Spread::of(case.nanos.into_iter());
        let (load, subject) = (case.load, case.subject);
        bare = if subject == Subject::Bare { median } else { bare };
        let more = median - bare;
        println!("| {load:?} | {subject} | {median:.0} | {low:.0} to {high:.0} | {more:.0} |");
    }
    Ok(())
}

impl Case {
    async fn batch(&mut self) -> Fallible<()> {
        let requests: Vec<_> = (0..BATCH).map(|_| self.request()).collect::<Result<_, _>>()?;
        let mut wrong = 0;
        let started = processor_time();
        for request in requests {
            let response = call(&mut self.router, request).await;
            wrong += u64::from(response.status() != 201);
            black_box(response.into_body().collect().await?);
            // A connection waits for its next request here; what was spawned gets its turn.
            tokio::task::yield_now().await;
        }
        let took = processor_time() - started;
        if wrong > 0 {
            return Err(format!("{}: {wrong} of {BATCH} were not 201", self.subject).into());
        }
        self.nanos.push(took.as_nanos() as f64 / BATCH as f64);
        Ok(())
    }

    fn request(&mut self) -> Fallible<Request<Body>> {
        self.calls += 1;
        let number = match self.load {
            Load::First | Load::Pass => self.calls,
            Load::Replay => 0,
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri("/orders")
            .header("host", "bench")
            .header("content-type", "application/json")
            .header("content-length", BODY.len())
            .header("x-tenant", "acme")
            .header("cookie", format!("session={:021}A", number % 4096));
        let request = match self.load {
            Load::First | Load::Replay => {
                request.header("idempotency-key", format!("00000001-0b5e-4000-8000-{number:012x}"))
            }
            Load::Pass => request,
        };
        Ok(request.body(Body::from(BODY))?)
    }
}

async fn call(router: &mut Router, request: Request<Body>) -> Response<Body> {
    let answer: Result<_, Infallible> = Service::<Request<Body>>::call(router, request).await;
    match answer {
        Ok(response) => response,
    }
}

/// This thread's own: other people's work on the machine is not counted.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
