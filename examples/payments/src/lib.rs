//! Orders that are paid once, even if the provider's responses are lost and the shop has to try
//! again. The README explains the example.

mod order_log;
mod provider;
mod provider_client;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use bytes::Bytes;
use onceward::{
    BoxError, DownstreamKey, Engine, Finding, FullStore, Identity, MemoryStore, OnLapse,
    OperationId, Policy, PolicyBuilder, Reconciler, ReconcilerSettings, Record, Recovery, Resolver,
    Verdict,
};
use onceward_http::{Execution, Fate, Onceward, Operation, Rules, outcome_of};
use serde_json::json;

pub use order_log::OrderLog;
pub use provider::{Charge, NewCharge, Provider, ProviderServer};
pub use provider_client::ProviderClient;

use provider_client::ChargeResult;

/// The order service, with its settings.
pub struct Shop {
    store: Arc<dyn FullStore>,
    provider: ProviderClient,
    order_log: OrderLog,
    policy: PolicyBuilder,
    resolve_on_retry: bool,
    reconciler: Option<ReconcilerSettings>,
    on_checkpoint: CheckpointHook,
}

impl fmt::Debug for Shop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shop").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Point in the processing of an order at which tests kill the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// The order is in the log, and the provider has not been called yet.
    OrderLogged,
    /// The call to the provider has ended, and its result is not in the log yet.
    ProviderCalled,
    /// The charge is in the log.
    PaymentLogged,
}

type CheckpointHook = Arc<dyn Fn(Checkpoint) + Send + Sync>;

impl Shop {
    /// A shop that stores its records in `store`. By default, a retry whose outcome is unknown
    /// asks the provider first.
    pub fn new(store: Arc<dyn FullStore>, provider: ProviderClient, order_log: OrderLog) -> Self {
        let policy = Policy::builder().on_lapse(OnLapse::Resolve);
        let on_checkpoint = Arc::new(|_| ());
        let (resolve_on_retry, reconciler) = (true, None);
        Self { store, provider, order_log, policy, resolve_on_retry, reconciler, on_checkpoint }
    }

    /// Replaces the policy.
    #[must_use]
    pub fn policy(mut self, policy: PolicyBuilder) -> Self {
        self.policy = policy;
        self
    }

    /// Retries do not ask the provider about unknown outcomes.
    #[must_use]
    pub fn without_resolver(mut self) -> Self {
        self.resolve_on_retry = false;
        self
    }

    /// Runs a reconciler, which asks the provider about unknown outcomes in the background.
    #[must_use]
    pub fn reconciler(mut self, settings: ReconcilerSettings) -> Self {
        self.reconciler = Some(settings);
        self
    }

    /// Calls a function at each checkpoint of each order, for tests.
    #[must_use]
    pub fn on_checkpoint(mut self, hook: impl Fn(Checkpoint) + Send + Sync + 'static) -> Self {
        self.on_checkpoint = Arc::new(hook);
        self
    }

    /// Builds the routes, and starts the reconciler on the current runtime.
    ///
    /// Registers the resolver before the first order: its "did not happen" counts only for
    /// operations that were claimed after that.
    pub async fn into_router(self) -> Result<Router, BoxError> {
        let (provider, order_log) = (self.provider, self.order_log);
        let resolver: Arc<dyn Resolver> =
            Arc::new(ProviderResolver { provider: provider.clone(), order_log: order_log.clone() });
        let mut engine = Engine::builder(self.store.clone()).policy(self.policy.build()?);
        if self.resolve_on_retry {
            engine = engine.recovery(Recovery::new(self.store.clone(), resolver.clone()));
        }
        if let Some(settings) = self.reconciler {
            let reconciler = Reconciler::new(self.store, resolver, Identity::unkeyed());
            let reconciler = reconciler.settings(settings);
            reconciler.register().await?;
            tokio::spawn(reconciler.run());
        }
        let once = Onceward::layer(engine.build())
            .single_tenant()
            .operation(Operation::post("/orders").named("orders.create"))
            .build()?;
        let state = AppState { provider, order_log, on_checkpoint: self.on_checkpoint };
        Ok(Router::new().route("/orders", post(create)).layer(once).with_state(state))
    }
}

/// The order service, with records in memory.
pub async fn app(provider: ProviderClient) -> Result<Router, BoxError> {
    Shop::new(Arc::new(MemoryStore::new()), provider, OrderLog::default()).into_router().await
}

/// State of the handler.
#[derive(Clone)]
struct AppState {
    provider: ProviderClient,
    order_log: OrderLog,
    on_checkpoint: CheckpointHook,
}

/// Charges the card of an order.
///
/// The response without a [`Fate`] is final: it is stored, and retries get it. `Fate` marks the
/// responses that are not final.
async fn create(
    State(state): State<AppState>,
    execution: Execution,
    Json(new): Json<NewCharge>,
) -> Response {
    // The same key on every attempt at this order, so that the provider charges it once.
    let key = execution.downstream_key();
    let order = execution.operation();
    println!("  shop: attempt {} to charge under {key}", execution.grant().attempt());
    if let Err(error) = state.order_log.record_requested(order) {
        return log_failed(&error, Fate::NothingHappened);
    }
    (state.on_checkpoint)(Checkpoint::OrderLogged);
    let result = state.provider.charge(&key, &new).await;
    (state.on_checkpoint)(Checkpoint::ProviderCalled);
    match result {
        ChargeResult::Charged(charge) => {
            if let Err(error) = state.order_log.record_paid(order, &charge.id) {
                return log_failed(&error, Fate::Unknown);
            }
            (state.on_checkpoint)(Checkpoint::PaymentLogged);
            paid_response(order, &charge).map(Body::from)
        }
        ChargeResult::Declined => {
            (StatusCode::PAYMENT_REQUIRED, message("the card was declined")).into_response()
        }
        // The key is free: a retry is executed as if this attempt had not been made.
        ChargeResult::NotSent => {
            let retry = [("retry-after", "1")];
            let why = message("the payment provider cannot be reached; nothing was charged");
            (StatusCode::SERVICE_UNAVAILABLE, Fate::NothingHappened, retry, why).into_response()
        }
        // A retry is not executed before the resolver has found out what happened.
        ChargeResult::ResponseLost => {
            let why = message("the payment provider did not answer; retry with the same key");
            (StatusCode::BAD_GATEWAY, Fate::Unknown, why).into_response()
        }
    }
}

fn log_failed(error: &std::io::Error, fate: Fate) -> Response {
    let why = message(&format!("the order log cannot be written: {error}"));
    (StatusCode::INTERNAL_SERVER_ERROR, fate, why).into_response()
}

/// Response for a paid order. The handler sends it, and the resolver stores it for retries when it
/// finds the charge, so it contains only what both of them know.
fn paid_response(order: OperationId, charge: &Charge) -> http::Response<Bytes> {
    let Charge { id, amount_cents, .. } = charge;
    let order = json!({ "order": order, "charge": id, "amountCents": amount_cents });
    let mut response = http::Response::new(Bytes::from(order.to_string()));
    *response.status_mut() = StatusCode::CREATED;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

fn message(text: &str) -> Json<serde_json::Value> {
    Json(json!({ "message": text }))
}

/// Asks the provider whether an order was charged, and adds a charge that is missing in the log.
struct ProviderResolver {
    provider: ProviderClient,
    order_log: OrderLog,
}

#[async_trait]
impl Resolver for ProviderResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let key = DownstreamKey::of(&record.operation);
        // If the provider cannot be reached, the error leaves the outcome unknown.
        Ok(match self.provider.find(&key).await? {
            Some(charge) => {
                self.order_log.record_paid(record.operation, &charge.id)?;
                let response = paid_response(record.operation, &charge);
                let happened = Verdict::Happened(outcome_of(response, &Rules::default()));
                Finding::new(happened, format!("the provider has charge {}", charge.id))
            }
            // "Did not happen" also promises that it will not happen later. The first request may
            // still be on its way to the provider. That does no harm, because the retry has the
            // same key and the provider makes one charge per key. Without such keys this would
            // have to be `Verdict::StillUnknown`.
            None => Finding::new(Verdict::DidNotHappen, format!("no charge under {key}")),
        })
    }

    fn name(&self) -> &str {
        "payment provider"
    }
}

/// Routes that make the provider unreachable and reachable again, for the README's commands:
/// `PUT /line/cut` and `PUT /line/mend`.
pub fn outage_routes(provider: Arc<ProviderServer>) -> Router {
    let change = async |State(provider): State<Arc<ProviderServer>>, Path(action): Path<String>| {
        match action.as_str() {
            "cut" => {
                provider.stop().await;
                StatusCode::NO_CONTENT
            }
            "mend" if provider.restart().await.is_ok() => StatusCode::NO_CONTENT,
            "mend" => StatusCode::CONFLICT,
            _ => StatusCode::NOT_FOUND,
        }
    };
    Router::new().route("/line/{action}", put(change)).with_state(provider)
}
