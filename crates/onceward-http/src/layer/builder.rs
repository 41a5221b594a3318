//! The settings of a layer.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use onceward_core::{BoxError, Engine};

use super::OncewardLayer;
use super::compile::{Compiler, InvalidLayer};
use super::operation::Operation;
use crate::exchange::{
    Admission, LayerState, OperationIndex, PermitKind, ProtectedOperation, ReplayCache,
};
use crate::handler::SensitiveReply;
use crate::observe::Observer;
use crate::problem::ProblemFormat;
use crate::request::{ParentSource, ScopeSources, Source};
use crate::response::Rebuild;
use crate::rules::Rules;

/// Type state of a [`LayerBuilder`] without the owner of a key.
#[derive(Debug)]
pub struct Unscoped;

/// Type state of a [`LayerBuilder`] with the owner of a key.
#[derive(Debug)]
pub struct Scoped;

/// The settings of an [`OncewardLayer`].
#[must_use]
pub struct LayerBuilder<S> {
    engine: Engine,
    permits: PermitKind,
    scope_sources: ScopeSources,
    operations: Vec<Operation>,
    others: Option<Rules>,
    format: ProblemFormat,
    rebuild: Option<Rebuild>,
    admission: Option<Arc<dyn Admission>>,
    observer: Option<Arc<dyn Observer>>,
    scoped: PhantomData<S>,
}

impl LayerBuilder<Unscoped> {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            permits: PermitKind::Leased,
            scope_sources: ScopeSources::default(),
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

impl<S> LayerBuilder<S> {
    /// Sets the source of the tenant.
    pub fn tenant(mut self, source: Source) -> LayerBuilder<Scoped> {
        self.scope_sources.tenant = Some(source);
        self.scoped()
    }

    /// Sets the source of the caller.
    pub fn caller(mut self, source: Source) -> LayerBuilder<Scoped> {
        self.scope_sources.caller = Some(source);
        self.scoped()
    }

    /// Lets all callers share one namespace of keys: safe only if they are one party.
    pub fn single_tenant(self) -> LayerBuilder<Scoped> {
        self.scoped()
    }

    /// Sets the source of the API version, as a part of the scope: **the same key under another
    /// version is another key and runs**. So a client that is upgraded between two attempts has two
    /// effects. [`FingerprintRules::api_version`](crate::FingerprintRules::api_version) refuses such
    /// a retry instead, and is recommended.
    pub fn api_version(mut self, source: Source) -> Self {
        self.scope_sources.api_version = Some(source);
        self
    }

    /// Sets the source of the parent resource, such as a cart: the same key under another parent is
    /// another key and runs.
    pub fn parent(mut self, source: Source) -> Self {
        self.scope_sources.parent = Some(ParentSource::Value(source));
        self
    }

    /// Takes the parent resource from a parameter of the operation's route: `cart` of
    /// `/carts/{cart}/orders`. Keys of routes without it have no parent. Percent escapes are decoded.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onceward_core::{Engine, MemoryStore};
    /// use onceward_http::{Onceward, Operation, Source};
    ///
    /// # let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let layer = Onceward::layer(engine)
    ///     .caller(Source::credentials())
    ///     .parent_in_path("cart")
    ///     .operation(Operation::post("/carts/{cart}/orders").named("orders.create"))
    ///     .build()?;
    /// # Ok::<(), onceward_http::InvalidLayer>(())
    /// ```
    pub fn parent_in_path(mut self, parameter: impl Into<String>) -> Self {
        let parameter = parameter.into().into_boxed_str();
        self.scope_sources.parent = Some(ParentSource::PathParameter(parameter));
        self
    }

    /// Sets the source of the region, where each region decides on its own: the same key in another
    /// region is another key and runs.
    pub fn region(mut self, source: Source) -> Self {
        self.scope_sources.region = Some(source);
        self
    }

    fn scoped(self) -> LayerBuilder<Scoped> {
        LayerBuilder {
            engine: self.engine,
            permits: self.permits,
            scope_sources: self.scope_sources,
            operations: self.operations,
            others: self.others,
            format: self.format,
            rebuild: self.rebuild,
            admission: self.admission,
            observer: self.observer,
            scoped: PhantomData,
        }
    }

    /// Adds an operation with its own rules.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Sets the rules of requests that match no named operation (the defaults: requests with a key
    /// are protected).
    pub fn others(mut self, rules: Rules) -> Self {
        self.others = Some(rules);
        self
    }

    /// Lets requests pass that match no named operation, with a key or without.
    pub fn only_named(mut self) -> Self {
        self.others = None;
        self
    }

    /// Sets the page that explains the error codes (Onceward's own documentation).
    pub fn problem_docs(mut self, address: impl Into<String>) -> Self {
        self.format.docs = address.into();
        self
    }

    /// Sets the path prefix of the status pages of operations (`/onceward`).
    pub fn operations_at(mut self, prefix: impl Into<String>) -> Self {
        self.format.operations_at = prefix.into();
        self
    }

    /// Sets the format of refusals, and the path prefix of status pages.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.format = format;
        self
    }

    /// Sets the function that makes [`Sensitive`](crate::Sensitive) replies again.
    pub fn rebuild<F, R>(mut self, rebuild: F) -> Self
    where
        F: Fn(SensitiveReply) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response<Bytes>, BoxError>> + Send + 'static,
    {
        self.rebuild = Some(Arc::new(move |reply| Box::pin(rebuild(reply))));
        self
    }

    /// Sets the admission of requests and of new keys: quotas.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    #[cfg(feature = "postgres")]
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    #[cfg(feature = "postgres")]
    pub(super) fn permits(mut self, permits: PermitKind) -> Self {
        self.permits = permits;
        self
    }

    /// Sets the receiver of the events of protected requests.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }
}

impl LayerBuilder<Scoped> {
    /// Checks the settings and builds the layer.
    pub fn build(self) -> Result<OncewardLayer, InvalidLayer> {
        let Self { engine, permits, scope_sources, operations, others, format, .. } = self;
        let (rebuild, admission, observer) = (self.rebuild, self.admission, self.observer);
        if let Some(part) = scope_sources.credentials_elsewhere() {
            return Err(InvalidLayer::Credentials(part));
        }
        check_parent(scope_sources.parent.as_ref(), &operations)?;
        let bind_credentials = scope_sources.bind_credentials();
        let version_header = scope_sources.api_version.as_ref().and_then(Source::header_name);
        let compiler =
            Compiler { engine: &engine, permits: &permits, bind_credentials, version_header };
        let mut compiled = Vec::new();
        let mut by_route = BTreeMap::<String, Vec<OperationIndex>>::new();
        for operation in operations {
            by_route.entry(operation.route.clone()).or_default().push(compiled.len());
            compiled.push(compiler.named(operation)?);
        }
        let mut routes = matchit::Router::new();
        for (route, indexes) in by_route {
            let invalid = |error: matchit::InsertError| error.to_string();
            let inserted = routes.insert(&route, indexes).map_err(invalid);
            inserted.map_err(|why| InvalidLayer::Route { route, why })?;
        }
        let others = match others {
            Some(rules) => {
                compiled.push(compiler.operation(None, rules)?);
                Some(compiled.len() - 1)
            }
            None => None,
        };
        if let Some(observer) = &observer {
            compiled.iter().for_each(|operation| configured(&**observer, operation));
        }
        let replay_cache = engine.recalls().then(ReplayCache::new);
        let state = LayerState {
            engine,
            operations: compiled,
            routes,
            others,
            scope_sources,
            format,
            rebuild,
            admission,
            observer,
            tap_budget: Arc::default(),
            replay_cache,
        };
        Ok(OncewardLayer { state: Arc::new(state) })
    }
}

/// Refuses a path parameter that no route has: it would never be found.
fn check_parent(
    parent: Option<&ParentSource>,
    operations: &[Operation],
) -> Result<(), InvalidLayer> {
    let Some(ParentSource::PathParameter(name)) = parent else { return Ok(()) };
    match operations.iter().any(|operation| operation.has_path_parameter(name)) {
        true => Ok(()),
        false => Err(InvalidLayer::PathParameter(name.to_string())),
    }
}

/// Tells an observer the names that an operation's requests have, as far as they are known.
fn configured(observer: &dyn Observer, operation: &ProtectedOperation) {
    let mode = operation.rules.mode;
    match &operation.named {
        Some(named) => observer.configured(&named.name, mode),
        None => {
            let methods = operation.rules.methods.iter();
            methods.for_each(|method| observer.configured(&format!("{method} *"), mode));
        }
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
