//! One layer in front of all routes of a service. The README explains the example.

mod orders;
mod serve;
mod settings;
mod store;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, StatusCode};
use axum::routing::post;
use onceward::{Engine, FullStore, InvalidPolicy, Policy};
use onceward_http::{InvalidLayer, Onceward, ReplayRules, ReplayStatus, Rules, Source};

pub use orders::{Order, Orders};
pub use serve::{serve, stop_signal};
pub use settings::{InvalidSetting, Settings};
pub use store::{InvalidStore, StoreSetting};

/// Builds the engine on a store, whichever it is.
pub fn engine(store: Arc<dyn FullStore>, settings: &Settings) -> Result<Engine, InvalidPolicy> {
    let policy = Policy::builder().retention(settings.ttl).lease(settings.lease).build()?;
    Ok(Engine::builder(store).policy(policy).build())
}

/// Builds the service. The layer protects every route that is added here.
pub fn app(engine: Engine, orders: Orders, settings: &Settings) -> Result<Router, InvalidLayer> {
    let rules = Rules {
        required: false, // requests without a key pass through, unprotected
        mismatch_status: StatusCode::CONFLICT,
        replay: ReplayRules { status: ReplayStatus::Ok, ..ReplayRules::default() },
        response_max_bytes: settings.response_max_bytes,
        ..Rules::default()
    };
    let once = Onceward::layer(engine)
        .tenant(Source::uuid_header(HeaderName::from_static("x-tenant-id")))
        .others(rules)
        .build()?;
    Ok(Router::new()
        .route("/api/orders", post(orders::create).get(orders::list))
        .route("/api/orders/{id}/cancel", post(orders::cancel))
        .layer(once)
        .with_state(orders))
}
