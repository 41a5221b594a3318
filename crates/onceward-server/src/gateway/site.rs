//! What a configuration makes of the gateway: the layer, and what stands around it.

use std::path::Path;
use std::sync::Arc;

use http::Request;
use http::request::Parts;
use onceward_core::{
    Decisions, Engine, Identity, MeteredStore, Reconciler, ReconcilerSettings, Recovery,
};
use onceward_http::{
    Denied, InvalidJwks, InvalidLayer, Jwt, LayerBuilder, Observer, Onceward, OncewardLayer,
    Operation, ProblemFormat, Scoped, Source,
};
use onceward_stores::SharedStore;

use super::cors::Cors;
use super::headers::{self, Peer};
use super::instance::Instance;
use super::quota::Quota;
use super::room::Room;
use crate::api::{Tokens, TokensError};
use crate::config::{self, Caps, Config, Owner, Quotas, StoreKind};
use crate::desk::Keeping;
use crate::environment::{NotSet, environment};
use crate::metrics::Metrics;
use crate::resolver::{self, Configured, ResolverError};
use crate::store::{self, OpenError};

/// A configuration, ready to serve. A reload makes a new one on the same engine.
pub(crate) struct Site {
    pub(crate) config: Config,
    pub(crate) layer: OncewardLayer,
    pub(crate) room: Room,
    /// Which pages may read refusals.
    pub(crate) cors: Cors,
    /// How the gateway's own refusals are written.
    pub(crate) format: Arc<ProblemFormat>,
    pub(crate) instance: Arc<Instance>,
    /// Who may use the APIs.
    pub(crate) tokens: Tokens,
    /// How long what operators decide is kept.
    pub(crate) keeping: Arc<Keeping>,
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
    #[error(transparent)]
    Environment(#[from] NotSet),
    /// The keys that tokens are verified by.
    #[error("[scope.jwt]: {0}")]
    Jwks(#[from] InvalidJwks),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Who is asked about operations that nobody knows of.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// Tokens of the APIs.
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

/// What outlives reloads: the store and the engine on it.
pub(crate) struct Base {
    pub(crate) store: SharedStore,
    pub(crate) engine: Engine,
    /// Asked about operations whose outcome is unknown.
    pub(crate) resolver: Option<Arc<Configured>>,
    recovery: Option<Recovery>,
    pub(crate) identity: Identity,
    metrics: Arc<Metrics>,
    room: Room,
    instance: Arc<Instance>,
}

impl Base {
    /// An engine on a store.
    pub(crate) fn new(
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
        let shared: SharedStore = Arc::new(metered);
        let identity = store::identity(settings)?;
        let resolver = resolver::open(config, &identity)?;
        let mut engine = Engine::builder(shared.clone()).identity(identity.clone());
        let recovery = resolver.as_ref().map(|resolver| {
            let decisions = Decisions::new(shared.clone(), identity.clone());
            Recovery::new(shared.clone(), resolver.clone()).decisions(decisions)
        });
        if let Some(recovery) = &recovery {
            engine = engine.recovery(recovery.clone());
        }
        let engine = engine.build();
        let room = Room::new(config.limits.buffer_bytes.0);
        let metrics = Arc::clone(metrics);
        let instance = Arc::new(Instance::new());
        Ok(Self { store: shared, engine, resolver, recovery, identity, metrics, room, instance })
    }

    /// Records the first use of the resolver before anything is claimed. If the store fails
    /// meanwhile, operations count as older than the resolver until it succeeds.
    pub(crate) async fn register_resolver(&self) {
        let Some(recovery) = &self.recovery else { return };
        if let Err(error) = recovery.register().await {
            tracing::warn!(%error, "the resolver's first use is not stored yet");
        }
    }

    /// Asks the resolver about what is unknown, if there is one.
    pub(crate) fn reconciler(&self, settings: ReconcilerSettings) -> Option<Reconciler> {
        let resolver = self.resolver.clone()?;
        let metrics = Arc::clone(&self.metrics);
        let reconciler = Reconciler::new(self.store.clone(), resolver, self.identity.clone());
        Some(reconciler.settings(settings).report(move |round| metrics.reconciled(round)))
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
        let (tokens, keeping) = (Tokens::read(&config.tokens)?, Arc::new(Keeping::of(&config)));
        let (cors, format) = (Cors::new(&config.cors), Arc::new(config.problem_format()));
        let (room, instance) = (base.room.clone(), Arc::clone(&base.instance));
        Ok(Self { layer, config, room, cors, format, instance, tokens, keeping })
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
    let layer = Onceward::layer(base.engine.clone());
    let mut layer = layer.single_tenant().problem_format(config.problem_format());
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
        (Owner::EachCredential, _) => Source::each_credential(),
        (Owner::HeaderDigest(name), _) => Source::header_digest(name.0.clone()),
        (Owner::CookieDigest(name), _) => Source::cookie_digest(name.clone()),
        (Owner::Host, _) => Source::host(),
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
        (None, None) => unreachable!("[scope.jwt] names a key: Config::check has seen it"),
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
