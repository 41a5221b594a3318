//! Replays that the source of truth has to confirm, over HTTP.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use common::*;
use http::{Request, Response};
use http_body_util::Full;
use onceward_core::{
    BoxError, Engine, Finding, MemoryStore, Outcome, Record, Recovery, ReplayCheck, Resolver,
    Since, Tag, Verdict,
};
use onceward_http::{InProgress, Mode, Onceward, OncewardLayer, Operation, Rules, StoreDown};
use onceward_testkit::faulty::{Call, Fault};
use parking_lot::Mutex;
use tokio::time::sleep;

/// A source of truth with one answer; `None` if it cannot be reached.
struct Truth {
    says: Mutex<Option<Verdict>>,
    asked: AtomicUsize,
}

impl Truth {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn now_says(&self, verdict: Option<Verdict>) {
        *self.says.lock() = verdict;
    }
}

#[async_trait]
impl Resolver for Truth {
    async fn resolve(&self, _: &Record) -> Result<Finding, BoxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.says.lock().clone().ok_or("connection refused")?.into())
    }

    fn since(&self) -> Since {
        Since::Always
    }
}

fn happened() -> Option<Verdict> {
    Some(Verdict::Happened(Outcome::omitted(Tag::from_static("test"), "")))
}

fn truth(says: Option<Verdict>) -> Arc<Truth> {
    Arc::new(Truth { says: Mutex::new(says), asked: AtomicUsize::new(0) })
}

fn checking() -> Rules {
    let retry_after = Some(Duration::from_secs(7));
    Rules { replay_check: Some(ReplayCheck::Resolver), retry_after, ..Rules::default() }
}

/// A layer with the operation `pay`, whose replays are checked.
fn layer(bench: &Bench, truth: &Arc<Truth>, rules: Rules) -> OncewardLayer {
    let recovery = Recovery::new(bench.store.clone(), truth.clone());
    let engine = Engine::builder(bench.store.clone()).recovery(recovery).build();
    let pay = Operation::post("/orders").named("pay").rules(rules);
    Onceward::layer(engine).single_tenant().operation(pay).build().unwrap()
}

const CONTRADICTED: &str = "IDEMPOTENCY_OUTCOME_CONTRADICTED";
const UNCONFIRMED: &str = "IDEMPOTENCY_OUTCOME_UNCONFIRMED";

#[tokio::test]
async fn a_retry_gets_the_stored_response_only_while_the_source_of_truth_confirms_it() {
    let (bench, counter, truth) = (Bench::new(), Counter::default(), truth(happened()));
    let layer = layer(&bench, &truth, checking());
    let ask = async || send(&layer, counting(&counter), post("k", "{}")).await;
    let first = ask().await;
    assert_eq!(truth.asked(), 0, "a first request asks nothing");
    let again = ask().await;
    assert_eq!((again.status(), again.body()), (first.status(), first.body()));
    assert!(is_replay(&again));

    truth.now_says(Some(Verdict::DidNotHappen));
    let refused = ask().await;
    assert_eq!((refused.status().as_u16(), &*code(&refused)), (409, CONTRADICTED));
    let problem = json(&refused);
    assert_eq!((&problem["retryable"], &problem["same_key"]), (&false.into(), &true.into()));
    assert!(problem["operation_id"].is_string(), "what an operator looks at");
    assert!(!refused.headers().contains_key("retry-after"));

    for says in [Some(Verdict::StillUnknown), None] {
        truth.now_says(says);
        let refused = ask().await;
        assert_eq!((refused.status().as_u16(), &*code(&refused)), (503, UNCONFIRMED));
        assert_eq!(refused.headers()["retry-after"], "7");
        let problem = json(&refused);
        assert_eq!((&problem["retryable"], &problem["same_key"]), (&true.into(), &true.into()));
    }
    truth.now_says(happened());
    assert!(is_replay(&ask().await));
    assert_eq!((counter.executions(), truth.asked()), (1, 5), "one question for each retry");
}

#[tokio::test]
async fn a_kept_failure_is_replayed_unchecked() {
    let (bench, truth) = (Bench::new(), truth(Some(Verdict::DidNotHappen)));
    let layer = layer(&bench, &truth, checking());
    let declined = |_| std::future::ready(ok(Response::builder().status(402), "declined"));
    send(&layer, declined, post("k", "{}")).await;
    let again = send(&layer, declined, post("k", "{}")).await;
    assert_eq!((again.status().as_u16(), is_replay(&again), truth.asked()), (402, true, 0));
}

/// The store answers the claim with a replay, and fails when the record is read for the check.
#[tokio::test]
async fn a_store_that_fails_open_does_not_run_a_completed_operation_again() {
    let (bench, counter, truth) = (Bench::new(), Counter::default(), truth(happened()));
    let layer = layer(&bench, &truth, Rules { store_down: StoreDown::Open, ..checking() });
    send(&layer, counting(&counter), post("k", "{}")).await;
    bench.store.on_every(Call::Admin, Fault::Fail);
    let refused = send(&layer, counting(&counter), post("k", "{}")).await;
    assert_eq!((code(&refused), counter.executions()), (UNCONFIRMED.into(), 1));
}

/// On a store that recalls outcomes, exact repetitions are replayed without the engine.
#[tokio::test]
async fn an_exact_repetition_is_checked_too() {
    let (store, truth) = (Arc::new(MemoryStore::new()), truth(happened()));
    let recovery = Recovery::new(store.clone(), truth.clone());
    let engine = Engine::builder(store).recovery(recovery).build();
    let layer = Onceward::layer(engine).single_tenant().others(checking()).build().unwrap();
    let counter = Counter::default();
    for _ in 0..3 {
        send(&layer, counting(&counter), post("k", "{}")).await;
    }
    assert_eq!(truth.asked(), 2);
    truth.now_says(Some(Verdict::DidNotHappen));
    assert_eq!(code(&send(&layer, counting(&counter), post("k", "{}")).await), CONTRADICTED);
    assert_eq!(counter.executions(), 1);
}

/// A change of the setting, as by a reload: nothing that was cached before passes by the check.
#[tokio::test]
async fn switching_the_check_on_holds_for_what_was_stored_and_replayed_before() {
    let (bench, counter, truth) = (Bench::new(), Counter::default(), truth(happened()));
    let before = layer(&bench, &truth, Rules::default());
    for _ in 0..3 {
        send(&before, counting(&counter), post("k", "{}")).await;
    }
    assert_eq!(truth.asked(), 0);
    truth.now_says(Some(Verdict::DidNotHappen));
    let after = layer(&bench, &truth, checking());
    assert_eq!(code(&send(&after, counting(&counter), post("k", "{}")).await), CONTRADICTED);
    assert_eq!(counter.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_page_gives_the_response_only_as_a_retry_gets_it() {
    let (bench, truth) = (Bench::new(), truth(happened()));
    let layer = layer(&bench, &truth, Rules { in_progress: InProgress::Accepted, ..checking() });
    let slow = |_| async {
        sleep(Duration::from_secs(1)).await;
        ok(Response::builder().status(201), "paid")
    };
    let (_, accepted) = tokio::join!(send(&layer, slow, post("k", "{}")), async {
        sleep(Duration::from_millis(10)).await;
        send(&layer, slow, post("k", "{}")).await
    });
    let page = accepted.headers()["location"].to_str().unwrap().to_owned();
    let result = async || {
        let request = Request::get(format!("{page}/result")).body(Full::<Bytes>::default());
        send(&layer, slow, request.unwrap()).await
    };
    assert_eq!(result().await.body(), "paid");
    truth.now_says(Some(Verdict::DidNotHappen));
    assert_eq!(code(&result().await), CONTRADICTED);
    truth.now_says(None);
    let unconfirmed = result().await;
    assert_eq!(code(&unconfirmed), UNCONFIRMED);
    assert_eq!(unconfirmed.headers()["retry-after"], "7");
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_asks_nothing() {
    let (bench, counter, truth) = (Bench::new(), Counter::default(), truth(happened()));
    let layer = layer(&bench, &truth, Rules { mode: Mode::Shadow, ..checking() });
    for _ in 0..3 {
        send(&layer, counting(&counter), post("k", "{}")).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((counter.executions(), truth.asked()), (3, 0));
}

#[test]
fn a_check_without_a_resolver_does_not_build() {
    let layer = Onceward::layer(Bench::new().engine()).single_tenant().others(checking());
    let refused = layer.build().unwrap_err().to_string();
    assert!(refused.contains("replay_check needs a resolver"), "{refused}");
}
