//! Limits, sweeping, metrics, and redaction.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use onceward_core::{
    Begin, BeginError, Clock, Engine, MemoryLimits, MemoryStore, Permit, Settled, StateName,
    StoreAdmin, StoreErrorKind, Sweeper, SweeperRound, SweeperSettings,
};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::{Call, Fault};
use parking_lot::Mutex;
use tokio::time::sleep;

fn limited(limits: MemoryLimits) -> (Engine, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::with(limits, Arc::new(SimClock::new())));
    let policy = policy().retention(LEASE * 2).build().unwrap();
    (Engine::builder(store.clone()).policy(policy).build(), store)
}

fn is_full(begin: &Result<Begin, BeginError>) -> bool {
    matches!(begin, Err(BeginError::Unavailable(error)) if error.kind == StoreErrorKind::Full)
}

async fn filled(engine: &Engine, keys: usize) -> Vec<Permit> {
    let mut permits = Vec::new();
    for index in 0..keys {
        permits.push(permit(engine, &format!("k{index}")).await);
    }
    permits
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_claims_and_takes_completions() {
    let (engine, _) = limited(MemoryLimits { records_max: 10, ..MemoryLimits::default() });
    let mut permits = filled(&engine, 10).await;
    assert!(is_full(&engine.begin(&intent("one too many")).await));
    let done = permits.pop().unwrap();
    assert_eq!(done.complete(outcome("fits")).await, Settled::Durable);
    assert_eq!(replayed(&engine, "k9").await, outcome("fits"), "what is there is answered");
    // An expired record makes room without a purge.
    sleep(LEASE * 3).await;
    assert!(matches!(engine.begin(&intent("later")).await, Ok(Begin::Execute(_))));
}

#[tokio::test(start_paused = true)]
async fn a_large_limit_is_kept_to_within_a_sixty_fourth() {
    const LIMIT: usize = 16_384; // of which a shard keeps four to itself
    let records_max = LIMIT as u64;
    let (engine, store) = limited(MemoryLimits { records_max, ..MemoryLimits::default() });
    let mut permits = filled(&engine, LIMIT).await;
    loop {
        let key = format!("k{}", permits.len());
        match engine.begin(&intent(&key)).await {
            Ok(Begin::Execute(permit)) => permits.push(permit),
            full => break assert!(is_full(&full), "{full:?}"),
        }
    }
    assert!(permits.len() <= LIMIT + LIMIT / 64, "{}", permits.len());
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.records, permits.len() as u64, "operators are told exactly");
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_with_a_reserve_for_completions() {
    let limits = MemoryLimits { bytes_max: 1 << 20, ..MemoryLimits::default() };
    let (engine, store) = limited(limits);
    let running = permit(&engine, "running").await;
    let big = permit(&engine, "big").await;
    assert_eq!(big.complete(outcome(&"x".repeat(1_000_000))).await, Settled::Durable);
    assert!(is_full(&engine.begin(&intent("new")).await));
    assert_eq!(running.complete(outcome(&"x".repeat(40_000))).await, Settled::Durable);
    assert!(store.stats().await.unwrap().bytes > 1_000_000);
    sleep(LEASE * 3).await;
    assert!(matches!(engine.begin(&intent("new")).await, Ok(Begin::Execute(_))));
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.records, 1, "what was past its time made room");
    assert!(stats.bytes < 1_000);
}

/// Runs a sweeper and collects what it reports.
fn sweeping(bench: &Bench, clock: Arc<dyn Clock>) -> Arc<Mutex<Vec<String>>> {
    let reports: Arc<Mutex<Vec<String>>> = Arc::default();
    let settings =
        SweeperSettings { every: Duration::from_secs(5), chunk: 7, ..Default::default() };
    let sweeper = Sweeper::new(bench.store.clone(), clock).settings(settings).report({
        let reports = Arc::clone(&reports);
        move |swept| {
            reports.lock().push(match swept {
                SweeperRound::Removed(purged) => format!("removed {}", purged.removed),
                SweeperRound::ClockJumped { .. } => "clock jumped".into(),
                SweeperRound::Failed(_) => "failed".into(),
                SweeperRound::NotArchived(_) => "not archived".into(),
            });
        }
    });
    tokio::spawn(sweeper.run());
    reports
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_removes_in_chunks_survives_errors_and_leaves_what_runs() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().retention(LEASE));
    for permit in filled(&engine, 30).await {
        assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
    }
    let running = permit(&engine, "running").await;
    drop(permit(&engine, "unknown").await);
    let reports = sweeping(&bench, Arc::new(bench.clock.clone()));
    bench.store.on_nth(3, Call::Admin, Fault::Fail);
    sleep(LEASE * 3).await;
    let reports = reports.lock().clone();
    assert!(reports.contains(&"failed".to_owned()), "{reports:?}");
    let removed: usize =
        reports.iter().filter_map(|it| it.strip_prefix("removed ")?.parse::<usize>().ok()).sum();
    assert_eq!(bench.record("k0").await, None);
    assert!(removed >= 16, "the rest after the error: {reports:?}");
    assert_eq!(running.check(), Ok(()));
    assert_eq!(bench.standing("unknown").await, Some(StateName::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_the_round_and_not_the_sweeper() {
    let bench = Bench::new();
    let reports = sweeping(&bench, Arc::new(bench.clock.clone()));
    bench.store.on_nth(1, Call::Admin, Fault::Hang);
    sleep(Duration::from_secs(200)).await;
    assert_eq!(reports.lock()[..2], ["failed".to_owned(), "removed 0".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_stands_still_when_the_clock_jumped() {
    let bench = Bench::new();
    let engine = bench.engine();
    let _durable = permit(&engine, "k").await.complete(outcome("kept")).await;
    let reports = sweeping(&bench, Arc::new(bench.clock.clone()));
    sleep(Duration::from_secs(6)).await;
    bench.clock.jump(3 * 24 * 3600 * 1000);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(reports.lock()[..2], ["removed 0".to_owned(), "clock jumped".to_owned()]);
    assert!(bench.record("k").await.is_some(), "what was promised for a day is still there");
    bench.clock.jump(-3 * 24 * 3600 * 1000);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(reports.lock().last().unwrap(), "removed 0", "it goes on when they agree again");
    assert_eq!(replayed(&engine, "k").await, outcome("kept"));
}

/// A canary goes through everything that can be printed.
#[tokio::test(start_paused = true)]
async fn keys_tokens_and_bodies_are_never_printed() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().keep_key(true));
    let permit = permit(&engine, "canary-key").await;
    let shown = format!("{engine:?} {permit:?} {:?}", permit.grant());
    let _durable = permit.complete(outcome("canary-body")).await;
    let record = bench.record("canary-key").await.unwrap();
    let owner: String = record.owner.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    let begin = engine.begin(&intent("canary-key")).await.unwrap();
    let shown = format!("{shown} {record:?} {record:#?} {begin:?} {:?}", intent("canary-key"));
    assert_eq!(record.key.as_ref().unwrap().expose(), "canary-key", "kept, because it was asked");
    for secret in ["canary", owner.as_str(), &format!("{:?}", record.owner.expose())] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn retention_counts_from_the_settlement() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().retention(LEASE * 3));
    let permit = permit(&engine, "k").await;
    sleep(LEASE * 5).await; // longer than the retention
    assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
    sleep(LEASE * 2).await;
    assert_eq!(replayed(&engine, "k").await, outcome("done"));
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn store_calls_are_counted_by_result() {
    use onceward_core::{MeteredStore, Meters};
    use prometheus_client::registry::Registry;

    let mut registry = Registry::default();
    let meters = Meters::register(&mut registry);
    let bench = Bench::new();
    let store = Arc::new(MeteredStore::new(bench.store.clone(), "memory", meters));
    let engine = Engine::new(store);
    let _durable = permit(&engine, "k").await.complete(outcome("done")).await;
    replayed(&engine, "k").await;
    bench.store.on_nth(1, Call::Claim, Fault::Fail);
    assert!(engine.begin(&intent("k")).await.is_err());

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"onceward_store_calls_total{store="memory",call="claim",result="granted"} 1"#,
        r#"onceward_store_calls_total{store="memory",call="claim",result="completed"} 1"#,
        r#"onceward_store_calls_total{store="memory",call="claim",result="error"} 1"#,
        r#"onceward_store_calls_total{store="memory",call="settle",result="applied"} 1"#,
        r#"onceward_store_call_seconds_count{store="memory",call="claim"} 3"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// Seed 42139 of the simulator: a record was swept while the clock was ahead, the clock was set
/// back, and the key's next grant had a lower fence than its first.
#[tokio::test(start_paused = true)]
async fn fences_increase_even_if_the_clock_is_set_back_after_a_sweep() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().retention(LEASE));
    let first = permit(&engine, "k").await;
    let fence = first.fence();
    assert_eq!(first.complete(outcome("done")).await, Settled::Durable);
    bench.clock.jump(60_000);
    assert_eq!(bench.store.purge(10).await.unwrap().removed, 1);
    bench.clock.jump(-120_000);
    assert!(permit(&engine, "k").await.fence() > fence);
}
