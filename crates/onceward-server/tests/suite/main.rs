//! The black-box suite through the gateway: on each store, over HTTP/1.1 and HTTP/2, with store
//! failures, clock jumps and crashes.

mod shadow;
mod test_store;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use onceward_server::config::Config;
use onceward_server::gateway::{Gateway, StartError};
use onceward_testkit::faulty::FaultyStore;
use onceward_testkit::http::fixture::Fixture;
use onceward_testkit::http::server::Server;
use onceward_testkit::http::{
    Controls, Flood, NotOffered, Protocol, Role, StoreControls, Target, Trouble, run, shown_by_none,
};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::Instant;

use test_store::{Kind, TestStore};

/// Longer than any delay of the suite, except that of a silent upstream.
const TIMEOUT: Duration = Duration::from_secs(3);
/// More keys than any caller uses in all cases, except the one that floods.
const KEYS_MAX: usize = 1500;

/// A gateway, its store, its upstream and its authorization service.
struct Setup {
    store: Arc<FaultyStore>,
    config: Config,
    gateway: Mutex<Option<Gateway>>,
    /// A second gateway on the same store, if several processes can share it.
    peer: Option<Gateway>,
    store_controls: StoreControls,
    _upstream: Server,
    _authority: Server,
    _directory: Option<TempDir>,
}

impl Setup {
    async fn start(kind: Kind) -> Option<Arc<Self>> {
        let directory = tempfile::tempdir().unwrap();
        let test_store = TestStore::of(kind, directory.path())?;
        let opened = test_store.open().await;
        let store = Arc::new(FaultyStore::new(move || opened.clone()));
        let fixture = Fixture::new();
        let upstream = Server::start(Protocol::Http1, move |request: Request<Incoming>| {
            let fixture = fixture.clone();
            async move { fixture.call(request).await }
        });
        let (upstream, authority) =
            (upstream.unwrap(), Server::start(Protocol::Http1, authority).unwrap());
        let config = config(&upstream.base(), &authority.base());
        let gateway = Gateway::start_on(store.clone(), config.clone()).await.unwrap();
        let peer = test_store.peer(&config).await;
        Some(Arc::new(Self {
            store_controls: StoreControls::passing_by(store.clone(), move |time| {
                test_store.pass(time)
            }),
            store,
            config,
            gateway: Mutex::new(Some(gateway)),
            peer,
            _upstream: upstream,
            _authority: authority,
            _directory: Some(directory),
        }))
    }

    fn target(self: &Arc<Self>, kind: Kind, protocol: Protocol) -> Target {
        let base = format!("http://{}", self.config.listeners[0].address);
        let mut target = Target::onceward(base).over(protocol);
        target.name = format!("gateway, {kind:?}");
        target.peer = self.peer.as_ref().map(|peer| format!("http://{}", peer.addresses()[0]));
        target.expects.request_bytes_max = Some(64 * 1024);
        target.expects.role = Role::Gateway { timeout: TIMEOUT };
        let tenant = target.caller[0].clone();
        target.flood = Some(Flood {
            caller: vec![
                tenant,
                ("X-Caller".into(), "mallory".into()),
                ("Authorization".into(), "Bearer mallory".into()),
            ],
            keys_max: KEYS_MAX,
        });
        target.controlled(Arc::new(GatewayControls(Arc::clone(self))))
    }
}

fn config(upstream: &str, authority: &str) -> Config {
    // A fixed address, used again after a crash.
    let address = onceward_services::own_address();
    let text = format!(
        r#"
        [[listeners]]
        address = "{address}"
        [upstream]
        url = "{upstream}"
        response_timeout = "3s"
        [scope]
        tenant = {{ header = "X-Tenant-ID" }}
        caller = {{ header = "X-Caller" }}
        trusted_peers = ["127.0.0.1"]
        [authorization]
        url = "{authority}"
        timeout = "30s" # thousands of concurrent requests on a busy machine
        [defaults]
        required = true
        request_max_bytes = "64KiB"
        [quotas]
        new_keys_per_second = 0
        live_keys = {KEYS_MAX}
        [limits]
        threads = 2
        "#
    );
    Config::parse(&text, Path::new("suite.toml")).unwrap()
}

/// Authorizes requests with credentials. The suite's execution counters need none.
async fn authority(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let probing = |uri: &http::HeaderValue| uri.to_str().is_ok_and(|uri| uri.contains("/_probe/"));
    let allowed = request.headers().contains_key("authorization")
        || request.headers().get("x-original-uri").is_some_and(probing);
    let mut response = Response::new(Full::default());
    if !allowed {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response
}

/// Starts a gateway at the address of the one before. A program that another test is about to start
/// may hold the old socket until it runs.
async fn start_again(setup: &Setup) -> Gateway {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        match Gateway::start_on(setup.store.clone(), setup.config.clone()).await {
            Ok(gateway) => return gateway,
            Err(StartError::Listen(_)) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

struct GatewayControls(Arc<Setup>);

#[async_trait]
impl Controls for GatewayControls {
    async fn cause(&self, trouble: Trouble) -> Result<(), NotOffered> {
        let setup = &self.0;
        match trouble {
            Trouble::Crash => {
                let gateway = setup.gateway.lock().await.take();
                tokio::task::spawn_blocking(|| drop(gateway)).await.unwrap();
                *setup.gateway.lock().await = Some(start_again(setup).await);
                Ok(())
            }
            Trouble::UpstreamRefuses => {
                let mut config = setup.config.clone();
                config.upstream.url = "http://127.0.0.1:9".parse().unwrap();
                setup.gateway.lock().await.as_ref().unwrap().reload(config).unwrap();
                Ok(())
            }
            other => setup.store_controls.cause(other).await,
        }
    }

    async fn heal(&self) {
        self.0.store_controls.heal().await;
        let gateway = self.0.gateway.lock().await;
        gateway.as_ref().unwrap().reload(self.0.config.clone()).unwrap();
    }
}

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// The suites run one at a time: their cases measure time, and each is enough load.
static TURN: Mutex<()> = Mutex::const_new(());

async fn keeps_the_protocol(
    over: impl IntoIterator<Item = (Kind, Protocol)>,
) -> Option<Vec<&'static str>> {
    let _turn = TURN.lock().await;
    let mut targets = Vec::new();
    for (kind, protocol) in over {
        let setup = Setup::start(kind).await?;
        targets.push(setup.target(kind, protocol));
    }
    let reports = join_all(targets.iter().map(|target| run(target, None))).await;
    Some(shown_by_none(&reports))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_keeps_the_protocol_on_every_store_over_http_1_and_http_2() {
    let kinds = [Kind::Memory, Kind::Embedded, Kind::Sealed];
    let over = kinds.into_iter().flat_map(|kind| BOTH.map(|protocol| (kind, protocol)));
    let mut unshown = keeps_the_protocol(over).await.expect("no servers are needed");
    unshown.retain(|case| *case != "two_nodes_run_once"); // Run by the next tests.
    assert_eq!(unshown, OTHER_SWITCHES);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_on_one_redis_keep_the_protocol() {
    let Some(unshown) = keeps_the_protocol(BOTH.map(|it| (Kind::Redis, it))).await else { return };
    assert_eq!(unshown, OTHER_SWITCHES);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_on_one_postgres_keep_the_protocol_sealed_or_not() {
    let over = [(Kind::Postgres, Protocol::Http1), (Kind::SealedPostgres, Protocol::Http2)];
    let Some(unshown) = keeps_the_protocol(over).await else { return };
    assert_eq!(unshown, OTHER_SWITCHES);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_on_one_postgres_behind_redis_keep_the_protocol() {
    let Some(unshown) = keeps_the_protocol(BOTH.map(|it| (Kind::Tiered, it))).await else { return };
    assert_eq!(unshown, OTHER_SWITCHES);
}

/// Cases of settings that this gateway does not use. The layer's own suite runs them.
const OTHER_SWITCHES: &[&str] = &[
    "a_malformed_tenant_is_400",
    "optional_key_missing_runs_each_time",
    "waiting_ends_in_time",
    "waiting_ends_with_the_first_answer",
];
