//! The tower layer: its settings, and the service that it makes.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Onceward`], [`OncewardLayer`] |
//! | `builder` | [`LayerBuilder`] |
//! | `operation` | [`Operation`], a method and a route with their rules |
//! | `compile` | checking the rules of an operation, and preparing them for requests |
//! | `service` | [`OncewardService`]: which requests are protected, shadowed or pass |
//! | `transactions` | handlers in PostgreSQL transactions (feature `postgres`) |

mod builder;
mod compile;
mod operation;
mod service;
#[cfg(feature = "postgres")]
mod transactions;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use onceward_core::{Engine, Scope};
use tower_layer::Layer;

use crate::exchange::LayerState;
use crate::problem::Problem;

pub use builder::{LayerBuilder, Scoped, Unscoped};
pub use compile::InvalidLayer;
pub use operation::Operation;
pub use service::{OncewardService, ResponseFuture, RouteMatch};

/// Entry point: [`Onceward::layer`].
#[derive(Debug)]
pub struct Onceward;

impl Onceward {
    /// Builds a layer on an engine. It must know the owner of a key: set
    /// [`tenant`](LayerBuilder::tenant) and [`caller`](LayerBuilder::caller), or
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
    /// let layer = onceward_http::Onceward::layer(engine).build(); // the owner of a key is not set
    /// ```
    pub fn layer(engine: Engine) -> LayerBuilder<Unscoped> {
        LayerBuilder::new(engine)
    }
}

/// A tower layer that makes retries of HTTP requests safe. See [`Onceward::layer`].
#[derive(Clone)]
pub struct OncewardLayer {
    state: Arc<LayerState>,
}

impl OncewardLayer {
    /// Returns the tenant and the caller of a request, as the scope of an operation. For pages of
    /// your own that show an operation to its owner only, like the layer's status pages.
    ///
    /// # Errors
    ///
    /// A refusal to send to the client: the request has no valid tenant or caller.
    pub fn scope_of(&self, request: &Parts, operation: &str) -> Result<Scope, Problem> {
        self.state.scope_sources.owner(request, operation)
    }
}

impl<S> Layer<S> for OncewardLayer {
    type Service = OncewardService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        OncewardService::new(inner, Arc::clone(&self.state))
    }
}

impl fmt::Debug for OncewardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OncewardLayer(…)")
    }
}
