//! Running typed work once: what callers see, and what is stored.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::common::*;
use async_trait::async_trait;
use onceward_core::{
    Begin, BoxError, Disposition, Done, Engine, Failure, Finding, Grant, OnLapse, Outcome,
    Rebuilder, Record, Recovery, Refused, Rejection, Resolver, RunError, Settled, State, StateName,
    Tag, UnknownCause, Verdict,
};
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::{sleep, timeout};
use tracing::span::{Attributes, Id};
use tracing::{Event, Instrument as _, Metadata, Subscriber};
use tracing_core::span::Current;

type Result<T> = std::result::Result<Done<T>, RunError<String>>;

/// Work that counts how often it ran.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn ran(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    async fn run<T>(
        &self,
        engine: &Engine,
        key: &str,
        result: std::result::Result<T, Failure<String>>,
    ) -> Result<T>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
    {
        let counter = Arc::clone(&self.0);
        let work = async move |_: Grant| {
            counter.fetch_add(1, Ordering::SeqCst);
            result
        };
        engine.run(&intent(key), work).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_first_value_and_runs_nothing() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    let first = work.run(&engine, "k", Ok(17)).await.unwrap();
    let retry = work.run(&engine, "k", Ok(99)).await.unwrap();
    assert_eq!((first.value, first.replayed, first.settled), (17, false, Settled::Durable));
    assert_eq!((retry.value, retry.replayed), (17, true));
    assert_eq!((retry.operation, work.ran()), (first.operation, 1));
}

#[tokio::test(start_paused = true)]
async fn a_kept_failure_is_the_outcome() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    for replay in [false, true] {
        let failed = work.run::<()>(&engine, "k", Err(Failure::Keep("no funds".into()))).await;
        match failed.unwrap_err() {
            RunError::Failed { error, replayed, .. } => {
                assert_eq!((error.as_str(), replayed), ("no funds", replay));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(work.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_failure_runs_again() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    let failed = work.run(&engine, "k", Err::<u8, _>(Failure::Release("busy".into()))).await;
    assert!(matches!(failed, Err(RunError::Released { error }) if error == "busy"));
    assert_eq!(work.run(&engine, "k", Ok(1)).await.unwrap().value, 1);
    assert_eq!(work.ran(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_failure_is_never_run_again_blindly() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    let failed = work.run(&engine, "k", Err::<u8, _>(Failure::Unknown("timeout".into()))).await;
    assert!(matches!(failed, Err(RunError::Unknown { error: Some(it), .. }) if it == "timeout"));
    let retry = work.run(&engine, "k", Ok(1)).await;
    assert!(matches!(retry, Err(RunError::Unknown { error: None, .. })));
    assert_eq!(work.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_decides_about_plain_errors() {
    let bench = Bench::new();
    for (key, disposition, standing) in [
        ("kept", Disposition::Keep, StateName::Failed),
        ("released", Disposition::Release, StateName::Released),
        ("unknown", Disposition::Unknown, StateName::Unknown),
    ] {
        let engine = bench.engine_with(policy().failures(disposition));
        let question_mark = async |_: Grant| -> std::result::Result<(), Failure<String>> {
            Err("plain".to_owned())?;
            Ok(())
        };
        assert!(engine.run(&intent(key), question_mark).await.is_err());
        assert_eq!(bench.standing(key).await, Some(standing), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_the_outcome_unknown() {
    let bench = Bench::new();
    let engine = bench.engine();
    let work = async |_: Grant| -> std::result::Result<(), Failure<String>> { panic!("boom") };
    let failed = engine.run(&intent("k"), work).await;
    assert!(matches!(failed, Err(RunError::Unknown { error: None, .. })));
    settle_down().await;
    let panicked = State::Unknown { cause: UnknownCause::Panicked };
    assert_eq!(bench.record("k").await.unwrap().state, panicked);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_cancel_the_work() {
    let bench = Bench::new();
    let engine = bench.engine();
    let slow = async |_: Grant| -> std::result::Result<u8, Failure<String>> {
        sleep(Duration::from_secs(5)).await;
        Ok(7)
    };
    let hung_up = timeout(Duration::from_secs(1), engine.run(&intent("k"), slow)).await;
    assert!(hung_up.is_err());
    sleep(Duration::from_secs(10)).await;
    let retry = Counter::default();
    let replay = retry.run(&engine, "k", Ok(99)).await.unwrap();
    assert_eq!((replay.value, replay.replayed, retry.ran()), (7, true, 0));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_not_stored_yet_is_returned_and_said_to_be_pending() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    bench.store.on_every(Call::Settle, Fault::Fail);
    let done = work.run(&engine, "k", Ok(1)).await.unwrap();
    assert_eq!((done.value, done.settled), (1, Settled::Pending));
    // Where the next owner may take over, a result that is not stored is no outcome.
    let engine = bench.engine_with(policy().on_lapse(OnLapse::Takeover));
    let pending = work.run(&engine, "other", Ok(1)).await;
    assert!(matches!(pending, Err(RunError::Unknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_told_and_not_run_again() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    work.run(&engine, "k", Ok("text".to_owned())).await.unwrap();
    let retry = work.run(&engine, "k", Ok(1u8)).await;
    assert!(matches!(retry, Err(RunError::Unreadable { .. })), "{retry:?}");
    assert_eq!(work.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_request_under_the_key_is_rejected() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    work.run(&engine, "k", Ok(1)).await.unwrap();
    let other = async |_: Grant| -> std::result::Result<u8, Failure<String>> { Ok(2) };
    let refused = engine.run(&other_request("k"), other).await;
    assert!(matches!(refused, Err(RunError::Rejected(Rejection::Mismatch { .. }))));
}

/// A subscriber with one span, which knows whether the thread is in it.
#[derive(Clone, Default)]
struct OneSpan {
    inside: Arc<AtomicBool>,
    metadata: Arc<OnceLock<&'static Metadata<'static>>>,
}

impl Subscriber for OneSpan {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.metadata.get_or_init(|| span.metadata());
        Id::from_u64(1)
    }
    fn current_span(&self) -> Current {
        match self.metadata.get() {
            Some(metadata) if self.inside.load(Ordering::SeqCst) => {
                Current::new(Id::from_u64(1), metadata)
            }
            _ => Current::none(),
        }
    }
    fn enter(&self, _: &Id) {
        self.inside.store(true, Ordering::SeqCst);
    }
    fn exit(&self, _: &Id) {
        self.inside.store(false, Ordering::SeqCst);
    }
    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

#[tokio::test(start_paused = true)]
async fn work_in_a_task_of_its_own_stays_in_the_callers_span() {
    let spans = OneSpan::default();
    let _here = tracing::subscriber::set_default(spans.clone());
    let (engine, inside) = (Bench::new().engine(), Arc::clone(&spans.inside));
    let work = async move |_: Grant| -> std::result::Result<bool, Failure<String>> {
        tokio::task::yield_now().await;
        Ok(inside.load(Ordering::SeqCst))
    };
    let call = async { engine.run(&intent("k"), work).await };
    let done = call.instrument(tracing::info_span!("caller")).await.unwrap();
    assert!(done.value);
}

// In the caller's own task ------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn inline_work_may_borrow_and_runs_once() {
    let bench = Bench::new();
    let engine = bench.engine();
    let mut log = Vec::new();
    for replayed in [false, true] {
        let work = async |grant: Grant| -> std::result::Result<u32, Failure<String>> {
            log.push(grant.attempt());
            Ok(7)
        };
        let done = engine.run_inline(&intent("k"), work).await.unwrap();
        assert_eq!((done.value, done.replayed), (7, replayed));
    }
    assert_eq!(log, [1]);
}

#[tokio::test(start_paused = true)]
async fn inline_work_whose_caller_goes_away_is_dropped_and_its_outcome_unknown() {
    let bench = Bench::new();
    let engine = bench.engine();
    let finished = AtomicUsize::new(0);
    let slow = async |_: Grant| -> std::result::Result<(), Failure<String>> {
        sleep(Duration::from_secs(5)).await;
        finished.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let hung_up = timeout(Duration::from_secs(1), engine.run_inline(&intent("k"), slow)).await;
    assert!(hung_up.is_err());
    settle_down().await;
    assert_eq!(bench.standing("k").await, Some(StateName::Unknown));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(finished.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_inline_work_goes_on_and_leaves_the_outcome_unknown() {
    let bench = Bench::new();
    let engine = bench.engine();
    let work = async |_: Grant| -> std::result::Result<(), Failure<String>> { panic!("boom") };
    let running = tokio::spawn(async move { engine.run_inline(&intent("k"), work).await });
    assert!(running.await.unwrap_err().is_panic());
    settle_down().await;
    assert_eq!(bench.standing("k").await, Some(StateName::Unknown));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_works_own_error_is_a_refusal_that_tells_what_to_do() {
    let (bench, work) = (Bench::new(), Counter::default());
    let engine = bench.engine();
    let own = work.run::<u8>(&engine, "own", Err(Failure::Unknown("lost".into()))).await;
    let own = own.unwrap_err().into_work_error();
    assert!(matches!(own, Ok(error) if error == "lost"));

    let unknown = work.run::<u8>(&engine, "own", Ok(1)).await.unwrap_err();
    let unknown = unknown.into_work_error().unwrap_err();
    assert!(matches!(unknown, Refused::Unknown { .. }) && !unknown.is_retryable());
    assert!(unknown.operation().is_some());

    let running = permit(&engine, "running").await;
    let busy = work.run::<u8>(&engine, "running", Ok(1)).await.unwrap_err();
    let busy = busy.into_work_error().unwrap_err();
    assert!(busy.is_retryable() && busy.retry_after().is_some());
    assert_eq!(busy.operation(), Some(running.operation()));
}

// Finding out -------------------------------------------------------------------------------

/// An authority with a fixed answer.
struct Authority(fn() -> std::result::Result<Verdict, BoxError>);

#[async_trait]
impl Resolver for Authority {
    async fn resolve(&self, _: &Record) -> std::result::Result<Finding, BoxError> {
        (self.0)().map(Finding::from)
    }
}

fn resolving(bench: &Bench, word: fn() -> std::result::Result<Verdict, BoxError>) -> Engine {
    let recovery = Recovery::new(bench.store.clone(), Arc::new(Authority(word)));
    Engine::builder(bench.store.clone())
        .policy(policy().on_lapse(OnLapse::Resolve).build().unwrap())
        .recovery(recovery)
        .build()
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_looked_up_and_replayed() {
    let bench = Bench::new();
    let engine = resolving(&bench, || Ok(Verdict::Happened(outcome("found"))));
    drop(permit(&engine, "k").await);
    settle_down().await;
    assert_eq!(replayed(&engine, "k").await, outcome("found"));
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_is_run_at_last() {
    let bench = Bench::new();
    let engine = resolving(&bench, || Ok(Verdict::DidNotHappen));
    drop(permit(&engine, "k").await);
    settle_down().await;
    assert_eq!(permit(&engine, "k").await.attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_fails_changes_nothing() {
    let bench = Bench::new();
    let engine = resolving(&bench, || Err("provider is down".into()));
    drop(permit(&engine, "k").await);
    settle_down().await;
    assert!(matches!(rejected(&engine, "k").await, Rejection::Unknown { .. }));
}

/// A rebuilder.
struct Books;

#[async_trait]
impl Rebuilder for Books {
    async fn rebuild(&self, reference: &Outcome) -> std::result::Result<Outcome, BoxError> {
        let id = std::str::from_utf8(&reference.bytes)?;
        Ok(outcome(&format!("the current state of {id}")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reference_is_rebuilt_at_each_replay() {
    let bench = Bench::new();
    let engine = Engine::builder(bench.store.clone()).rebuilder(Arc::new(Books)).build();
    let reference = Outcome::reference(Tag::from_static("ref/v1"), "pay_7");
    let _durable = permit(&engine, "k").await.complete(reference).await;
    assert_eq!(replayed(&engine, "k").await, outcome("the current state of pay_7"));
}

#[tokio::test]
async fn a_reference_is_rebuilt_also_where_the_store_recalls_it_at_once() {
    let store = Arc::new(onceward_core::MemoryStore::new());
    let engine = Engine::builder(store).rebuilder(Arc::new(Books)).build();
    let reference = Outcome::reference(Tag::from_static("ref/v1"), "pay_7");
    let _durable = permit(&engine, "k").await.complete(reference).await;
    assert_eq!(engine.recall(&id("k"), &intent("k").fingerprint), None);
    assert_eq!(replayed(&engine, "k").await, outcome("the current state of pay_7"));
}

#[tokio::test(start_paused = true)]
async fn keys_that_expired_are_told_apart_from_new_ones() {
    use onceward_core::Expiry;
    let bench = Bench::new();
    let day = Duration::from_secs(24 * 3600);
    let engine = bench.engine_with(policy().expiry(Expiry::Tombstone(day)));
    let _durable = permit(&engine, "k").await.complete(outcome("done")).await;
    sleep(day + LEASE).await;
    assert_eq!(rejected(&engine, "k").await, Rejection::Expired);
    sleep(day).await;
    assert!(matches!(engine.begin(&intent("k")).await.unwrap(), Begin::Execute(_)));
}

/// Two duplicates find the outcome unknown. When the second reads the record, the first has freed
/// the key and a new owner runs: the resolver must not be asked about that one.
#[tokio::test(start_paused = true)]
async fn a_resolver_is_not_asked_about_what_runs() {
    let bench = Bench::new();
    let asked = Arc::new(AtomicUsize::new(0));
    struct Counting(Arc<AtomicUsize>);
    #[async_trait]
    impl Resolver for Counting {
        async fn resolve(&self, _: &Record) -> std::result::Result<Finding, BoxError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Verdict::DidNotHappen.into())
        }
    }
    let recovery = Recovery::new(bench.store.clone(), Arc::new(Counting(Arc::clone(&asked))));
    let engine = Engine::builder(bench.store.clone())
        .policy(policy().on_lapse(OnLapse::Resolve).build().unwrap())
        .recovery(recovery)
        .build();
    drop(permit(&engine, "k").await);
    settle_down().await;
    // The second one reads the record slowly.
    bench.store.on_nth(1, Call::Admin, Fault::Delay(Duration::from_millis(500)));
    let second = tokio::spawn({
        let engine = engine.clone();
        async move { rejected(&engine, "k").await }
    });
    settle_down().await;
    let running = permit(&engine, "k").await;
    assert!(matches!(second.await.unwrap(), Rejection::Running { .. }));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(running.check(), Ok(()));
}
