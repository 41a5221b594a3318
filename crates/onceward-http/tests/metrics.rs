//! Each metric's exact line after the scenario that moves it.

mod common;

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use http::{Request, Response};
use http_body_util::Full;
use onceward_core::{
    Engine, Expiry, Finding, Identity, Intent, MemoryLimits, MemoryStore, OnLapse, Outcome, Policy,
    Purged, Rebuilder, Reconciler, Record, Recovery, RecoveryStatus, ReplayCheck, Resolver, Scope,
    Since, Sweeper, SweeperRound, SweeperSettings, SystemAmbient, Tag, Verdict,
};
use onceward_http::{
    Admission, Fate, LayerBuilder, Metrics, Mode, Observer, Onceward, OncewardLayer, Operation,
    OverQuota, ReferenceRules, Rules, Scoped, Sensitive, Source, StoreDown,
};
use onceward_testkit::faulty::{Call, Fault};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::sleep;

/// Metrics in a registry of their own.
struct Scraped {
    registry: Registry,
    metrics: Arc<Metrics>,
}

impl Scraped {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        Self { registry, metrics }
    }

    /// A layer with the operation `pay`.
    fn layer(&self, engine: Engine, rules: Rules) -> OncewardLayer {
        self.layer_with(engine, rules, |layer| layer)
    }

    fn layer_with(
        &self,
        engine: Engine,
        rules: Rules,
        more: impl FnOnce(LayerBuilder<Scoped>) -> LayerBuilder<Scoped>,
    ) -> OncewardLayer {
        let pay = Operation::post("/orders").named("pay").rules(rules);
        let layer = Onceward::layer(engine).single_tenant().operation(pay);
        more(layer).observer(self.metrics.clone()).build().unwrap()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    #[track_caller]
    fn has(&self, lines: &[&str]) {
        let text = self.text();
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line} is not in:\n{text}");
        }
    }
}

/// A handler that answers this status.
fn answering(
    status: u16,
) -> impl FnMut(Request<onceward_http::Body<Full<Bytes>>>) -> std::future::Ready<Handled>
+ Clone
+ Send
+ use<> {
    move |_| ready(ok(Response::builder().status(status), "answer"))
}

#[tokio::test]
async fn series_start_at_zero_when_the_layer_is_built() {
    let scraped = Scraped::new();
    let shadow = Rules { mode: Mode::Shadow, ..Rules::default() };
    scraped.layer_with(Bench::new().engine(), Rules::default(), |layer| {
        layer.operation(Operation::post("/tried").named("tried").rules(shadow))
    });
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="granted"} 0"#,
        r#"idempotency_claim_total{operation="POST *",status="store_full"} 0"#,
        r#"idempotency_existing_total{operation="pay",state="failed"} 0"#,
        r#"idempotency_finalize_total{operation="pay",status="stale"} 0"#,
        r#"idempotency_store_error_total{operation="pay",phase="finalize"} 0"#,
        r#"idempotency_recovery_total{operation="pay",status="failed"} 0"#,
        r#"idempotency_replay_total{operation="pay"} 0"#,
        r#"idempotency_conflict_total{operation="pay"} 0"#,
        r#"idempotency_in_progress_total{operation="pay"} 0"#,
        r#"idempotency_unknown_total{operation="pay"} 0"#,
        r#"idempotency_expired_total{operation="pay"} 0"#,
        r#"idempotency_over_quota_total{operation="pay"} 0"#,
        r#"idempotency_unprotected_total{operation="pay"} 0"#,
        r#"idempotency_shadow_total{operation="tried",would="unseen"} 0"#,
        r#"idempotency_shadow_mismatch_total{operation="tried",part="body"} 0"#,
        r#"idempotency_record_age_seconds{state="unknown"} 0"#,
        "onceward_cleanup_overdue_seconds 0",
        "onceward_archived_total 0",
    ]);
    assert!(!scraped.text().contains(r#"claim_total{operation="tried""#));
}

#[tokio::test]
async fn first_requests_replays_and_mismatches() {
    let scraped = Scraped::new();
    let layer = scraped.layer(Bench::new().engine(), Rules::default());
    for body in ["{}", "{}", "{}", r#"{"a":1}"#] {
        send(&layer, answering(201), post("k", body)).await;
    }
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="granted"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="replayed"} 2"#,
        r#"idempotency_claim_total{operation="pay",status="mismatch"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="completed"} 2"#,
        r#"idempotency_existing_total{operation="pay",state="mismatch"} 1"#,
        r#"idempotency_replay_total{operation="pay"} 2"#,
        r#"idempotency_conflict_total{operation="pay"} 1"#,
        r#"idempotency_finalize_total{operation="pay",status="kept"} 1"#,
    ]);
}

#[tokio::test]
async fn a_replayed_failure_is_failed_and_not_completed() {
    let scraped = Scraped::new();
    let layer = scraped.layer(Bench::new().engine(), Rules::default());
    for _ in 0..3 {
        assert_eq!(send(&layer, answering(402), post("k", "{}")).await.status(), 402);
    }
    scraped.has(&[
        r#"idempotency_existing_total{operation="pay",state="failed"} 2"#,
        r#"idempotency_existing_total{operation="pay",state="completed"} 0"#,
        r#"idempotency_replay_total{operation="pay"} 2"#,
    ]);
}

#[tokio::test]
async fn unknown_released_and_still_running() {
    let scraped = Scraped::new();
    let (bench, engine) = (Bench::new(), Engine::new(Arc::new(MemoryStore::new())));
    _ = bench;
    let layer = scraped.layer(engine.clone(), Rules::default());
    for _ in 0..2 {
        send(&layer, answering(500), post("unknown", "{}")).await;
    }
    let free = |_| ready(ok(Response::builder().status(503).extension(Fate::NothingHappened), ""));
    send(&layer, free, post("free", "{}")).await;
    let hanging = tokio::spawn({
        let layer = layer.clone();
        async move { send(&layer, |_| pending::<Handled>(), post("slow", "{}")).await }
    });
    sleep(Duration::from_millis(1_100)).await;
    send(&layer, answering(201), post("slow", "{}")).await;
    scraped.metrics.refresh(&engine);
    scraped.has(&[
        r#"idempotency_unknown_total{operation="pay"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="unknown"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="unknown"} 1"#,
        r#"idempotency_finalize_total{operation="pay",status="unknown"} 1"#,
        r#"idempotency_finalize_total{operation="pay",status="released"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="in_progress"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="running"} 1"#,
        r#"idempotency_in_progress_total{operation="pay"} 1"#,
        r#"idempotency_record_age_seconds{operation="pay",state="running"} 1"#,
        r#"idempotency_record_age_seconds{operation="POST *",state="running"} 0"#,
    ]);
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn expired_keys() {
    let scraped = Scraped::new();
    let rules = Rules {
        ttl: Some(Duration::from_secs(60)),
        expiry: Some(Expiry::Tombstone(Duration::from_secs(600))),
        ..Rules::default()
    };
    let layer = scraped.layer(Bench::new().engine(), rules);
    send(&layer, answering(201), post("k", "{}")).await;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(send(&layer, answering(201), post("k", "{}")).await.status(), 409);
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="expired"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="expired"} 1"#,
        r#"idempotency_expired_total{operation="pay"} 1"#,
    ]);
}

#[tokio::test]
async fn other_credentials_and_references_that_are_taken() {
    let scraped = Scraped::new();
    let rules = Rules {
        reference: Some(ReferenceRules::header(http::HeaderName::from_static("x-order"))),
        ..Rules::default()
    };
    let layer = scraped
        .layer_with(Bench::new().engine(), rules, |layer| layer.caller(Source::credentials()));
    let with = |key: &str, token: &'static str, order: &'static str, body: &str| {
        let mut request = post(key, body);
        request.headers_mut().insert("authorization", http::HeaderValue::from_static(token));
        request.headers_mut().insert("x-order", http::HeaderValue::from_static(order));
        request
    };
    send(&layer, answering(201), with("k", "Bearer a", "7", "{}")).await;
    let other = send(&layer, answering(201), with("k", "Bearer b", "7", "{}")).await;
    let taken = send(&layer, answering(201), with("l", "Bearer a", "7", r#"{"a":1}"#)).await;
    let codes = (code(&other), code(&taken));
    assert_eq!(codes.1, "BUSINESS_REFERENCE_TAKEN", "{codes:?}");
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="other_credentials"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="reference_taken"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="reference_taken"} 1"#,
        r#"idempotency_conflict_total{operation="pay"} 1"#,
    ]);
}

/// Refuses everyone.
struct Closed;

impl Admission for Closed {
    fn admit_new_key<'a>(
        &'a self,
        _: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), OverQuota>> + Send + 'a>> {
        let refused = OverQuota { retry_after: Duration::from_secs(1), limit: Cow::from("test") };
        Box::pin(ready(Err(refused)))
    }

    fn granted(&self, _: &Scope) {}

    fn stored(&self, _: &Scope, _: usize) {}
}

#[tokio::test]
async fn quotas() {
    let scraped = Scraped::new();
    let layer = scraped.layer_with(Bench::new().engine(), Rules::default(), |layer| {
        layer.admission(Arc::new(Closed))
    });
    assert_eq!(send(&layer, answering(201), post("k", "{}")).await.status(), 429);
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="over_quota"} 1"#,
        r#"idempotency_over_quota_total{operation="pay"} 1"#,
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_full_or_about_to_close() {
    let scraped = Scraped::new();
    let bench = Bench::new();
    let engine = bench.engine();
    let layer = scraped.layer(engine.clone(), Rules::default());
    bench.store.on_every(Call::Claim, Fault::Fail);
    send(&layer, answering(201), post("k", "{}")).await;
    let open = Rules { store_down: StoreDown::Open, ..Rules::default() };
    let unprotected = scraped.layer(engine.clone(), open);
    send(&unprotected, answering(201), post("k", "{}")).await;
    bench.store.heal();
    bench.store.on_every(Call::Settle, Fault::Fail);
    send(&layer, answering(201), post("k", "{}")).await;
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="store_down"} 2"#,
        r#"idempotency_store_error_total{operation="pay",phase="claim"} 2"#,
        r#"idempotency_unprotected_total{operation="pay"} 1"#,
        r#"idempotency_store_error_total{operation="pay",phase="finalize"} 1"#,
        r#"idempotency_finalize_total{operation="pay",status="pending"} 1"#,
    ]);
    bench.store.heal();
    sleep(Duration::from_secs(5)).await;
    engine.drain(Duration::ZERO).await;
    send(&layer, answering(201), post("late", "{}")).await;
    let limits = MemoryLimits { records_max: 0, ..MemoryLimits::default() };
    let full = MemoryStore::with(limits, Arc::new(SystemAmbient::new()));
    let layer = scraped.layer(Engine::new(Arc::new(full)), Rules::default());
    let refused = send(&layer, answering(201), post("k", "{}")).await;
    assert_eq!(code(&refused), "IDEMPOTENCY_STORE_FULL");
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="draining"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="store_full"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="store_down"} 2"#,
        r#"idempotency_store_error_total{operation="pay",phase="claim"} 2"#,
    ]);
}

#[tokio::test(start_paused = true)]
async fn settlements_that_come_too_late_or_find_no_record() {
    let scraped = Scraped::new();
    let bench = Bench::new();
    let engine = bench.engine();
    let rules = Rules { on_lapse: Some(OnLapse::Takeover), ..Rules::default() };
    let layer = scraped.layer(engine, rules);
    let (store, second) = (Arc::clone(&bench.store), layer.clone());
    // While it runs its lease lapses, and another request takes over.
    let paused = move |_| {
        let (store, second) = (Arc::clone(&store), second.clone());
        Box::pin(async move {
            store.on_every(Call::Renew, Fault::Fail);
            sleep(Duration::from_secs(60)).await;
            store.heal();
            assert_eq!(send(&second, answering(201), post("k", "{}")).await.status(), 201);
            ok(Response::builder().status(201), "late")
        })
            as Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>
    };
    send(&layer, paused, post("k", "{}")).await;
    let store = Arc::clone(&bench.store);
    let losing = move |_| {
        store.on_next(1, Call::Settle, Fault::LoseData);
        ready(ok(Response::builder().status(201), "lost"))
    };
    send(&layer, losing, post("l", "{}")).await;
    scraped.has(&[
        r#"idempotency_finalize_total{operation="pay",status="stale"} 1"#,
        r#"idempotency_finalize_total{operation="pay",status="missing"} 1"#,
    ]);
}

#[tokio::test]
async fn shadow_mode() {
    let scraped = Scraped::new();
    let rules = Rules { mode: Mode::Shadow, ..Rules::default() };
    let layer = scraped.layer(Bench::new().engine(), rules);
    let counter = Counter::default();
    for body in ["{}", "{}", r#"{"a":1}"#] {
        let reading = {
            let counter = counter.clone();
            move |request: Request<onceward_http::Body<Full<Bytes>>>| {
                let counter = counter.clone();
                Box::pin(async move {
                    use http_body_util::BodyExt;
                    request.into_body().collect().await.unwrap();
                    ok(Response::builder().status(201), counter.up().to_string())
                })
                    as Pin<
                        Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>,
                    >
            }
        };
        send(&layer, reading, post("k", body)).await;
        sleep(Duration::from_millis(50)).await;
    }
    scraped.has(&[
        r#"idempotency_shadow_total{operation="pay",would="execute"} 1"#,
        r#"idempotency_shadow_total{operation="pay",would="replay"} 1"#,
        r#"idempotency_shadow_total{operation="pay",would="mismatch"} 1"#,
        r#"idempotency_shadow_mismatch_total{operation="pay",part="body"} 1"#,
    ]);
}

/// A rebuilder that fails.
struct NoRebuild;

#[async_trait::async_trait]
impl Rebuilder for NoRebuild {
    async fn rebuild(&self, _: &Outcome) -> Result<Outcome, onceward_core::BoxError> {
        Err("gone".into())
    }
}

#[tokio::test]
async fn replies_that_cannot_be_rebuilt_are_no_failure_of_the_store() {
    let scraped = Scraped::new();
    let engine = Engine::builder(Arc::new(MemoryStore::new())).rebuilder(Arc::new(NoRebuild));
    let layer = scraped.layer(engine.build(), Rules::default());
    let secret = |_| {
        let response = Response::builder().status(201).extension(Sensitive::new("card", "17"));
        ready(ok(response, "secret"))
    };
    for _ in 0..2 {
        send(&layer, secret, post("k", "{}")).await;
    }
    scraped.has(&[
        r#"idempotency_claim_total{operation="pay",status="rebuild_failed"} 1"#,
        r#"idempotency_existing_total{operation="pay",state="completed"} 1"#,
        r#"idempotency_store_error_total{operation="pay",phase="claim"} 0"#,
    ]);
}

/// A resolver with one answer.
struct Fixed(Result<Verdict, &'static str>);

#[async_trait::async_trait]
impl Resolver for Fixed {
    async fn resolve(&self, _: &Record) -> Result<Finding, onceward_core::BoxError> {
        Ok(Finding::new(self.0.clone()?, "evidence"))
    }

    fn since(&self) -> Since {
        Since::Always
    }
}

#[tokio::test]
async fn questions_on_demand_by_the_reconciler_and_by_operators_count_alike() {
    let scraped = Scraped::new();
    let answers = [
        Err("down"),
        Ok(Verdict::StillUnknown),
        Ok(Verdict::DidNotHappen),
        Ok(Verdict::Happened(Outcome::omitted(Tag::from_static("test"), ""))),
    ];
    let store = Arc::new(MemoryStore::new());
    for answer in answers {
        let recovery = Recovery::new(store.clone(), Arc::new(Fixed(answer)));
        let recovery = recovery.observer(scraped.metrics.clone());
        let policy = Policy::builder().on_lapse(OnLapse::Resolve).build().unwrap();
        let engine = Engine::builder(store.clone()).recovery(recovery).policy(policy).build();
        let rules = Rules { on_lapse: Some(OnLapse::Resolve), ..Rules::default() };
        let layer = scraped.layer(engine, rules);
        for _ in 0..2 {
            send(&layer, answering(500), post("k", "{}")).await;
        }
    }
    scraped.has(&[
        r#"idempotency_recovery_total{operation="pay",status="failed"} 1"#,
        // The first request of the second layer is a retry of the first's, and so on.
        r#"idempotency_recovery_total{operation="pay",status="still_unknown"} 2"#,
        r#"idempotency_recovery_total{operation="pay",status="did_not_happen"} 2"#,
        r#"idempotency_recovery_total{operation="pay",status="happened"} 1"#,
        r#"idempotency_recovery_total{operation="pay",status="settled_elsewhere"} 0"#,
    ]);

    let layer = scraped.layer(Engine::new(store.clone()), Rules::default());
    send(&layer, answering(500), post("m", "{}")).await;
    let resolver = Arc::new(Fixed(Ok(Verdict::DidNotHappen)));
    let reconciler = Reconciler::new(store, resolver, Identity::unkeyed());
    let round = Arc::new(reconciler.observer(scraped.metrics.clone())).run_once().await;
    assert_eq!(round.did_not_happen, 1, "{round:?}");
    scraped.metrics.count_recovery("pay", RecoveryStatus::SettledElsewhere);
    scraped.metrics.set_oldest_unknown(Duration::from_secs(77));
    scraped.has(&[
        r#"idempotency_recovery_total{operation="pay",status="did_not_happen"} 3"#,
        r#"idempotency_recovery_total{operation="pay",status="settled_elsewhere"} 1"#,
        r#"idempotency_record_age_seconds{state="unknown"} 77"#,
    ]);
}

#[tokio::test]
async fn replays_that_the_source_of_truth_confirms_denies_or_does_not_know() {
    let scraped = Scraped::new();
    let store = Arc::new(MemoryStore::new());
    let happened = || Ok(Verdict::Happened(Outcome::omitted(Tag::from_static("test"), "")));
    let rules = Rules { replay_check: Some(ReplayCheck::Resolver), ..Rules::default() };
    let layer = |answer| {
        let recovery = Recovery::new(store.clone(), Arc::new(Fixed(answer)));
        let recovery = recovery.observer(scraped.metrics.clone());
        let engine = Engine::builder(store.clone()).recovery(recovery).build();
        scraped.layer(engine, rules.clone())
    };
    send(&layer(happened()), answering(201), post("k", "{}")).await;
    scraped.has(&[r#"idempotency_replay_check_total{operation="pay",status="contradicted"} 0"#]);
    let answers = [happened(), Ok(Verdict::DidNotHappen), Ok(Verdict::StillUnknown), Err("down")];
    for answer in answers {
        send(&layer(answer), answering(201), post("k", "{}")).await;
    }
    scraped.has(&[
        r#"idempotency_replay_check_total{operation="pay",status="confirmed"} 1"#,
        r#"idempotency_replay_check_total{operation="pay",status="contradicted"} 1"#,
        r#"idempotency_replay_check_total{operation="pay",status="unconfirmed"} 2"#,
        r#"idempotency_claim_total{operation="pay",status="replayed"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="contradicted"} 1"#,
        r#"idempotency_claim_total{operation="pay",status="unconfirmed"} 2"#,
        r#"idempotency_existing_total{operation="pay",state="completed"} 4"#,
        r#"idempotency_replay_total{operation="pay"} 1"#,
        r#"idempotency_store_error_total{operation="pay",phase="claim"} 0"#,
        r#"idempotency_recovery_total{operation="pay",status="happened"} 0"#,
    ]);
}

#[tokio::test]
async fn a_cleanup_is_overdue_until_a_round_is_complete() {
    let scraped = Scraped::new();
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let report = scraped.metrics.sweeper_report(Duration::from_millis(1));
    std::thread::sleep(Duration::from_millis(1_101));
    report(&SweeperRound::ClockJumped { by: Duration::from_secs(99) });
    scraped.metrics.refresh(&engine);
    scraped.has(&["onceward_cleanup_overdue_seconds 1"]);
    report(&SweeperRound::Removed(Purged::default()));
    scraped.metrics.refresh(&engine);
    scraped.has(&["onceward_cleanup_overdue_seconds 0"]);
    // As a sweeper has it.
    let settings = SweeperSettings { every: Duration::from_millis(1), ..Default::default() };
    let sweeper = Sweeper::new(Arc::new(MemoryStore::new()), Arc::new(SystemAmbient::new()));
    drop(sweeper.settings(settings).report(report));
}

#[tokio::test]
async fn archived_records_are_counted_and_a_round_without_an_archive_is_overdue() {
    let scraped = Scraped::new();
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let report = scraped.metrics.sweeper_report(Duration::from_millis(1));
    scraped.metrics.count_archived(40);
    scraped.metrics.count_archived(2);
    scraped.has(&["onceward_archived_total 42"]);
    std::thread::sleep(Duration::from_millis(1_101));
    let full = onceward_core::ArchiveError::new("no space left on device");
    report(&SweeperRound::NotArchived(full.into()));
    scraped.metrics.refresh(&engine);
    scraped.has(&["onceward_cleanup_overdue_seconds 1"]);
}

#[tokio::test]
async fn operations_beyond_the_limit_share_their_series() {
    let scraped = Scraped::new();
    for number in 0..1_100 {
        scraped.metrics.observe(&format!("op {number}"), onceward_http::Event::Granted);
    }
    scraped.has(&[
        r#"idempotency_claim_total{operation="op 999",status="granted"} 1"#,
        r#"idempotency_claim_total{operation="other",status="granted"} 100"#,
    ]);
}
