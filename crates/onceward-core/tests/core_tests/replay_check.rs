//! Replays that the source of truth has to confirm.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use async_trait::async_trait;
use futures_util::future::join_all;
use onceward_core::{
    Begin, BeginError, BoxError, BusinessReference, Engine, Failure, Finding, Identity, Intent,
    KnownReference, Record, Recovery, Refused, Rejection, ReplayCheck, Resolver, RunError, Since,
    StateName, Verdict,
};
use onceward_testkit::faulty::{Call, Fault};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Verdict of the source of truth.
#[derive(Clone, Copy)]
enum Says {
    Happened,
    DidNotHappen,
    Unknown,
    Fails,
    Panics,
    /// It never answers.
    Nothing,
}

/// The source of truth. It answers as many questions as its gate lets through.
struct Truth {
    says: Mutex<Says>,
    since: Since,
    goes_by_absence: bool,
    gate: Semaphore,
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Truth {
    fn saying(says: Says) -> Self {
        let [asked, at_once, most_at_once] = [const { AtomicUsize::new(0) }; 3];
        let (says, gate) = (Mutex::new(says), Semaphore::new(Semaphore::MAX_PERMITS));
        let (since, goes_by_absence) = (Since::Always, false);
        Self { says, since, goes_by_absence, gate, asked, at_once, most_at_once }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Resolver for Truth {
    async fn resolve(&self, _: &Record) -> Result<Finding, BoxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        self.gate.acquire().await?.forget();
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        let says = *self.says.lock();
        match says {
            Says::Happened => Ok(Verdict::Happened(outcome("the resolver's")).into()),
            Says::DidNotHappen => Ok(Verdict::DidNotHappen.into()),
            Says::Unknown => Ok(Verdict::StillUnknown.into()),
            Says::Fails => Err("connection refused".into()),
            Says::Panics => panic!("of the test"),
            Says::Nothing => pending().await,
        }
    }

    fn since(&self) -> Since {
        self.since
    }

    fn goes_by_absence(&self) -> bool {
        self.goes_by_absence
    }
}

const PATIENCE: Duration = Duration::from_secs(3);

/// An engine whose replays are checked, two at once.
fn engine(bench: &Bench, truth: &Arc<Truth>) -> Engine {
    let recovery = Recovery::new(bench.store.clone(), truth.clone()).replay_checks(2, PATIENCE);
    let policy = policy().replay_check(ReplayCheck::Resolver).build().unwrap();
    Engine::builder(bench.store.clone()).policy(policy).recovery(recovery).build()
}

async fn complete(engine: &Engine, key: &str) {
    let _durable = permit(engine, key).await.complete(outcome("stored")).await;
}

/// An engine with a completed operation `k`.
async fn completed(says: Says) -> (Bench, Arc<Truth>, Engine) {
    let (bench, truth) = (Bench::new(), Arc::new(Truth::saying(says)));
    let engine = engine(&bench, &truth);
    complete(&engine, "k").await;
    (bench, truth, engine)
}

fn is_unconfirmed(begin: &Result<Begin, BeginError>) -> bool {
    matches!(begin, Err(BeginError::Unconfirmed { .. }))
}

#[tokio::test(start_paused = true)]
async fn what_is_confirmed_is_replayed_as_it_was_stored() {
    let (_bench, truth, engine) = completed(Says::Happened).await;
    for asked in 1..=2 {
        assert_eq!(replayed(&engine, "k").await, outcome("stored"));
        assert_eq!(truth.asked(), asked, "each retry asks");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_source_of_truth_denies_is_neither_replayed_nor_run_and_its_record_stays() {
    let (bench, truth, engine) = completed(Says::DidNotHappen).await;
    let before = bench.record("k").await.unwrap();
    for _ in 0..3 {
        let refused = rejected(&engine, "k").await;
        assert_eq!(refused, Rejection::Contradicted { operation: before.operation });
        assert!(!Refused::from(refused).is_retryable());
        assert_eq!(Refused::from(refused).operation(), Some(before.operation));
    }
    assert_eq!(bench.record("k").await.unwrap(), before);
    // Its row is restored.
    *truth.says.lock() = Says::Happened;
    assert_eq!(replayed(&engine, "k").await, outcome("stored"));
}

#[tokio::test(start_paused = true)]
async fn without_a_clear_answer_nothing_is_replayed_or_run_and_the_retry_may_come_again() {
    for says in [Says::Unknown, Says::Fails, Says::Panics, Says::Nothing] {
        let (bench, truth, engine) = completed(says).await;
        let before = bench.record("k").await.unwrap();
        let began = Instant::now();
        let refused = engine.begin(&intent("k")).await;
        assert!(is_unconfirmed(&refused), "{refused:?}");
        assert!(began.elapsed() <= PATIENCE);
        assert!(Refused::from(refused.unwrap_err()).is_retryable());
        assert_eq!(bench.record("k").await.unwrap(), before);
        *truth.says.lock() = Says::Happened;
        assert_eq!(replayed(&engine, "k").await, outcome("stored"));
    }
}

/// Otherwise `store_down = "open"` would run it again.
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_for_the_check_is_unconfirmed_and_not_a_store_that_is_down() {
    for fault in [Fault::Fail, Fault::Hang, Fault::LoseData] {
        let (bench, truth, engine) = completed(Says::Happened).await;
        bench.store.on_next(1, Call::Admin, fault);
        let refused = engine.begin(&intent("k")).await;
        assert!(is_unconfirmed(&refused), "{fault:?}: {refused:?}");
        assert_eq!(truth.asked(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_failure_is_replayed_without_a_question() {
    let (bench, truth) = (Bench::new(), Arc::new(Truth::saying(Says::DidNotHappen)));
    let engine = engine(&bench, &truth);
    let _durable = permit(&engine, "k").await.fail(outcome("declined")).await;
    assert_eq!(replayed(&engine, "k").await, outcome("declined"));
    assert_eq!(truth.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn by_default_nothing_is_asked() {
    let (bench, truth, _checking) = completed(Says::DidNotHappen).await;
    let recovery = Recovery::new(bench.store.clone(), truth.clone());
    let engine = Engine::builder(bench.store.clone()).recovery(recovery).build();
    assert_eq!(replayed(&engine, "k").await, outcome("stored"));
    assert_eq!(truth.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_a_resolver_confirms_nothing() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().replay_check(ReplayCheck::Resolver));
    complete(&engine, "k").await;
    assert!(is_unconfirmed(&engine.begin(&intent("k")).await));
}

/// The bound of the load on the source of truth.
#[tokio::test(start_paused = true)]
async fn retries_of_one_operation_share_a_question_and_few_are_asked_at_once() {
    let (_bench, truth, engine) = completed(Says::Happened).await;
    for number in 0..10 {
        complete(&engine, &number.to_string()).await;
    }
    truth.gate.forget_permits(Semaphore::MAX_PERMITS);
    let retries = join_all((0..20).map(|_| replayed(&engine, "k")));
    let others = (0..10).map(|number| number.to_string());
    let others = join_all(others.map(async |key| replayed(&engine, &key).await));
    let answer = async {
        while truth.at_once.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        settle_down().await;
        truth.gate.add_permits(100);
    };
    let (retries, others, ()) = tokio::join!(retries, others, answer);
    assert!(retries.iter().chain(&others).all(|it| *it == outcome("stored")));
    assert_eq!(truth.asked(), 11, "one about each operation");
    assert_eq!(truth.most_at_once.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_question_outlives_the_retry_that_began_it() {
    let (_bench, truth, engine) = completed(Says::Happened).await;
    truth.gate.forget_permits(Semaphore::MAX_PERMITS);
    let intent = intent("k");
    let first = engine.begin(&intent);
    assert!(timeout(Duration::from_secs(1), first).await.is_err(), "its client went away");
    let answer = async {
        settle_down().await;
        truth.gate.add_permits(1);
    };
    let (second, ()) = tokio::join!(replayed(&engine, "k"), answer);
    assert_eq!((second, truth.asked()), (outcome("stored"), 1));
}

/// A table whose column was added today has no row about yesterday's operations, and a query on the
/// wrong table has no rows at all.
#[tokio::test(start_paused = true)]
async fn a_denial_that_does_not_count_is_no_contradiction() {
    let (bench, truth) = (Bench::new(), Arc::new(Truth::saying(Says::DidNotHappen)));
    complete(&bench.engine(), "k").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let young = Truth { since: Since::FirstUse, ..Truth::saying(Says::DidNotHappen) };
    assert!(is_unconfirmed(&engine(&bench, &Arc::new(young)).begin(&intent("k")).await));
    let lost = Truth { goes_by_absence: true, ..Truth::saying(Says::DidNotHappen) };
    assert!(is_unconfirmed(&engine(&bench, &Arc::new(lost)).begin(&intent("k")).await));
    assert!(matches!(rejected(&engine(&bench, &truth), "k").await, Rejection::Contradicted { .. }));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_behind_a_reference_is_checked_under_every_key() {
    let (bench, truth) = (Bench::new(), Arc::new(Truth::saying(Says::Happened)));
    let engine = engine(&bench, &truth);
    let reference = BusinessReference::new("RF18", KnownReference::Replay).unwrap();
    let with = |key| Intent { reference: Some(reference.clone()), ..intent(key) };
    let Begin::Execute(permit) = engine.begin(&with("k")).await.unwrap() else {
        panic!("a permit")
    };
    let operation = permit.operation();
    let _durable = permit.complete(outcome("stored")).await;
    assert!(matches!(engine.begin(&with("k")).await.unwrap(), Begin::Replay(_)));
    assert_eq!(truth.asked(), 1, "the link is not asked about");
    *truth.says.lock() = Says::DidNotHappen;
    for key in ["k", "l"] {
        let begin = engine.begin(&with(key)).await.unwrap();
        let Begin::Reject(refused) = begin else { panic!("{begin:?}") };
        assert_eq!(refused, Rejection::Contradicted { operation }, "{key}");
    }
    // A key that was used before its operation had references.
    complete(&engine, "old").await;
    let begin = engine.begin(&with("old")).await.unwrap();
    assert!(matches!(begin, Begin::Reject(Rejection::Contradicted { .. })), "{begin:?}");
}

#[tokio::test(start_paused = true)]
async fn what_would_be_recalled_is_checked_too() {
    let store = Arc::new(onceward_core::MemoryStore::new());
    let truth = Arc::new(Truth::saying(Says::DidNotHappen));
    let recovery = Recovery::new(store.clone(), truth.clone());
    let policy = policy().replay_check(ReplayCheck::Resolver).build().unwrap();
    let unchecked = Engine::builder(store.clone()).recovery(recovery).build();
    let checked = unchecked.with_policy(policy);
    complete(&checked, "k").await;
    let record = Identity::unkeyed().record_id(&scope(), &intent("k").key);
    let recalled = |engine: &Engine| engine.recall(&record, &intent("k").fingerprint).is_some();
    assert_eq!((recalled(&unchecked), recalled(&checked)), (true, false));
}

#[tokio::test(start_paused = true)]
async fn work_does_not_run_again_for_a_contradiction() {
    let (bench, truth) = (Bench::new(), Arc::new(Truth::saying(Says::Happened)));
    let engine = engine(&bench, &truth);
    let runs = AtomicUsize::new(0);
    let run = async || {
        let work = async |_| Ok::<_, Failure<String>>(runs.fetch_add(1, Ordering::SeqCst));
        engine.run_inline(&intent("k"), work).await
    };
    assert!(!run().await.unwrap().replayed);
    assert!(run().await.unwrap().replayed);
    *truth.says.lock() = Says::DidNotHappen;
    let refused = run().await;
    let contradicted = matches!(refused, Err(RunError::Rejected(Rejection::Contradicted { .. })));
    assert!(contradicted, "{refused:?}");
    *truth.says.lock() = Says::Fails;
    let refused = run().await;
    let unconfirmed = matches!(refused, Err(RunError::Begin(BeginError::Unconfirmed { .. })));
    assert!(unconfirmed, "{refused:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(bench.standing("k").await, Some(StateName::Completed));
}
