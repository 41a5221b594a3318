//! The black-box suite against the layer: around plain hyper and around axum, over HTTP/1.1
//! and HTTP/2, on a store that fails on demand.

mod common;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use common::authenticated;
use futures_util::future::join_all;
use http::{HeaderName, Request};
use hyper::body::Incoming;
use onceward_core::{Disposition, Engine, Expiry, OnLapse, Policy};
use onceward_http::{
    InProgress, KeySyntax, Onceward, OncewardLayer, OutcomeMap, Outcomes, ReplayRules,
    ReplayStatus, Rules, Source,
};
use onceward_testkit::clock::ManualClock;
use onceward_testkit::faulty::FaultyStore;
use onceward_testkit::http as expected;
use onceward_testkit::http::fixture::Fixture;
use onceward_testkit::http::server::{Handle, MortalServer, Server};
use onceward_testkit::http::{
    Case, Expectations, KeyRule, Protocol, StoreControls, Target, Verdict, burst, hang_up_at, run,
    shown_by_none,
};
use tower_layer::Layer;

/// A store that outlives its servers, and the service behind them.
#[derive(Clone)]
struct World {
    store: Arc<FaultyStore>,
    clock: ManualClock,
    fixture: Fixture,
    rules: Rules,
}

impl World {
    fn new() -> Self {
        Self::with(Rules { required: true, ..Rules::default() })
    }

    fn with(rules: Rules) -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(FaultyStore::over_memory(clock.clone()));
        Self { store, clock, fixture: Fixture::new(), rules }
    }

    /// A layer with its own engine, like each run of a server.
    fn layer(&self) -> OncewardLayer {
        let impatient = Policy::builder().settle_wait(Duration::from_millis(300)).build().unwrap();
        let engine = Engine::builder(self.store.clone()).policy(impatient).build();
        Onceward::layer(engine)
            .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
            .caller(Source::header(HeaderName::from_static("x-caller")))
            .others(self.rules.clone())
            .build()
            .unwrap()
    }

    fn hyper(&self) -> impl Handle + use<> {
        let fixture = self.fixture.clone();
        let service = self.layer().layer(tower::service_fn(move |request: Request<_>| {
            let fixture = fixture.clone();
            async move { Ok::<_, Infallible>(fixture.call(request).await) }
        }));
        move |request: Request<Incoming>| authenticated(request, service.clone())
    }

    fn axum(&self) -> impl Handle + use<> {
        let fixture = self.fixture.clone();
        let handle = any(move |request: axum::extract::Request| async move {
            fixture.call(request).await.map(axum::body::Body::new)
        });
        let router = Router::new()
            .route("/orders", handle.clone())
            .route("/orders/{id}", handle.clone())
            .route("/orders/{id}/pay", handle.clone())
            .route("/_probe/{token}", handle)
            .layer(self.layer());
        move |request: Request<Incoming>| authenticated(request, router.clone())
    }

    /// A server that can crash, as the suite's target.
    fn serve<H: Handle>(
        &self,
        name: &str,
        protocol: Protocol,
        handler: impl Fn(&World) -> H + Send + Sync + 'static,
    ) -> Target {
        let world = self.clone();
        let server = Arc::new(MortalServer::start(protocol, move || handler(&world)).unwrap());
        let mut target = Target::onceward(server.base()).over(protocol);
        target.name = format!("{name}, memory");
        let controls = StoreControls::new(self.store.clone(), self.clock.clone());
        target.controlled(Arc::new(controls.crashing_by(move || {
            let server = Arc::clone(&server);
            async move { server.crash().await }
        })))
    }
}

/// Servers with other settings, each a target with its own expectations; and the second node of one of
/// them.
fn switched() -> (Vec<Target>, Server) {
    let mut targets = Vec::new();
    let wait = Duration::from_secs(2);
    let world = World::with(Rules {
        in_progress: InProgress::Wait(wait),
        request_max_bytes: 64 * 1024,
        expiry: Some(Expiry::Tombstone(Duration::from_secs(30 * 24 * 3600))),
        ..Rules::default()
    });
    let peer = Server::start(Protocol::Http1, world.hyper()).unwrap();
    let mut target = world.serve("waiting, optional key", Protocol::Http1, World::hyper);
    target.peer = Some(peer.base());
    target.bad_tenant = Some(vec![
        ("X-Tenant-ID".into(), "no-uuid".into()),
        ("X-Caller".into(), "alice".into()),
        ("Authorization".into(), "Bearer alice".into()),
    ]);
    target.expects = Expectations {
        key: KeyRule::Optional,
        in_progress: expected::InProgress::Wait(wait),
        request_bytes_max: Some(64 * 1024),
        expiry: expected::Expiry::Tombstone,
        ..Expectations::default()
    };
    targets.push(target);

    let mut rules = Rules { required: true, on_lapse: Some(OnLapse::Takeover), ..Rules::default() };
    rules.key.syntax = KeySyntax::SfString;
    rules.mismatch_status = http::StatusCode::CONFLICT;
    rules.replay = ReplayRules { status: ReplayStatus::Ok, ..ReplayRules::default() };
    rules.outcomes = Outcomes::Custom(OutcomeMap::default().class(5, Disposition::Release));
    let world = World::with(rules);
    let mut target = world.serve("strict, takeover", Protocol::Http1, World::axum);
    target.expects.key_syntax = expected::KeySyntax::SfString;
    target.expects.mismatch = expected::Mismatch::Refused(409);
    target.expects.replay_status = expected::ReplayStatus::Ok;
    target.expects.server_errors = expected::ServerErrors::Released;
    target.expects.lapse = expected::Lapse::Takeover;
    targets.push(target);

    let rules = Rules { required: true, in_progress: InProgress::Accepted, ..Rules::default() };
    let world = World::with(rules);
    let mut target = world.serve("accepting", Protocol::Http2, World::axum);
    target.expects.in_progress = expected::InProgress::Accepted;
    targets.push(target);
    (targets, peer)
}

/// Cases that need a gateway's upstream or its quotas.
const NEED_A_GATEWAY: &[&str] = &[
    "a_key_flood_is_429",
    "a_refused_upstream_frees_the_key",
    "a_reset_upstream_is_unknown",
    "a_silent_upstream_is_unknown",
];

/// Servers with the default settings.
fn plain() -> Vec<Target> {
    let protocols = [Protocol::Http1, Protocol::Http2];
    let hyper = protocols.map(|it| World::new().serve("hyper", it, World::hyper));
    let axum = protocols.map(|it| World::new().serve("axum", it, World::axum));
    hyper.into_iter().chain(axum).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hyper_and_axum_keep_the_protocol_with_every_switch_over_http_1_and_http_2() {
    let (switched, _second_node) = switched();
    let targets: Vec<Target> = plain().into_iter().chain(switched).collect();
    let reports = join_all(targets.iter().map(|target| run(target, None))).await;
    assert_eq!(shown_by_none(&reports), NEED_A_GATEWAY);
}

/// Runs one case of the suite against a server on all cores.
async fn holds(protocol: Protocol, case: impl AsyncFn(&Case) -> Verdict) {
    let world = World::new();
    let server = Server::start(protocol, world.hyper()).unwrap();
    let target = Target::onceward(server.base()).over(protocol);
    let verdict = case(&Case::new(&target, "by itself")).await;
    assert!(verdict.is_ok(), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_twenty_concurrent_requests_executes_a_hundred_times_in_a_row() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        holds(protocol, async |case| burst(case, 20, 100).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_five_hundred_concurrent_requests_executes_a_hundred_times_in_a_row() {
    holds(Protocol::Http1, async |case| burst(case, 500, 100).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_at_any_point_leaves_one_execution_and_the_retry_replays() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for point in (0..=200).step_by(20).map(Duration::from_millis) {
            holds(protocol, async |case| hang_up_at(case, point).await).await;
        }
    }
}
