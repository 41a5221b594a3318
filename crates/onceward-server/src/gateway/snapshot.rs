//! A configuration, ready to serve: the layer and what the gateway adds around it.

use std::path::Path;
use std::sync::Arc;

use http::Request;
use http::request::Parts;
use onceward_http::{
    Denied, InvalidJwks, InvalidLayer, Jwt, LayerBuilder, Observer, Onceward, OncewardLayer,
    ProblemFormat, Scoped, Source,
};

use super::body_budget::BodyBudget;
use super::cors::Cors;
use super::headers::{self, Peer};
use super::loop_detection::LoopDetector;
use super::quota::Quota;
use super::region::RegionRouter;
use crate::api::{ApiSettings, OutcomeRules, Tokens, TokensError};
use crate::backend::Backend;
use crate::config::{self, Config, DimensionSource, NotSet, Quotas, ScopeSource, environment};

/// A configuration, ready to serve. A reload builds a new one on the same engine.
pub(crate) struct ConfigSnapshot {
    pub(crate) config: Config,
    pub(crate) layer: OncewardLayer,
    pub(crate) body_budget: BodyBudget,
    /// Origins that may read refusals.
    pub(crate) cors: Cors,
    /// The format of the gateway's own refusals.
    pub(crate) format: Arc<ProblemFormat>,
    pub(crate) loop_detector: Arc<LoopDetector>,
    /// Home regions; `None` without `[region]`.
    pub(crate) regions: Option<RegionRouter>,
}

/// The state that outlives reloads.
pub(crate) struct GatewayState {
    pub(crate) backend: Backend,
    body_budget: BodyBudget,
    loop_detector: Arc<LoopDetector>,
}

impl GatewayState {
    pub(crate) fn new(backend: Backend, config: &Config) -> Self {
        let body_budget = BodyBudget::new(config.limits.buffer_bytes.0);
        Self { backend, body_budget, loop_detector: Arc::new(LoopDetector::new()) }
    }
}

/// Why a configuration cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The layer refuses the rules.
    #[error(transparent)]
    Layer(#[from] InvalidLayer),
    /// A file cannot be read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        why: String,
    },
    /// An environment variable is not set.
    #[error(transparent)]
    Environment(#[from] NotSet),
    /// The keys that verify tokens are invalid.
    #[error("[scope.jwt]: {0}")]
    Jwks(#[from] InvalidJwks),
    /// The tokens of the APIs cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

/// The settings of the APIs in a configuration.
pub(crate) fn api_settings(config: &Config) -> Result<ApiSettings, SnapshotError> {
    let outcome_rules = Arc::new(OutcomeRules::of(config));
    Ok(ApiSettings { tokens: Tokens::read(&config.tokens)?, outcome_rules })
}

impl ConfigSnapshot {
    pub(crate) fn build(config: Config, state: &GatewayState) -> Result<Self, SnapshotError> {
        let backend = &state.backend;
        let jwt = config.scope.jwt.as_ref().map(verifier).transpose()?;
        let mut layer = scoped(&config, jwt.as_ref(), backend);
        for operation in &config.operations {
            layer = layer.operation(operation.protected(&config.defaults));
        }
        layer = if config.protect_others {
            layer.others(config.defaults.rules())
        } else {
            layer.only_named()
        };
        let quotas = quotas(&config);
        if quotas != Quotas::UNLIMITED {
            layer = layer.admission(Arc::new(quota(&quotas, &config, backend)));
        }
        let layer =
            layer.observer(backend.metrics.requests.clone() as Arc<dyn Observer>).build()?;
        let (cors, format) = (Cors::new(&config.cors), Arc::new(config.problem_format()));
        let (body_budget, loop_detector) =
            (state.body_budget.clone(), Arc::clone(&state.loop_detector));
        let regions = config.region.as_ref().map(|region| {
            RegionRouter::new(region, &config, Arc::clone(&format), &backend.metrics)
        });
        Ok(Self { layer, config, body_budget, cors, format, loop_detector, regions })
    }

    /// Removes the headers of a request that are only accepted from trusted peers.
    pub(crate) fn distrust<B>(&self, request: &mut Request<B>, peer: &Peer) {
        if peer.trusted {
            return;
        }
        headers::remove_forwarding(request.headers_mut());
        for name in self.config.trusted_headers() {
            request.headers_mut().remove(name);
        }
    }
}

/// The quotas in force. With a single tenant all callers are one, so those of one caller do not
/// apply: they would limit all of them together.
fn quotas(config: &Config) -> Quotas {
    match config.scope.single_tenant {
        true => config.quotas.without_caller(),
        false => config.quotas,
    }
}

fn quota(quotas: &Quotas, config: &Config, backend: &Backend) -> Quota {
    const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
    let retention = config.defaults.ttl.map_or(DAY, |ttl| ttl.0);
    Quota::new(quotas, retention, backend.store.clone(), backend.identity.clone())
}

fn scoped(config: &Config, jwt: Option<&Jwt>, backend: &Backend) -> LayerBuilder<Scoped> {
    let layer = Onceward::layer(backend.engine.clone());
    let layer = layer.single_tenant().problem_format(config.problem_format());
    let mut layer = with_dimensions(layer, &config.scope, jwt);
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

/// Adds the optional parts of the scope.
fn with_dimensions(
    mut layer: LayerBuilder<Scoped>,
    scope: &config::Scope,
    jwt: Option<&Jwt>,
) -> LayerBuilder<Scoped> {
    if let Some(version) = &scope.api_version {
        layer = layer.api_version(dimension(version, jwt));
    }
    match &scope.parent {
        Some(DimensionSource::Path(parameter)) => layer = layer.parent_in_path(parameter),
        Some(parent) => layer = layer.parent(dimension(parent, jwt)),
        None => {}
    }
    if let Some(region) = &scope.region {
        layer = layer.region(dimension(region, jwt));
    }
    layer
}

fn dimension(source: &DimensionSource, jwt: Option<&Jwt>) -> Source {
    match source {
        DimensionSource::Host => Source::host(),
        DimensionSource::Header { name, default: None } => Source::header(name.0.clone()),
        DimensionSource::Header { name, default: Some(default) } => {
            Source::header(name.0.clone()).or(default.clone())
        }
        DimensionSource::Fixed(value) => Source::fixed(value.clone()),
        DimensionSource::Claim(claim) => claim_source(claim, jwt),
        DimensionSource::Path(_) => {
            unreachable!("only a parent comes from the path: Config::check has seen it")
        }
    }
}

fn claim_source(claim: &str, jwt: Option<&Jwt>) -> Source {
    let refused = |_: &Parts| Err(Denied::unauthenticated("tokens cannot be verified"));
    jwt.map_or_else(|| Source::from_fn(refused), |jwt| jwt.claim(claim))
}

fn source(owner: &ScopeSource, jwt: Option<&Jwt>) -> Source {
    match owner {
        ScopeSource::Credentials => Source::credentials(),
        ScopeSource::EachCredential => Source::each_credential(),
        ScopeSource::HeaderDigest(name) => Source::header_digest(name.0.clone()),
        ScopeSource::CookieDigest(name) => Source::cookie_digest(name.clone()),
        ScopeSource::Host => Source::host(),
        ScopeSource::Header(name) => Source::header(name.0.clone()),
        ScopeSource::Fixed(value) => Source::fixed(value.clone()),
        ScopeSource::CertificateSubject => Source::from_fn(certificate_subject),
        ScopeSource::Claim(claim) => claim_source(claim, jwt),
    }
}

fn certificate_subject(request: &Parts) -> Result<std::borrow::Cow<'static, str>, Denied> {
    let peer = request.extensions.get::<Peer>();
    let subject = peer.and_then(|peer| peer.subject.as_deref());
    subject
        .map(|subject| subject.to_owned().into())
        .ok_or_else(|| Denied::unauthenticated("a client certificate is needed"))
}

fn verifier(settings: &config::Jwt) -> Result<Jwt, SnapshotError> {
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

fn text(path: &Path) -> Result<String, SnapshotError> {
    let file =
        |why: std::io::Error| SnapshotError::File { path: path.into(), why: why.to_string() };
    std::fs::read_to_string(path).map_err(file)
}
