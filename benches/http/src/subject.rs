//! The subjects of the comparison: the same routes, guarded in different ways.

use std::fmt;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use deadpool_postgres::Pool;
use idempotent::middleware::IdempotencyLayer;
use onceward_core::{Engine, FullStore, MemoryLimits, MemoryStore, SystemAmbient};
use onceward_http::{Onceward, Operation, Source};
use onceward_stores::embedded::{EmbeddedStore, Settings};
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
    /// onceward-http on the embedded store, whose writer runs in a thread of its own
    OncewardEmbedded,
    /// axum-idempotent on ruts sessions in moka
    AxumIdempotent,
    /// idempotent's tower layer on its memory store
    Idempotent,
}

impl Subject {
    pub(crate) const ALL: [Self; 7] = [
        Self::Bare,
        Self::Onceward,
        Self::OncewardEmbedded,
        Self::AxumIdempotent,
        Self::Idempotent,
        Self::Holding,
        Self::Least,
    ];

    /// The subjects with a layer, on the network.
    pub(crate) const LAYERED: [Self; 5] =
        [Self::Onceward, Self::AxumIdempotent, Self::Idempotent, Self::Holding, Self::Least];

    /// The products, without the subjects that only mark a limit.
    pub(crate) const USABLE: [Self; 4] =
        [Self::Bare, Self::Onceward, Self::AxumIdempotent, Self::Idempotent];

    /// Whether a retry is to be replayed.
    pub(crate) fn guards(self) -> bool {
        match self {
            Self::Bare | Self::Holding => false,
            Self::Least | Self::Onceward | Self::OncewardEmbedded => true,
            Self::AxumIdempotent | Self::Idempotent => true,
        }
    }

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Holding => "holding",
            Self::Least => "least",
            Self::Onceward => "onceward",
            Self::OncewardEmbedded => "onceward-embedded",
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
                let layer = onceward(MemoryStore::with(LIMITS, Arc::new(SystemAmbient::new())))?;
                orders::routes(database, |routes| routes.layer(layer))
            }
            Self::OncewardEmbedded => {
                let directory = tempfile::tempdir()?;
                let layer = onceward(EmbeddedStore::open(directory.path(), Settings::default())?)?;
                // Removed with the routes.
                let directory = Extension(Arc::new(directory));
                orders::routes(database, |routes| routes.layer(layer).layer(directory))
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
fn onceward(store: impl FullStore) -> Fallible<onceward_http::OncewardLayer> {
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
