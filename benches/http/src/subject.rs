//! The subjects of the comparison: the same routes, guarded in different ways.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use deadpool_postgres::Pool;
use idempotent::middleware::IdempotencyLayer;
use onceward_core::{Engine, MemoryLimits, MemoryStore, SystemAmbient};
use onceward_http::{Onceward, Operation, Source};
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

use crate::Fallible;
use crate::least::{self, Table};
use crate::orders::{self, Handler, KEY, TENANT};

/// As much as Onceward holds by its defaults.
pub(crate) const HELD_BYTES_MAX: usize = 1 << 20;

/// Far more than a run can fill: what is measured is not what a full store does.
const LIMITS: MemoryLimits = MemoryLimits { records_max: 50_000_000, bytes_max: 16 << 30 };

/// A way to guard the routes. Each keeps its replies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Nothing around the handler
    Bare,
    /// A layer that holds both bodies whole, and does nothing else: what a layer costs at least
    Holding,
    /// A layer that also hashes the request and keeps the answer in a map: what replaying costs at
    /// least
    Least,
    /// onceward-http on onceward-core's memory store
    Onceward,
    /// axum-idempotent on ruts sessions in moka
    AxumIdempotent,
    /// idempotent's tower layer on its memory store
    Idempotent,
}

impl Subject {
    pub(crate) const ALL: [Self; 6] = [
        Self::Bare,
        Self::Onceward,
        Self::AxumIdempotent,
        Self::Idempotent,
        Self::Holding,
        Self::Least,
    ];

    /// Those with a layer.
    pub(crate) const LAYERED: [Self; 5] =
        [Self::Onceward, Self::AxumIdempotent, Self::Idempotent, Self::Holding, Self::Least];

    /// The products, without the subjects that only mark a limit.
    pub(crate) const USABLE: [Self; 4] =
        [Self::Bare, Self::Onceward, Self::AxumIdempotent, Self::Idempotent];

    /// Whether a retry is to be replayed.
    pub(crate) fn guards(self) -> bool {
        match self {
            Self::Bare | Self::Holding => false,
            Self::Least | Self::Onceward | Self::AxumIdempotent | Self::Idempotent => true,
        }
    }

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Holding => "holding",
            Self::Least => "least",
            Self::Onceward => "onceward",
            Self::AxumIdempotent => "axum-idempotent",
            Self::Idempotent => "idempotent",
        }
    }

    /// The routes as this subject guards them. Needs a tokio runtime.
    pub(crate) fn router(self, database: Option<Pool>) -> Fallible<Router> {
        Ok(match self {
            Self::Bare => orders::routes(database, |routes| routes),
            Self::Holding => orders::routes(database, |routes| routes.layer(from_fn(hold))),
            Self::Least => {
                let layer = from_fn_with_state(Arc::<Table>::default(), least::guard);
                orders::routes(database, |routes| routes.layer(layer))
            }
            Self::Onceward => {
                let layer = onceward()?;
                orders::routes(database, |routes| routes.layer(layer))
            }
            Self::AxumIdempotent => orders::routes(database, axum_idempotent),
            Self::Idempotent => {
                let layer = idempotent()?;
                orders::routes(database, |routes| routes.layer(layer))
            }
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

async fn hold(request: Request, next: Next) -> Result<Response, StatusCode> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, HELD_BYTES_MAX).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    let (head, body) = next.run(Request::from_parts(head, body.into())).await.into_parts();
    let body = to_bytes(body, HELD_BYTES_MAX).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(Response::from_parts(head, body.into()))
}

/// Onceward with its defaults, a required key, and keys scoped by tenant.
fn onceward() -> Fallible<onceward_http::OncewardLayer> {
    let store = MemoryStore::with(LIMITS, Arc::new(SystemAmbient::new()));
    let layer = Onceward::layer(Engine::new(Arc::new(store)))
        .tenant(Source::header(TENANT))
        .operation(Operation::post(Handler::Quick.path()).named("orders.create"))
        .operation(Operation::post(Handler::Writing.path()).named("orders.write"));
    Ok(layer.build()?)
}

/// As its documentation says, the key from the header: by its default, a hash of the whole
/// request, a key changes nothing.
fn axum_idempotent(routes: Router) -> Router {
    let options = IdempotentOptions::default().use_idempotency_key_header(Some(KEY.as_str()), true);
    let sessions = SessionLayer::new(Arc::new(MokaStore::builder().build()))
        .with_cookie_options(CookieOptions::build().name("session"));
    routes
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(sessions)
        .layer(CookieManagerLayer::new())
}

/// As its documentation says, with keys scoped by tenant.
fn idempotent() -> Fallible<IdempotencyLayer<idempotent::memory::MemoryStore>> {
    let store = idempotent::memory::MemoryStore::builder().try_build()?;
    let tenant = |parts: &axum::http::request::Parts| {
        parts.headers.get(TENANT).and_then(|tenant| tenant.to_str().ok()).map(String::from)
    };
    Ok(IdempotencyLayer::new(store).require_key(true).scope(tenant))
}
