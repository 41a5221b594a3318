//! The black-box suite against axum with handlers in transactions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http::{HeaderName, StatusCode};
use hyper::body::Incoming;
use onceward_core::{Engine, Policy, StateName, StoreAdmin as _};
use onceward_http::{InProgress, Onceward, PgTransaction, Rules, Source};
use onceward_services::Server as Database;
use onceward_stores::postgres::{PostgresStore, Settings};
use onceward_testkit::http as expected;
use onceward_testkit::http::fixture::Fixture;
use onceward_testkit::http::server::{Handle, MortalServer, Server};
use onceward_testkit::http::{
    Controls, KeyRule, Lapse, NotOffered, Protocol, Report, Target, Trouble, run, shown_by_none,
};
use onceward_testkit::proxy::Proxy;
use tokio::sync::OnceCell;

use super::common::authenticated;
use super::shop::{plain, settings, shared};

/// How long the store may take, so that 500 requests at once on a busy machine are no outage.
const PATIENCE: Duration = Duration::from_secs(20);

/// State that all runs and nodes of the service share.
#[derive(Clone)]
struct World {
    url: String,
    settings: Settings,
    rules: Rules,
    fixture: Fixture,
}

impl World {
    /// The service, opened by its first request.
    fn service(&self) -> impl Handle + use<> {
        let (world, app) = (self.clone(), Arc::new(OnceCell::new()));
        move |request: http::Request<Incoming>| {
            let (world, app) = (world.clone(), Arc::clone(&app));
            async move {
                let app: &Router = app.get_or_init(|| world.open()).await;
                authenticated(request, app.clone()).await
            }
        }
    }

    async fn open(&self) -> Router {
        let store = PostgresStore::open(&self.url, self.settings.clone()).await.unwrap();
        let store = Arc::new(store);
        let policy = Policy::builder().keep_key(true).call_timeout(PATIENCE).build().unwrap();
        let engine = Engine::builder(store.clone()).policy(policy).build();
        let layer = Onceward::layer(engine)
            .transactions(&store)
            .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
            .caller(Source::header(HeaderName::from_static("x-caller")))
            .others(self.rules.clone());
        let handle = any(handle);
        Router::new()
            .route("/orders", handle.clone())
            .route("/orders/{id}", handle.clone())
            .route("/orders/{id}/pay", handle.clone())
            .route("/_probe/{token}", handle)
            .layer(layer.build().unwrap())
            .with_state((self.fixture.clone(), format!("{}.effects", self.settings.schema)))
    }
}

/// Runs the fixture and writes a row.
async fn handle(State((fixture, table)): State<(Fixture, String)>, request: Request) -> Response {
    let tx = PgTransaction::of(request.extensions()).cloned();
    if let Some(tx) = tx {
        let Ok(client) = tx.client().await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        client.batch_execute(&format!("INSERT INTO {table} DEFAULT VALUES")).await.unwrap();
    }
    fixture.call(request).await.map(axum::body::Body::new)
}

/// Faults: the network to the database, and a crash of the server.
struct Hands {
    proxy: Proxy,
    server: MortalServer,
}

#[async_trait]
impl Controls for Hands {
    async fn cause(&self, trouble: Trouble) -> Result<(), NotOffered> {
        match trouble {
            Trouble::ClaimsFail => self.proxy.shut().await,
            Trouble::Crash => self.server.crash().await,
            _ => return Err(NotOffered),
        }
        Ok(())
    }

    async fn heal(&self) {
        self.proxy.heal();
    }
}

/// One server, a direct connection to its database, and its expectations.
struct Stage {
    target: Target,
    store: PostgresStore,
    effects: String,
    _peer: Server,
}

impl Stage {
    async fn set(server: &Database, protocol: Protocol, rules: Rules) -> Self {
        let settings = Settings {
            transactions_max: 32,
            call_timeout: PATIENCE,
            statement_timeout: PATIENCE,
            connect_timeout: PATIENCE,
            ..settings()
        };
        let effects = format!("{}.effects", settings.schema);
        // Creates the schema too.
        let store = PostgresStore::open(server.url(), settings.clone()).await.unwrap();
        let table = format!("CREATE TABLE {effects} (at timestamptz DEFAULT now())");
        plain(server.url()).await.batch_execute(&table).await.unwrap();
        let proxy = Proxy::to(([127, 0, 0, 1], server.port()).into()).await.unwrap();
        let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
        let world = World { url, settings, rules, fixture: Fixture::new() };
        let peer = Server::start(protocol, world.service()).unwrap();
        let mortal = MortalServer::start(protocol, move || world.service()).unwrap();
        let mut target = Target::onceward(mortal.base()).over(protocol);
        target.name = "axum, in transactions".into();
        target.peer = Some(peer.base());
        target.expects.lapse = Lapse::RolledBack;
        let target = target.controlled(Arc::new(Hands { proxy, server: mortal }));
        Self { target, store, effects, _peer: peer }
    }

    async fn run(&self, server: &Database) -> Report {
        let report = run(&self.target, None).await;
        // There is one effect for each completed record.
        let sql = format!("SELECT count(*) FROM {}", self.effects);
        let effects = plain(server.url()).await.query_one(&sql, &[]).await.unwrap();
        let completed = self.store.stats().await.unwrap().by_state[StateName::Completed as usize];
        assert_eq!(u64::try_from(effects.get::<_, i64>(0)).unwrap(), completed);
        report
    }
}

/// Cases that need an upstream, a quota, leases or a clock that can be moved: the suite over leases
/// covers them. `network.rs` covers lost replies of the database.
const ELSEWHERE: &[&str] = &[
    "a_crash_after_the_completion_replays",
    "a_key_flood_is_429",
    "a_lapsed_lease_is_unknown_until_its_owner_completes",
    "a_lost_reply_to_the_claim_runs_once",
    "a_lost_reply_to_the_completion_runs_once",
    "a_refused_upstream_frees_the_key",
    "a_reset_upstream_is_unknown",
    "a_silent_upstream_is_unknown",
    "after_the_ttl_it_is_new_or_expired",
    "inside_the_ttl_it_replays",
    "store_down_at_the_completion_never_runs_again",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axum_keeps_the_protocol_with_handlers_in_transactions() {
    let Some(server) = shared() else { return };
    let rules = Rules { required: true, ..Rules::default() };
    let plain = Stage::set(server, Protocol::Http1, rules.clone()).await;
    let wait = Duration::from_secs(2);
    let switched = Rules {
        in_progress: InProgress::Wait(wait),
        request_max_bytes: 64 * 1024,
        required: false,
        ..rules
    };
    let mut switched = Stage::set(server, Protocol::Http2, switched).await;
    let expects = &mut switched.target.expects;
    expects.key = KeyRule::Optional;
    expects.in_progress = expected::InProgress::Wait(wait);
    expects.request_bytes_max = Some(64 * 1024);
    switched.target.bad_tenant = Some(vec![
        ("X-Tenant-ID".into(), "no-uuid".into()),
        ("X-Caller".into(), "alice".into()),
        ("Authorization".into(), "Bearer alice".into()),
    ]);
    let reports = [plain.run(server).await, switched.run(server).await];
    assert_eq!(shown_by_none(&reports), ELSEWHERE);
}
