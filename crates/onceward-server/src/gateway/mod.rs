//! The gateway: `Idempotency-Key` in front of any HTTP service.
//!
//! A request passes `listener` (connection, limits) → `worker` (the configuration in force) →
//! `authorize` (if configured) → `region` (if configured) → the layer of `onceward-http`, which is the
//! protocol → `proxy` (the upstream, and whether it was reached).
//!
//! | file | contents |
//! |---|---|
//! | `mod` | start, reload, stop |
//! | `error` | errors of start and reload |
//! | `snapshot` | a configuration, ready to serve |
//! | `addresses` | all addresses, bound before serving begins |
//! | `listener`, `worker` | the connections of a thread; its service stack |
//! | `authorize`, `body_budget`, `cors` | external authorization, memory for bodies, CORS of refusals |
//! | `quota`, `key_rate` | quotas of callers; the rate of requests with one key |
//! | `loop_detection`, `request_target` | loops; ambiguous request targets |
//! | `region` | home regions: requests that another region's gateway decides |
//! | `proxy`, `headers`, `upgrade`, `interim` | requests to the upstream: headers, tunnels, 1xx responses |
//! | `undelivered` | requests that got no response, and whether they were sent |
//! | `cutoff`, `problem` | the gateway's own responses |

mod addresses;
mod authorize;
mod body_budget;
mod cors;
mod cutoff;
mod error;
mod headers;
mod interim;
mod key_rate;
mod listener;
mod loop_detection;
mod problem;
mod proxy;
mod quota;
mod region;
mod request_target;
mod snapshot;
mod undelivered;
mod upgrade;
mod worker;

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use onceward_core::{Drained, MemoryStore};
use onceward_stores::SharedStore;
use rustls::ServerConfig;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::admin::{AdminRoutes, Monitoring, archive_line};
use crate::api::{self, CurrentApiSettings};
use crate::backend::{self, Backend, StoreProbe};
use crate::claims::Claims;
use crate::config::{self, Config, OwnAddress, StoreKind};
use crate::net::{
    BoundAddress, Client, ConnectionLimit, TlsError, UpstreamHealth, raise_file_limit, tls,
};
use crate::resolver::ConfiguredResolver;
use crate::telemetry::Metrics;
use addresses::Addresses;
use listener::{ListenerContext, Shutdown};
use snapshot::{ConfigSnapshot, GatewayState, api_settings};
use worker::Worker;

pub use error::{ReloadError, StartError};
pub(crate) use problem::GatewayCode;
pub use snapshot::SnapshotError;

/// A running gateway.
pub struct Gateway {
    state: GatewayState,
    snapshots: Arc<ArcSwap<ConfigSnapshot>>,
    api_settings: CurrentApiSettings,
    addresses: Vec<SocketAddr>,
    /// All addresses that it listens on.
    own: Vec<OwnAddress>,
    /// Certificates of the listeners with TLS.
    certificates: Vec<Certificate>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Shutdown>,
    connections: ConnectionLimit,
    health: UpstreamHealth,
    /// The sweeper, the health check, the admin API and the claims API. They end with the gateway.
    background: JoinSet<()>,
    admin: Option<SocketAddr>,
    claims: Option<SocketAddr>,
}

/// The certificate of a listener, and the files that it was read from.
type Certificate = (config::ServerTls, Arc<ArcSwap<ServerConfig>>);

/// Time limit for writing the last responses and settling running work.
const CUT_OFF_TIME: Duration = Duration::from_secs(1);

impl Gateway {
    /// Builds everything that a start or a reload builds, without opening the store or listening.
    /// Returns the resolver, which can be probed.
    pub(crate) fn check(config: Config) -> Result<Option<Arc<ConfiguredResolver>>, StartError> {
        config.check_loops(&config.own_addresses())?;
        backend::check(&config.store)?;
        let backend = Backend::unopened(Arc::new(MemoryStore::new()), &config, &Metrics::new())?;
        api_settings(&config)?;
        let state = GatewayState::new(backend, &config);
        let snapshot = Arc::new(ConfigSnapshot::build(config, &state)?);
        for tls in snapshot.config.listeners.iter().filter_map(|it| it.tls.as_ref()) {
            tls::server(tls)?;
        }
        Worker::new(Arc::new(ArcSwap::new(snapshot)))?;
        Ok(state.backend.resolver)
    }

    /// Opens the store and starts to listen.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let store = backend::open(&config.store).await?;
        Self::start_on(store, config).await
    }

    /// Starts to listen, with a store that is open already.
    pub async fn start_on(store: SharedStore, config: Config) -> Result<Self, StartError> {
        let backend = Backend::open(store, &config, &Metrics::new(), archive_line).await?;
        backend.register_resolver().await;
        let state = GatewayState::new(backend, &config);
        let api_settings = CurrentApiSettings::new(api_settings(&config)?);
        let snapshot = Arc::new(ConfigSnapshot::build(config, &state)?);
        let snapshots = Arc::new(ArcSwap::new(Arc::clone(&snapshot)));
        let config = &snapshot.config;
        let (stop, stopping) = watch::channel(Shutdown::Serving);
        raise_file_limit(config.limits.connections);
        let connections = ConnectionLimit::new(config.limits.connections);
        let certificates = certificates(config)?;
        let bound = Addresses::bind(config)?;
        let own = bound.own();
        config.check_loops(&own)?;
        let addresses = bound.listeners.iter().map(BoundAddress::address).collect();
        let mut threads = Vec::new();
        for (listener, certificate) in bound.listeners.into_iter().zip(&certificates) {
            for socket in listener.into_sockets(thread_count(config.limits.threads))? {
                let context = ListenerContext {
                    worker: Arc::new(Worker::new(Arc::clone(&snapshots))?),
                    limits: config.limits,
                    tls: certificate.as_ref().map(|(_, current)| Arc::clone(current)),
                    slots: connections.slots(),
                };
                threads.push(spawn(socket, context, stopping.clone())?);
            }
        }
        let mut gateway = Self {
            state,
            snapshots,
            api_settings,
            addresses,
            own,
            certificates: certificates.into_iter().flatten().collect(),
            threads,
            stop,
            connections,
            health: UpstreamHealth::default(),
            background: JoinSet::new(),
            admin: None,
            claims: None,
        };
        gateway.start_background(config)?;
        if let Some(admin) = bound.admin {
            gateway.start_admin(admin, config)?;
        }
        if let (Some(claims), Some(limits)) = (bound.claims, config.claims) {
            gateway.start_claims(claims, limits)?;
        }
        Ok(gateway)
    }

    fn start_background(&mut self, config: &Config) -> Result<(), StartError> {
        let backend = &self.state.backend;
        self.background.spawn(backend.sweeper().run());
        let reconciling = config.reconciler.settings(&config.defaults);
        if let Some(reconciler) = backend.reconciler(reconciling) {
            self.background.spawn(reconciler.run());
        }
        if let Some(resolver) = &backend.resolver {
            self.background.spawn(Arc::clone(resolver).probe_until_passed());
        }
        let client = Client::new(&config.upstream)?;
        self.background.spawn(self.health.clone().watch(client, config.upstream.clone()));
        Ok(())
    }

    fn start_admin(&mut self, bound: BoundAddress, config: &Config) -> Result<(), StartError> {
        let backend = &self.state.backend;
        let every = config.store.url.kind().map_or(Duration::ZERO, StoreKind::counted_every);
        let monitoring = Monitoring {
            metrics: Arc::clone(&backend.metrics),
            engine: backend.engine.clone(),
            probe: StoreProbe::new(backend.store.clone(), every),
            upstream: self.health.clone(),
        };
        let admin = AdminRoutes {
            store: backend.store.clone(),
            identity: backend.identity.clone(),
            purger: backend.purger.clone(),
            settings: self.api_settings.clone(),
            recoveries: backend.metrics.requests.clone(),
        };
        self.admin = Some(bound.address());
        let router = monitoring.router().merge(admin.router());
        self.background.spawn(api::serve(bound, router).map_err(StartError::Socket)?);
        Ok(())
    }

    /// The claims API keeps running while the gateway drains, so that workers can settle.
    fn start_claims(
        &mut self,
        bound: BoundAddress,
        limits: config::Claims,
    ) -> Result<(), StartError> {
        let claims = Claims::new(&self.state.backend, limits, self.api_settings.clone());
        self.claims = Some(bound.address());
        self.background.spawn(api::serve(bound, claims.router()).map_err(StartError::Socket)?);
        Ok(())
    }

    /// The address of the claims API, if that is configured.
    pub fn claims(&self) -> Option<SocketAddr> {
        self.claims
    }

    /// The admin address, if that is configured.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The addresses that clients connect to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Applies another configuration from the next request on, and reads the certificates again
    /// for the next connections. An error changes nothing.
    ///
    /// Returns warnings about keys that were used before and are new from now on.
    pub fn reload(&self, config: Config) -> Result<Vec<config::Warning>, ReloadError> {
        let snapshot = self.snapshots.load();
        let current = &snapshot.config;
        if config.listeners != current.listeners {
            return Err(ReloadError::NeedsRestart("listeners"));
        }
        if config.limits.buffer_bytes != current.limits.buffer_bytes {
            return Err(ReloadError::NeedsRestart("limits.buffer_bytes"));
        }
        if config.store != current.store {
            return Err(ReloadError::NeedsRestart("store"));
        }
        if (&config.resolver, config.reconciler) != (&current.resolver, current.reconciler) {
            return Err(ReloadError::NeedsRestart("resolver and reconciler"));
        }
        if config.claims != current.claims {
            return Err(ReloadError::NeedsRestart("claims"));
        }
        if config.moves_keys_of(current) {
            return Err(ReloadError::MovesKeys);
        }
        config.check_loops(&self.own)?;
        let warnings = config::changes(current, &config);
        let api_settings = api_settings(&config)?;
        let snapshot = ConfigSnapshot::build(config, &self.state)?;
        let read: Result<Vec<_>, _> =
            self.certificates.iter().map(|(files, _)| tls::server(files)).collect();
        for ((_, current), certificate) in self.certificates.iter().zip(read?) {
            current.store(certificate);
        }
        if let Some(resolver) = &self.state.backend.resolver {
            resolver.replace_outcome_rules(Arc::clone(&api_settings.outcome_rules));
        }
        self.api_settings.replace(api_settings);
        self.snapshots.store(Arc::new(snapshot));
        Ok(warnings)
    }

    /// Longest time that [`stop`](Self::stop) waits for running requests.
    pub fn drain(&self) -> Duration {
        self.snapshots.load().config.limits.drain.0
    }

    /// Stops accepting connections, and waits for running requests. Those that take longer than
    /// the configured time get a response without their upstream, and are marked as unknown.
    pub async fn stop(self) -> Drained {
        let end = Instant::now() + self.drain();
        self.stop.send_replace(Shutdown::Draining);
        let engine = &self.state.backend.engine;
        if timeout_at(end, self.connections.closed()).await.is_ok() {
            // Work whose client has disconnected gets the rest of the time.
            let rest = end.saturating_duration_since(Instant::now()).max(CUT_OFF_TIME);
            return engine.drain(rest).await;
        }
        self.stop.send_replace(Shutdown::CutOff);
        let answered = timeout(CUT_OFF_TIME, self.connections.closed());
        tokio::join!(engine.drain(CUT_OFF_TIME), answered).0
    }
}

/// A dropped gateway ends as in a crash: running requests are not finished.
impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.send_replace(Shutdown::Off);
        join(mem::take(&mut self.threads));
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        let _panic_was_reported = thread.join();
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The certificate of each listener, in order; `None` without TLS.
fn certificates(config: &Config) -> Result<Vec<Option<Certificate>>, TlsError> {
    let read = |files: &config::ServerTls| {
        Ok((files.clone(), Arc::new(ArcSwap::new(tls::server(files)?))))
    };
    config.listeners.iter().map(|it| it.tls.as_ref().map(read).transpose()).collect()
}

fn thread_count(configured: usize) -> usize {
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if configured == 0 { cores() } else { configured }
}

fn spawn(
    socket: std::net::TcpListener,
    context: ListenerContext,
    stop: watch::Receiver<Shutdown>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::Thread)?;
    let serve = move || {
        if let Err(error) = runtime.block_on(listener::serve(socket, context, stop)) {
            tracing::error!(%error, "a listener has ended");
        }
    };
    thread::Builder::new().name("onceward".into()).spawn(serve).map_err(StartError::Thread)
}
