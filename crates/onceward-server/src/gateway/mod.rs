//! The gateway: `Idempotency-Key` in front of any HTTP service.
//!
//! A request walks: `listener` (connection, limits) → `worker` (the configuration of the
//! moment) → `authorize` (where it is set) → the layer of `onceward-http`, which is the
//! protocol → `proxy` (the upstream, and what is certain when it does not answer).

mod addresses;
mod authorize;
mod connections;
mod cors;
mod cut;
mod files;
mod headers;
mod instance;
mod interim;
mod listener;
mod patient;
mod problem;
mod proxy;
mod quota;
mod room;
mod site;
mod target;
mod timed;
mod tls;
mod upgrade;
mod upstream;
mod worker;

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use onceward_core::{Drained, MemoryStore, Sweeper, SystemAmbient};
use onceward_stores::SharedStore;
use rustls::ServerConfig;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::BoundAddress;
use crate::admin::Admin;
use crate::api;
use crate::census::Census;
use crate::claims::{Claims, Door};
use crate::config::{self, Config, LoopError, OwnAddress, StoreKind};
use crate::desk::Reception;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::resolver::Configured;
use crate::store;
use addresses::Addresses;
use connections::Connections;
use listener::{Running, Serving};
use worker::Worker;

pub use crate::address::ListenError;
pub(crate) use proxy::RequestBody;
pub use site::SiteError;
pub(crate) use site::{Base, Site};
pub use tls::TlsError;
pub(crate) use upstream::{Client, connector};

/// A running gateway.
pub struct Gateway {
    base: Base,
    sites: Arc<ArcSwap<Site>>,
    addresses: Vec<SocketAddr>,
    /// All addresses that it listens on.
    own: Vec<OwnAddress>,
    /// Of the listeners that speak TLS.
    certificates: Vec<Certificate>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Running>,
    connections: Connections,
    metrics: Arc<Metrics>,
    health: Health,
    /// The sweeper, the health check, the admin address and claims: gone with the gateway.
    background: JoinSet<()>,
    admin: Option<SocketAddr>,
    claims: Option<SocketAddr>,
}

/// What a listener shows to clients, with the files that it came from.
type Certificate = (config::ServerTls, Arc<ArcSwap<ServerConfig>>);

/// Longest time for the last answers to be written, and for what still runs to be settled.
const CUT_OFF_TIME: Duration = Duration::from_secs(1);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Requests would come back to the gateway.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// An address is in use, or not this machine's.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system does not watch a socket.
    #[error("a socket cannot be watched: {0}")]
    Socket(#[source] io::Error),
    /// The system gives no threads.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
}

/// Why a running gateway goes on with the configuration that it had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The new one cannot be served.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Requests would come back to the gateway.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// Only a restart changes this.
    #[error("{0} cannot change while the gateway runs: restart it")]
    NeedsRestart(&'static str),
}

impl Gateway {
    /// Builds all that a gateway serves by, as its start and a reload do, without opening the
    /// store or listening. Returns the resolver, which can be probed.
    pub(crate) fn check(config: Config) -> Result<Option<Arc<Configured>>, StartError> {
        config.check_loops(&config.own_addresses())?;
        store::check(&config.store).map_err(SiteError::from)?;
        let base = Base::new(Arc::new(MemoryStore::new()), &config, &Metrics::new())?;
        let site = Arc::new(Site::build(config, &base)?);
        for tls in site.config.listeners.iter().filter_map(|it| it.tls.as_ref()) {
            tls::server(tls)?;
        }
        Worker::new(Arc::new(ArcSwap::new(site)))?;
        Ok(base.resolver)
    }

    /// Opens the store and begins to listen.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let store = store::open(&config.store).await.map_err(SiteError::from)?;
        Self::start_on(store, config).await
    }

    /// Begins to listen, on a store that was opened already.
    pub async fn start_on(store: SharedStore, config: Config) -> Result<Self, StartError> {
        let metrics = Metrics::new();
        let base = Base::new(store, &config, &metrics)?;
        base.register_resolver().await;
        let site = Arc::new(Site::build(config, &base)?);
        let sites = Arc::new(ArcSwap::new(Arc::clone(&site)));
        let (stop, stopping) = watch::channel(Running::On);
        let limits = site.config.limits;
        files::allow_for(limits.connections);
        let connections = Connections::new(limits.connections);
        let certificates = certificates(&site.config)?;
        let bound = Addresses::bind(&site.config)?;
        let own = bound.own();
        site.config.check_loops(&own)?;
        let addresses = bound.listeners.iter().map(BoundAddress::address).collect();
        let mut threads = Vec::new();
        for (listener, certificate) in bound.listeners.into_iter().zip(&certificates) {
            for socket in listener.into_sockets(threads_of(limits.threads))? {
                let worker = Arc::new(Worker::new(Arc::clone(&sites))?);
                let tls = certificate.as_ref().map(|(_, shown)| Arc::clone(shown));
                let serving = Serving { worker, limits, tls, places: connections.places() };
                threads.push(spawn(socket, serving, stopping.clone())?);
            }
        }
        let certificates = certificates.into_iter().flatten().collect();
        let mut gateway = Self {
            health: Health::default(),
            background: JoinSet::new(),
            admin: None,
            claims: None,
            base,
            sites,
            addresses,
            own,
            certificates,
            threads,
            stop,
            connections,
            metrics,
        };
        gateway.start_background(&site.config)?;
        if let Some(admin) = bound.admin {
            gateway.start_admin(admin, &site.config)?;
        }
        if let (Some(claims), Some(settings)) = (bound.claims, site.config.claims) {
            gateway.start_claims(claims, settings)?;
        }
        Ok(gateway)
    }

    fn start_background(&mut self, config: &Config) -> Result<(), StartError> {
        let sweeper = Sweeper::new(self.base.store.clone(), Arc::new(SystemAmbient::new()));
        self.background.spawn(sweeper.run());
        let reconciling = config.reconciler.settings(&config.defaults);
        if let Some(reconciler) = self.base.reconciler(reconciling) {
            self.background.spawn(reconciler.run());
        }
        if let Some(resolver) = &self.base.resolver {
            self.background.spawn(Arc::clone(resolver).probe_until_passed());
        }
        let client = Client::new(&config.upstream)?;
        self.background.spawn(self.health.clone().watch(client, config.upstream.clone()));
        Ok(())
    }

    fn start_admin(&mut self, bound: BoundAddress, config: &Config) -> Result<(), StartError> {
        let every = config.store.url.kind().map_or(Duration::ZERO, StoreKind::counted_every);
        let census = Census::new(self.base.store.clone(), every);
        let (metrics, health) = (Arc::clone(&self.metrics), self.health.clone());
        let (store, identity) = (self.base.store.clone(), self.base.identity.clone());
        let door = Door::Gateway(Arc::clone(&self.sites));
        let desk = Reception { store, identity, door };
        let admin = Admin { metrics, census, health }.router().merge(desk.router());
        self.admin = Some(bound.address());
        self.background.spawn(api::serve(bound, admin).map_err(StartError::Socket)?);
        Ok(())
    }

    /// While the gateway drains, workers may go on to settle what they have claimed.
    fn start_claims(
        &mut self,
        bound: BoundAddress,
        settings: config::Claims,
    ) -> Result<(), StartError> {
        let door = Door::Gateway(Arc::clone(&self.sites));
        let claims = Claims::new(&self.base, settings, door).router();
        self.claims = Some(bound.address());
        self.background.spawn(api::serve(bound, claims).map_err(StartError::Socket)?);
        Ok(())
    }

    /// Where workers claim, if that is configured.
    pub fn claims(&self) -> Option<SocketAddr> {
        self.claims
    }

    /// Where operators ask, if that is configured.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves by another configuration from the next request on, and shows what is now in the
    /// files with certificates from the next connection on.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let current = &self.sites.load().config;
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
        config.check_loops(&self.own)?;
        let site = Site::build(config, &self.base)?;
        let read: Result<Vec<_>, _> =
            self.certificates.iter().map(|(files, _)| tls::server(files)).collect();
        for ((_, shown), certificate) in self.certificates.iter().zip(read?) {
            shown.store(certificate);
        }
        self.sites.store(Arc::new(site));
        Ok(())
    }

    /// The longest time that [`stop`](Self::stop) waits for running requests.
    pub fn drain(&self) -> Duration {
        self.sites.load().config.limits.drain.0
    }

    /// Takes no more connections, and waits for what is running. What takes longer than the
    /// configured time is answered without its upstream, and marked as unknown.
    pub async fn stop(self) -> Drained {
        let end = Instant::now() + self.drain();
        self.stop.send_replace(Running::WindingUp);
        let engine = &self.base.engine;
        if timeout_at(end, self.connections.closed()).await.is_ok() {
            // Work whose client has gone has the rest of the time.
            let rest = end.saturating_duration_since(Instant::now()).max(CUT_OFF_TIME);
            return engine.drain(rest).await;
        }
        self.stop.send_replace(Running::CutOff);
        let answered = timeout(CUT_OFF_TIME, self.connections.closed());
        tokio::join!(engine.drain(CUT_OFF_TIME), answered).0
    }
}

/// Dropped, a gateway ends as in a crash: what it was doing is not finished.
impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.send_replace(Running::Off);
        join(mem::take(&mut self.threads));
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        let _one_that_panicked_has_said_so = thread.join();
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// One for each listener, in their order; `None` without TLS.
fn certificates(config: &Config) -> Result<Vec<Option<Certificate>>, TlsError> {
    let read = |files: &config::ServerTls| {
        Ok((files.clone(), Arc::new(ArcSwap::new(tls::server(files)?))))
    };
    config.listeners.iter().map(|it| it.tls.as_ref().map(read).transpose()).collect()
}

fn threads_of(configured: usize) -> usize {
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if configured == 0 { cores() } else { configured }
}

fn spawn(
    socket: std::net::TcpListener,
    serving: Serving,
    stop: watch::Receiver<Running>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::Thread)?;
    let serve = move || {
        if let Err(error) = runtime.block_on(listener::serve(socket, serving, stop)) {
            tracing::error!(%error, "a listener ended");
        }
    };
    thread::Builder::new().name("onceward".into()).spawn(serve).map_err(StartError::Thread)
}
