//! The layer and its settings.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use onceward_core::{
    BoxError, Engine, InvalidPolicy, OnLapse, PolicyBuilder, SCOPE_PART_BYTES_MAX,
};
use tower_layer::Layer;

use crate::admission::Admission;
use crate::canonical::{InvalidPointer, Selection};
use crate::fingerprint::Fingerprinter;
use crate::observe::Observer;
use crate::overhear::Used;
use crate::problem::ProblemFormat;
use crate::response_headers::is_never_stored;
use crate::right::Grants;
use crate::rules::{Enforcement, InProgress, KeyFrom, ReferenceFrom, ReferenceRules, Rules};
use crate::scope::{Owners, Source};
use crate::seen::Seen;
use crate::service::OncewardService;
use crate::speak::Reference;

/// Where it begins: [`Onceward::layer`].
#[derive(Debug)]
pub struct Onceward;

impl Onceward {
    /// A layer that guards by an engine. Say whose the keys are before it builds: by
    /// [`tenant`](LayerBuilder::tenant) and [`caller`](LayerBuilder::caller), or by
    /// [`single_tenant`](LayerBuilder::single_tenant).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use http::HeaderName;
    /// use onceward_core::{Engine, MemoryStore};
    /// use onceward_http::{Onceward, Operation, Source};
    ///
    /// let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let layer = Onceward::layer(engine)
    ///     .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
    ///     .operation(Operation::post("/orders").named("orders.create"))
    ///     .build()?;
    /// # Ok::<(), onceward_http::InvalidLayer>(())
    /// ```
    ///
    /// ```compile_fail
    /// # let engine = onceward_core::Engine::new(std::sync::Arc::new(onceward_core::MemoryStore::new()));
    /// let layer = onceward_http::Onceward::layer(engine).build(); // whose keys?
    /// ```
    pub fn layer(engine: Engine) -> LayerBuilder<Unscoped> {
        LayerBuilder {
            engine,
            grants: Grants::Leased,
            owners: Owners { tenant: None, caller: None },
            operations: Vec::new(),
            others: Some(Rules::default()),
            format: ProblemFormat::default(),
            rebuild: None,
            admission: None,
            observer: None,
            scoped: PhantomData,
        }
    }
}

/// A builder that does not know yet whose the keys are.
#[derive(Debug)]
pub struct Unscoped;

/// A builder that knows whose the keys are.
#[derive(Debug)]
pub struct Scoped;

type Rebuilding = Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>>;
type Rebuild = Arc<dyn Fn(Reference) -> Rebuilding + Send + Sync>;

/// The settings of an [`OncewardLayer`].
#[must_use]
pub struct LayerBuilder<S> {
    engine: Engine,
    grants: Grants,
    owners: Owners,
    operations: Vec<Operation>,
    others: Option<Rules>,
    format: ProblemFormat,
    rebuild: Option<Rebuild>,
    admission: Option<Arc<dyn Admission>>,
    observer: Option<Arc<dyn Observer>>,
    scoped: PhantomData<S>,
}

impl<S> LayerBuilder<S> {
    /// Where the tenant comes from.
    pub fn tenant(mut self, source: Source) -> LayerBuilder<Scoped> {
        self.owners.tenant = Some(source);
        self.scoped()
    }

    /// Where the caller comes from.
    pub fn caller(mut self, source: Source) -> LayerBuilder<Scoped> {
        self.owners.caller = Some(source);
        self.scoped()
    }

    /// Everybody shares one namespace of keys: right only where all callers are one party.
    pub fn single_tenant(self) -> LayerBuilder<Scoped> {
        self.scoped()
    }

    fn scoped(self) -> LayerBuilder<Scoped> {
        LayerBuilder {
            engine: self.engine,
            grants: self.grants,
            owners: self.owners,
            operations: self.operations,
            others: self.others,
            format: self.format,
            rebuild: self.rebuild,
            admission: self.admission,
            observer: self.observer,
            scoped: PhantomData,
        }
    }

    /// Guards an operation by rules of its own.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// How requests are guarded that belong to no named operation (by the defaults: those
    /// with a key are).
    pub fn others(mut self, rules: Rules) -> Self {
        self.others = Some(rules);
        self
    }

    /// Lets requests pass that belong to no named operation, with a key or without.
    pub fn only_named(mut self) -> Self {
        self.others = None;
        self
    }

    /// Where the problem types are explained (Onceward's own documentation).
    pub fn problem_docs(mut self, address: impl Into<String>) -> Self {
        self.format.docs = address.into();
        self
    }

    /// The path under which operations have their status pages (`/onceward`).
    pub fn operations_at(mut self, prefix: impl Into<String>) -> Self {
        self.format.operations_at = prefix.into();
        self
    }

    /// How refusals are written, and where operations have their status pages.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.format = format;
        self
    }

    /// How [`Sensitive`](crate::Sensitive) replies are made again.
    pub fn rebuild<F, R>(mut self, rebuild: F) -> Self
    where
        F: Fn(Reference) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response<Bytes>, BoxError>> + Send + 'static,
    {
        self.rebuild = Some(Arc::new(move |reference| Box::pin(rebuild(reference))));
        self
    }
}

impl<S> LayerBuilder<S> {
    /// Asks, before each claim, whether the caller may use one more key.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn granted_by(mut self, grants: Grants) -> Self {
        self.grants = grants;
        self
    }

    /// Is told what becomes of every guarded request.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }
}

impl LayerBuilder<Scoped> {
    /// Checks the settings.
    pub fn build(self) -> Result<OncewardLayer, InvalidLayer> {
        let Self { engine, grants, owners, operations, others, format, .. } = self;
        let (rebuild, admission, observer) = (self.rebuild, self.admission, self.observer);
        if owners.tenant.as_ref().is_some_and(Source::binds_credentials) {
            return Err(InvalidLayer::Tenant);
        }
        let binds = owners.bind_credentials();
        let mut guards = Vec::new();
        let mut by_route = BTreeMap::<String, Vec<Place>>::new();
        for operation in operations {
            by_route.entry(operation.route.clone()).or_default().push(guards.len());
            guards.push(Guard::of(operation, &engine, &grants, binds)?);
        }
        let mut routes = matchit::Router::new();
        for (route, places) in by_route {
            let invalid = |error: matchit::InsertError| error.to_string();
            let inserted = routes.insert(&route, places).map_err(invalid);
            inserted.map_err(|why| InvalidLayer::Route { route, why })?;
        }
        let others = match others {
            Some(rules) => {
                guards.push(Guard::new(None, rules, &engine, &grants, binds)?);
                Some(guards.len() - 1)
            }
            None => None,
        };
        let unguarded = AtomicU64::new(0);
        let seen = engine.recalls().then(Seen::new);
        let shared = Shared {
            engine,
            guards,
            routes,
            others,
            owners,
            format,
            rebuild,
            admission,
            observer,
            used: Arc::default(),
            seen,
            unguarded,
        };
        Ok(OncewardLayer { shared: Arc::new(shared) })
    }
}

impl<S> fmt::Debug for LayerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder")
            .field("operations", &self.operations)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

/// One guarded operation: a method and a route.
#[derive(Debug, Clone)]
#[must_use]
pub struct Operation {
    method: Method,
    route: String,
    name: Option<String>,
    rules: Rules,
}

impl Operation {
    /// An operation at a route template such as `/orders/{id}`. It requires a key.
    pub fn new(method: Method, route: impl Into<String>) -> Self {
        let rules = Rules { required: true, ..Rules::default() };
        Self { method, route: route.into(), name: None, rules }
    }

    /// A POST.
    pub fn post(route: impl Into<String>) -> Self {
        Self::new(Method::POST, route)
    }

    /// A PATCH.
    pub fn patch(route: impl Into<String>) -> Self {
        Self::new(Method::PATCH, route)
    }

    /// Names it (else it is method and route). A name lets the route change.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Guards it by these rules.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Changes some of its rules.
    pub fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }
}

/// A tower layer that makes retries of HTTP requests safe. See [`Onceward::layer`].
#[derive(Clone)]
pub struct OncewardLayer {
    shared: Arc<Shared>,
}

impl OncewardLayer {
    /// How many requests ran unguarded because the store was down and
    /// [`StoreDown::Open`](crate::StoreDown::Open) said so.
    pub fn unguarded(&self) -> u64 {
        self.shared.unguarded.load(Ordering::Relaxed)
    }

    /// How many bytes of a request's body are held at most, because it is guarded; `None` for
    /// one that passes through, observed or not.
    pub fn holds<B>(&self, request: &Request<B>) -> Option<usize> {
        let guarded = self.shared.guard(request)?;
        let guard = guarded.guard();
        (!guard.only_observes()).then_some(guard.rules.request_bytes_max)
    }
}

impl<S> Layer<S> for OncewardLayer {
    type Service = OncewardService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        OncewardService::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for OncewardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OncewardLayer(…)")
    }
}

/// What all requests of a layer share. Each counts its owners, so what they read has cache lines
/// of its own.
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    guards: Vec<Guard>,
    routes: matchit::Router<Vec<Place>>,
    others: Option<Place>,
    pub(crate) owners: Owners,
    pub(crate) format: ProblemFormat,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) admission: Option<Arc<dyn Admission>>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// By observations.
    pub(crate) used: Arc<Used>,
    /// `None` where the store could not replay what was seen any sooner.
    pub(crate) seen: Option<Seen>,
    unguarded: AtomicU64,
}

/// Where a guard stands among those of its layer.
type Place = usize;

/// A request's guard, by its place: so a request counts as one owner, of what all share.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) shared: Arc<Shared>,
    place: Place,
    /// The operation's name, where its guard has none.
    unnamed: Option<Box<str>>,
}

impl Guarded {
    pub(crate) fn guard(&self) -> &Guard {
        &self.shared.guards[self.place]
    }

    /// The operation's name, and the route as far as it is known.
    pub(crate) fn operation(&self) -> &str {
        let name = self.guard().named.as_ref().map(|named| &*named.name);
        name.or(self.unnamed.as_deref()).unwrap_or_default()
    }
}

/// How one operation is guarded.
pub(crate) struct Guard {
    /// `None`: requests that belong to no named operation.
    named: Option<Named>,
    pub(crate) rules: Rules,
    pub(crate) engine: Engine,
    pub(crate) grants: Grants,
    pub(crate) fingerprinter: Fingerprinter,
}

struct Named {
    method: Method,
    name: Box<str>,
}

impl Guard {
    fn of(
        operation: Operation,
        engine: &Engine,
        grants: &Grants,
        bind_credentials: bool,
    ) -> Result<Self, InvalidLayer> {
        let Operation { method, route, name, mut rules } = operation;
        if always_passes(&method) {
            return Err(InvalidLayer::Method { method, route });
        }
        rules.methods = vec![method.clone()];
        let name = name.unwrap_or_else(|| format!("{method} {route}"));
        if name.is_empty() || name.len() > SCOPE_PART_BYTES_MAX {
            return Err(InvalidLayer::Name { route, length: name.len() });
        }
        let named = Named { method, name: name.into() };
        Self::new(Some(named), rules, engine, grants, bind_credentials)
    }

    fn new(
        named: Option<Named>,
        rules: Rules,
        engine: &Engine,
        grants: &Grants,
        bind_credentials: bool,
    ) -> Result<Self, InvalidLayer> {
        let forbidden = rules.response_headers.keep.iter().find(|name| is_never_stored(name));
        if let Some(name) = forbidden {
            return Err(InvalidLayer::Header(name.to_string()));
        }
        if rules.key.min > rules.key.max || rules.key.max > onceward_core::KEY_CHARS_MAX {
            return Err(InvalidLayer::KeyLength { min: rules.key.min, max: rules.key.max });
        }
        if !rules.mismatch_status.is_client_error() {
            return Err(InvalidLayer::MismatchStatus(rules.mismatch_status.as_u16()));
        }
        if let Some(ReferenceRules { from: ReferenceFrom::Body(pointer), .. }) = &rules.reference {
            check_pointer(pointer)?;
        }
        if let KeyFrom::Body(pointer) = &rules.key.from {
            check_pointer(pointer)?;
        }
        let engine = engine_for(&rules, engine)?;
        let grants = grants.under(&engine);
        let fingerprinter = Fingerprinter::new(&rules.fingerprint, bind_credentials)?;
        Ok(Self { named, rules, engine, grants, fingerprinter })
    }

    pub(crate) fn only_observes(&self) -> bool {
        self.rules.enforcement == Enforcement::Observe
    }

    fn guards(&self, method: &Method) -> bool {
        self.named.as_ref().map_or_else(
            || self.rules.methods.contains(method) && !always_passes(method),
            |named| named.method == *method,
        )
    }
}

fn check_pointer(pointer: &str) -> Result<(), InvalidPointer> {
    Selection::new(&[pointer], &[""; 0]).map(drop)
}

/// The engine with the rules' own times.
fn engine_for(rules: &Rules, engine: &Engine) -> Result<Engine, InvalidPolicy> {
    let mut policy = engine.policy().to_builder();
    if let Some(ttl) = rules.ttl {
        policy = policy.retention(ttl);
    }
    if let Some(ttl) = rules.reference.as_ref().and_then(|reference| reference.ttl) {
        policy = policy.reference_retention(ttl);
    }
    if let Some(expiry) = rules.expiry {
        policy = policy.expiry(expiry);
    }
    if let Some(lease) = rules.lease {
        policy = policy.lease(lease);
    }
    let on_lapse = rules.on_lapse.unwrap_or(engine.policy().on_lapse());
    policy = policy.on_lapse(on_lapse);
    policy = match rules.in_progress {
        InProgress::Wait(longest) => policy.wait(longest),
        InProgress::Reject | InProgress::Accepted => policy.wait(Duration::ZERO),
    };
    if rules.enforcement == Enforcement::Observe {
        policy = observing(policy, on_lapse);
    }
    Ok(engine.with_policy(policy.build()?))
}

/// A policy for claims that nobody waits for: what does not land soon is not worth trying, and
/// no resolver is asked about what was never guarded.
fn observing(policy: PolicyBuilder, on_lapse: OnLapse) -> PolicyBuilder {
    const PATIENCE: Duration = Duration::from_secs(2);
    let policy = policy.claim_patience(PATIENCE).settle_wait(PATIENCE).settle_patience(PATIENCE);
    match on_lapse {
        OnLapse::Resolve => policy.on_lapse(OnLapse::Unknown),
        OnLapse::Unknown | OnLapse::Takeover => policy,
    }
}

/// Methods that change nothing by definition.
fn always_passes(method: &Method) -> bool {
    method.is_safe()
}

impl Shared {
    /// Who guards a request; `None` lets it pass.
    pub(crate) fn guard<B>(self: &Arc<Self>, request: &Request<B>) -> Option<Guarded> {
        let method = request.method();
        if always_passes(method) {
            return None;
        }
        let guards = |place: &&Place| self.guards[**place].guards(method);
        let named = self.routes.at(request.uri().path()).ok();
        let named = named.and_then(|at| at.value.iter().find(guards));
        let place = *named.or_else(|| self.others.as_ref().filter(guards))?;
        let guard = &self.guards[place];
        let may_pass = !guard.rules.required && !guard.only_observes();
        if let KeyFrom::Header(name) = &guard.rules.key.from
            && may_pass
            && !request.headers().contains_key(name)
        {
            return None;
        }
        let unnamed = guard.named.is_none().then(|| unnamed(request).into());
        Some(Guarded { shared: Arc::clone(self), place, unnamed })
    }

    pub(crate) fn count_unguarded(&self) {
        self.unguarded.fetch_add(1, Ordering::Relaxed);
    }
}

/// The operation of a request that nobody has named: its method and its route, and where
/// the route is not known, all routes. Then a key used for two paths is a mismatch, and
/// never a replay of the other.
fn unnamed<B>(request: &Request<B>) -> String {
    let route = matched_route(request).unwrap_or("*");
    let operation = format!("{} {route}", request.method());
    if operation.len() > SCOPE_PART_BYTES_MAX {
        format!("{} *", request.method())
    } else {
        operation
    }
}

#[cfg(feature = "axum")]
fn matched_route<B>(request: &Request<B>) -> Option<&str> {
    request.extensions().get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched_route<B>(_request: &Request<B>) -> Option<&str> {
    None
}

/// Why settings do not make a layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLayer {
    /// Two operations at one route, or a template that is none.
    #[error("the route {route:?} cannot be guarded: {why}")]
    Route {
        /// The template.
        route: String,
        /// What is wrong with it.
        why: String,
    },
    /// A method that changes nothing.
    #[error("{method} {route} changes nothing and always passes; guard POST, PUT, PATCH or DELETE")]
    Method {
        /// The method.
        method: Method,
        /// The route.
        route: String,
    },
    /// An operation's name that is empty or too long.
    #[error(
        "the operation at {route:?} has a name of {length} bytes; \
         give it one of 1 to {SCOPE_PART_BYTES_MAX}"
    )]
    Name {
        /// The route.
        route: String,
        /// How long the name is.
        length: usize,
    },
    /// Credentials as a tenant.
    #[error("credentials are bound to keys of a caller and name no tenant; use them as the caller")]
    Tenant,
    /// A header that must not be kept.
    #[error("the response header {0} belongs to one caller or one connection and is never kept")]
    Header(String),
    /// Impossible lengths.
    #[error("keys of {min} to {max} characters cannot be; 1 to 255 is the widest range")]
    KeyLength {
        /// The smallest.
        min: usize,
        /// The largest.
        max: usize,
    },
    /// A mismatch must be an error.
    #[error("mismatch_status is {0}; it must be a 4xx status, such as 422 or 409")]
    MismatchStatus(u16),
    /// Times that do not fit together.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// A fingerprint rule that is no JSON pointer.
    #[error(transparent)]
    Pointer(#[from] InvalidPointer),
}
