//! What a configuration makes of the gateway: the layer, and what stands around it.

use std::path::Path;
use std::sync::Arc;

use http::Request;
use http::request::Parts;
use onceward_core::{Engine, Identity, MeteredStore};
use onceward_http::{
    Denied, InvalidJwks, InvalidLayer, Jwt, LayerBuilder, Observer, Onceward, OncewardLayer,
    Operation, Scoped, Source,
};
#[cfg(feature = "postgres")]
use onceward_stores::postgres;
#[cfg(feature = "redis")]
use onceward_stores::redis;
use onceward_stores::sealed::Keys;
use onceward_stores::{ConnectError, SharedStore};

use super::headers::{self, Peer};
use super::quota::Quota;
use super::room::Room;
use crate::config::{self, Caps, Config, Owner, Quotas, StoreKind, StoreUrl};
use crate::metrics::Metrics;

/// A configuration, ready to serve. A reload makes a new one on the same engine.
pub(crate) struct Site {
    pub(crate) config: Config,
    pub(crate) layer: OncewardLayer,
    pub(crate) room: Room,
}

/// Why a configuration cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// The layer refuses its rules.
    #[error(transparent)]
    Layer(#[from] InvalidLayer),
    /// A file that it names cannot be read.
    #[error("{path}: {why}")]
    File {
        /// Which file.
        path: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// An environment variable that it names is not there.
    #[error("the environment variable {0} is not set, or is not text")]
    Environment(String),
    /// The keys that tokens are verified by.
    #[error("[scope.jwt]: {0}")]
    Jwks(#[from] InvalidJwks),
    /// The store.
    #[error("store.url: {url}: {why}{advice}")]
    Store {
        /// Which, without its login.
        url: StoreUrl,
        /// Why it does not open.
        why: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The sealing keys.
    #[error("sealing keys: {0}")]
    Keys(String),
}

/// What outlives reloads: the store and the engine on it.
pub(crate) struct Base {
    pub(crate) store: SharedStore,
    pub(crate) engine: Engine,
    identity: Identity,
    metrics: Arc<Metrics>,
    room: Room,
}

/// Opens the store that a configuration names.
pub(super) async fn open(settings: &config::Store) -> Result<SharedStore, SiteError> {
    let mut connect = onceward_stores::Connect::new(settings.url.expose());
    #[cfg(feature = "tiered")]
    if let Some(cache) = &settings.cache {
        connect = connect.cache(cache.expose());
    }
    let refused = |error: onceward_stores::sealed::KeysError| SiteError::Keys(error.to_string());
    if let Some(path) = &settings.sealing_keys_file {
        connect = connect.sealed(Keys::from_file(path).map_err(refused)?);
    }
    if let Some(variable) = &settings.sealing_keys_env {
        connect = connect.sealed(Keys::from_env(variable).map_err(refused)?);
    }
    connect.open().await.map_err(|error| {
        let (url, why, advice) = (settings.url.clone(), chain(&error), advice(&error));
        SiteError::Store { url, why, advice }
    })
}

/// What an operator can do about a server that does not let us in.
fn advice(error: &ConnectError) -> &'static str {
    #[cfg(any(feature = "postgres", feature = "redis"))]
    const NOBODY: &str = "; see that the server runs and that host, port, login and TLS are \
        right, then start the gateway again";
    match error {
        #[cfg(feature = "postgres")]
        ConnectError::Postgres(error) => match **error {
            postgres::OpenError::Unreachable { .. } => NOBODY,
            _ => "",
        },
        #[cfg(feature = "redis")]
        ConnectError::Redis(redis::OpenError::Unavailable(_)) => NOBODY,
        _ => "",
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

impl Base {
    /// An engine on a store.
    pub(super) fn new(
        store: SharedStore,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, SiteError> {
        let settings = &config.store;
        let name = match (&settings.cache, settings.url.kind()) {
            (Some(_), _) => "tiered",
            (None, kind) => kind.map_or("other", StoreKind::name),
        };
        let metered = MeteredStore::new(store, name, metrics.store.clone());
        let store: SharedStore = Arc::new(metered);
        let identity = match &settings.identity_secret_env {
            Some(variable) => Identity::keyed(environment(variable)?.as_bytes()),
            None => Identity::unkeyed(),
        };
        let engine = Engine::builder(store.clone()).identity(identity.clone()).build();
        let room = Room::new(config.limits.buffer_bytes.0);
        Ok(Self { store, engine, identity, metrics: Arc::clone(metrics), room })
    }
}

impl Site {
    pub(crate) fn build(config: Config, base: &Base) -> Result<Self, SiteError> {
        let jwt = config.scope.jwt.as_ref().map(verifier).transpose()?;
        let mut layer = scoped(&config, jwt.as_ref(), base);
        for operation in &config.operations {
            layer = layer.operation(named(operation, &config));
        }
        layer = if config.protect_others {
            layer.others(config.defaults.rules())
        } else {
            layer.only_named()
        };
        let quotas = quotas(&config);
        if (quotas.caller(), quotas.total) != (Caps::NONE, Caps::NONE) {
            layer = layer.admission(Arc::new(quota(&quotas, &config, base)));
        }
        let layer = layer.observer(Arc::clone(&base.metrics) as Arc<dyn Observer>).build()?;
        Ok(Self { layer, config, room: base.room.clone() })
    }

    /// Takes out of a request what only trusted peers may say.
    pub(crate) fn distrust<B>(&self, request: &mut Request<B>, peer: &Peer) {
        if peer.trusted {
            return;
        }
        headers::remove_forwarding(request.headers_mut());
        for owner in [&self.config.scope.tenant, &self.config.scope.caller] {
            if let Some(Owner::Header(name)) = owner {
                request.headers_mut().remove(&name.0);
            }
        }
    }
}

/// The quotas that can be counted: where all callers are one, what one of them may use would
/// hold for everybody.
fn quotas(config: &Config) -> Quotas {
    match config.scope.single_tenant {
        true => Quotas { total: config.quotas.total, ..Quotas::UNLIMITED },
        false => config.quotas,
    }
}

fn quota(quotas: &Quotas, config: &Config, base: &Base) -> Quota {
    const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
    let retention = config.defaults.ttl.map_or(DAY, |ttl| ttl.0);
    Quota::new(quotas, retention, base.store.clone(), base.identity.clone())
}

fn scoped(config: &Config, jwt: Option<&Jwt>, base: &Base) -> LayerBuilder<Scoped> {
    let mut layer = Onceward::layer(base.engine.clone()).single_tenant();
    if config.scope.single_tenant {
        return layer;
    }
    if let Some(tenant) = &config.scope.tenant {
        layer = layer.tenant(source(tenant, jwt));
    }
    if let Some(caller) = &config.scope.caller {
        layer = layer.caller(source(caller, jwt));
    }
    layer
}

fn source(owner: &Owner, jwt: Option<&Jwt>) -> Source {
    match (owner, jwt) {
        (Owner::Credentials, _) => Source::credentials(),
        (Owner::Header(name), _) => Source::header(name.0.clone()),
        (Owner::Fixed(value), _) => Source::fixed(value.clone()),
        (Owner::CertificateSubject, _) => Source::from_fn(certificate_subject),
        (Owner::Claim(claim), Some(jwt)) => jwt.claim(claim),
        (Owner::Claim(_), None) => {
            Source::from_fn(|_| Err(Denied::unauthenticated("tokens cannot be verified")))
        }
    }
}

fn certificate_subject(request: &Parts) -> Result<std::borrow::Cow<'static, str>, Denied> {
    let peer = request.extensions.get::<Peer>();
    let subject = peer.and_then(|peer| peer.subject.as_deref());
    subject
        .map(|subject| subject.to_owned().into())
        .ok_or_else(|| Denied::unauthenticated("a client certificate is needed"))
}

fn named(operation: &config::Operation, config: &Config) -> Operation {
    let mut rules = operation.settings(&config.defaults).rules();
    rules.required = operation.required.or(config.defaults.required).unwrap_or(true);
    let guarded = Operation::new(operation.method.0.clone(), operation.route.clone()).rules(rules);
    match &operation.name {
        Some(name) => guarded.named(name),
        None => guarded,
    }
}

fn verifier(settings: &config::Jwt) -> Result<Jwt, SiteError> {
    let mut jwt = match (&settings.jwks_file, &settings.secret_env) {
        (Some(path), _) => Jwt::jwks(&text(path)?)?,
        (None, Some(variable)) => Jwt::hs256(environment(variable)?.as_bytes()),
        (None, None) => return Err(SiteError::Keys("[scope.jwt] names no key".into())),
    };
    if let Some(issuer) = &settings.issuer {
        jwt = jwt.issuer(issuer);
    }
    if let Some(audience) = &settings.audience {
        jwt = jwt.audience(audience);
    }
    Ok(jwt)
}

fn text(path: &Path) -> Result<String, SiteError> {
    let file = |why: std::io::Error| SiteError::File { path: path.into(), why: why.to_string() };
    std::fs::read_to_string(path).map_err(file)
}

fn environment(variable: &str) -> Result<String, SiteError> {
    std::env::var(variable).map_err(|_| SiteError::Environment(variable.into()))
}
