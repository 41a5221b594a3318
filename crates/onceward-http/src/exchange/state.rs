//! The state that all requests of a layer share, and the operation that a request belongs to.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};
use onceward_core::{BeginError, Engine, Intent, Key, RequestPath, SCOPE_PART_BYTES_MAX, Scope};

use super::admission::Admission;
use super::permit_kind::{Begun, PermitKind};
use super::replay_cache::ReplayCache;
use crate::body::TapBudget;
use crate::observe::{LogLimits, Observer};
use crate::problem::{Problem, ProblemFormat};
use crate::request::{Fingerprinter, RequestView, ScopeSources};
use crate::response::Rebuild;
use crate::rules::{KeyFrom, Mode, Rules};

/// The state of a layer. Each request counts as an owner, so the fields that requests read have
/// cache lines of their own.
#[repr(align(128))]
pub(crate) struct LayerState {
    pub(crate) engine: Engine,
    pub(crate) operations: Vec<ProtectedOperation>,
    pub(crate) routes: matchit::Router<Vec<OperationIndex>>,
    /// The rules of requests that match no named operation, if these are protected.
    pub(crate) others: Option<OperationIndex>,
    pub(crate) scope_sources: ScopeSources,
    pub(crate) format: ProblemFormat,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) admission: Option<Arc<dyn Admission>>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) tap_budget: Arc<TapBudget>,
    /// `None` if the store has no [`recall`](onceward_core::Store::recall).
    pub(crate) replay_cache: Option<ReplayCache>,
}

/// Position in [`LayerState::operations`].
pub(crate) type OperationIndex = usize;

/// An operation with its rules, ready for requests.
pub(crate) struct ProtectedOperation {
    /// `None` for requests that match no named operation.
    pub(crate) named: Option<NamedOperation>,
    pub(crate) rules: Rules,
    pub(crate) engine: Engine,
    pub(crate) permits: PermitKind,
    pub(crate) fingerprinter: Fingerprinter,
    pub(crate) log_limits: LogLimits,
}

/// Method and name of a named operation.
pub(crate) struct NamedOperation {
    pub(crate) method: Method,
    pub(crate) name: Box<str>,
}

impl ProtectedOperation {
    pub(crate) fn is_shadow(&self) -> bool {
        self.rules.mode == Mode::Shadow
    }

    /// Asks the engine whether to execute, replay or reject.
    pub(super) async fn begin(&self, intent: &Intent) -> Result<Begun, BeginError> {
        self.permits.begin(&self.engine, intent).await
    }

    fn protects(&self, method: &Method) -> bool {
        self.named.as_ref().map_or_else(
            || self.rules.methods.contains(method) && !method.is_safe(),
            |named| named.method == *method,
        )
    }
}

/// The operation that a request belongs to. Refers to it by its index, so that a request owns one
/// reference count only.
#[derive(Clone)]
pub(crate) struct MatchedOperation {
    pub(crate) state: Arc<LayerState>,
    index: OperationIndex,
    /// The name, if the operation has none.
    unnamed: Option<Box<str>>,
}

impl MatchedOperation {
    pub(crate) fn protected(&self) -> &ProtectedOperation {
        &self.state.operations[self.index]
    }

    /// The operation's name: of an unnamed one, its method and its route as far as it is known.
    pub(crate) fn name(&self) -> &str {
        let name = self.protected().named.as_ref().map(|named| &*named.name);
        name.or(self.unnamed.as_deref()).unwrap_or_default()
    }

    /// Returns the scope of a request's key.
    pub(super) fn scope(&self, head: &Parts) -> Result<Scope, Problem> {
        let parameter = |name: &str| self.path_parameter(head.uri.path(), name);
        self.state.scope_sources.resolve(head, self.name(), parameter)
    }

    /// Returns a parameter of the route; `None` if the route has no such parameter, or if the
    /// operation is not named and so has no route.
    fn path_parameter<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        self.protected().named.as_ref()?;
        self.state.routes.at(path).ok()?.params.get(name)
    }

    /// Returns the view of a buffered request.
    pub(super) fn view<'a>(&'a self, head: &'a Parts, body: &'a Bytes) -> RequestView<'a> {
        RequestView {
            method: &head.method,
            operation: self.name(),
            uri: &head.uri,
            headers: &head.headers,
            body,
            bytes_max: self.protected().rules.request_max_bytes,
        }
    }

    /// Returns the intent of a request.
    pub(super) fn intent(
        &self,
        request: &RequestView<'_>,
        scope: Scope,
        key: Key,
    ) -> Result<Intent, Problem> {
        let ProtectedOperation { rules, fingerprinter, .. } = self.protected();
        let (fingerprint, parts) = fingerprinter.fingerprint(request, &scope)?;
        let mut intent = Intent::new(scope, key, fingerprint).with_parts(parts);
        if let Some(reference) = &rules.reference {
            intent.reference = reference.find(request.headers, &request.decoded_body()?)?;
        }
        if rules.record_path && !self.name_tells(request.uri.path()) {
            intent.path = Some(RequestPath::new(request.uri.path()));
        }
        Ok(intent)
    }

    /// True if the name is that of an unnamed operation with a route that is a fixed path.
    fn name_tells(&self, path: &str) -> bool {
        let route = self.unnamed.as_deref().and_then(|name| name.split_once(' '));
        route.is_some_and(|(_method, route)| route == path)
    }
}

impl LayerState {
    /// Returns the operation that a request belongs to; `None` lets the request pass.
    pub(crate) fn match_operation<B>(
        self: &Arc<Self>,
        request: &Request<B>,
    ) -> Option<MatchedOperation> {
        let method = request.method();
        if method.is_safe() {
            return None;
        }
        let protects = |index: &&OperationIndex| self.operations[**index].protects(method);
        let named = self.routes.at(request.uri().path()).ok();
        let named = named.and_then(|at| at.value.iter().find(protects));
        let index = *named.or_else(|| self.others.as_ref().filter(protects))?;
        let operation = &self.operations[index];
        let may_pass = !operation.rules.required && !operation.is_shadow();
        if let KeyFrom::Header(name) = &operation.rules.key.from
            && may_pass
            && !request.headers().contains_key(name)
        {
            return None;
        }
        let unnamed = operation.named.is_none().then(|| unnamed(request).into());
        Some(MatchedOperation { state: Arc::clone(self), index, unnamed })
    }

    /// Returns the engine with the policy of an operation, by the name in its record.
    pub(super) fn engine_of(&self, operation: &str) -> &Engine {
        let is_named = |it: &&ProtectedOperation| {
            it.named.as_ref().is_some_and(|named| *named.name == *operation)
        };
        let named = self.operations.iter().find(is_named);
        let unnamed = || self.others.map(|index| &self.operations[index]);
        named.or_else(unnamed).map_or(&self.engine, |it| &it.engine)
    }
}

/// The name of an unnamed operation: method and route, or all routes if the route is not known. A
/// key that is used for two paths is then a mismatch, and never a replay of the other.
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
