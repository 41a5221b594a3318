//! Orders that are paid once, although the provider loses answers and the order service may
//! have to try again. The README walks through it.

mod charging;
mod orders;
mod provider;

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

pub use charging::Charging;
pub use orders::Orders;
pub use provider::{Charge, Line, NewCharge, Provider};

use charging::Charged;

/// The order service.
pub struct Shop {
    store: Arc<dyn FullStore>,
    charging: Charging,
    orders: Orders,
    policy: PolicyBuilder,
    resolver: bool,
    reconciler: Option<ReconcilerSettings>,
    watch: Watch,
}

impl fmt::Debug for Shop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shop").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Where an order is on its way, for whoever watches: a test that kills the shop there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// It is in the shop's book, and nobody has asked for money yet.
    Wanted,
    /// The provider has answered, and the book does not say so yet.
    Charged,
    /// The book says that it is paid.
    Paid,
}

type Watch = Arc<dyn Fn(Point) + Send + Sync>;

impl Shop {
    /// A shop that keeps its records in a store. Whoever comes with a key whose outcome is
    /// unknown makes it ask the provider first.
    pub fn new(store: Arc<dyn FullStore>, charging: Charging, orders: Orders) -> Self {
        let policy = Policy::builder().on_lapse(OnLapse::Resolve);
        let watch = Arc::new(|_| ());
        Self { store, charging, orders, policy, resolver: true, reconciler: None, watch }
    }

    /// Another policy.
    #[must_use]
    pub fn policy(mut self, policy: PolicyBuilder) -> Self {
        self.policy = policy;
        self
    }

    /// Asks nobody: what is unknown stays so.
    #[must_use]
    pub fn without_resolver(mut self) -> Self {
        self.resolver = false;
        self
    }

    /// Asks about everything that is unknown now and then, whether anybody comes or not.
    #[must_use]
    pub fn reconciled(mut self, settings: ReconcilerSettings) -> Self {
        self.reconciler = Some(settings);
        self
    }

    /// Tells where orders are on their way.
    #[must_use]
    pub fn watched(mut self, watch: impl Fn(Point) + Send + Sync + 'static) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// Its routes. The reconciler runs on the runtime that calls this.
    ///
    /// Records the resolver's first use before the first order: it denies no operation that is
    /// older than itself.
    pub async fn open(self) -> Result<Router, BoxError> {
        let identity = Identity::unkeyed();
        let resolver = AskProvider { charging: self.charging.clone(), orders: self.orders.clone() };
        let resolver: Arc<dyn Resolver> = Arc::new(resolver);
        let mut engine = Engine::builder(self.store.clone()).policy(self.policy.build()?);
        if self.resolver {
            engine = engine.recovery(Recovery::new(self.store.clone(), resolver.clone()));
        }
        if let Some(settings) = self.reconciler {
            let reconciler = Reconciler::new(self.store, resolver, identity).settings(settings);
            reconciler.register().await?;
            tokio::spawn(reconciler.run());
        }
        let once = Onceward::layer(engine.build())
            .single_tenant()
            .operation(Operation::post("/orders").named("orders.create"))
            .build()?;
        let till = Till { charging: self.charging, orders: self.orders, watch: self.watch };
        Ok(Router::new().route("/orders", post(create)).layer(once).with_state(till))
    }
}

/// The order service, with records in memory.
pub async fn app(charging: Charging) -> Result<Router, BoxError> {
    Shop::new(Arc::new(MemoryStore::new()), charging, Orders::default()).open().await
}

/// What the handler works with.
#[derive(Clone)]
struct Till {
    charging: Charging,
    orders: Orders,
    watch: Watch,
}

/// Says by its answer what is known about the money, and by [`Fate`] what that means for the
/// key. Two of the four ends are final and are kept as they are.
async fn create(
    State(till): State<Till>,
    execution: Execution,
    Json(new): Json<NewCharge>,
) -> Response {
    // The same on every attempt at this order: the provider makes one charge of them.
    let key = execution.downstream_key();
    let order = execution.operation();
    println!("  shop: attempt {} to charge under {key}", execution.grant().attempt());
    if let Err(error) = till.orders.wanted(order) {
        return unwritten(&error, Fate::NothingHappened);
    }
    (till.watch)(Point::Wanted);
    let charged = till.charging.charge(&key, &new).await;
    (till.watch)(Point::Charged);
    match charged {
        Charged::Yes(charge) => {
            if let Err(error) = till.orders.paid(order, &charge.id) {
                return unwritten(&error, Fate::Unknown);
            }
            (till.watch)(Point::Paid);
            paid(order, &charge).map(Body::from)
        }
        Charged::Declined => {
            (StatusCode::PAYMENT_REQUIRED, told("the card was declined")).into_response()
        }
        // The key is free: the next attempt runs as if this one had not been.
        Charged::NeverSent => {
            let retry = [("retry-after", "1")];
            let why = told("the payment provider cannot be reached; nothing was charged");
            (StatusCode::SERVICE_UNAVAILABLE, Fate::NothingHappened, retry, why).into_response()
        }
        // The key is taken until somebody knows more.
        Charged::AnswerLost => {
            let why = told("the payment provider did not answer; ask again with the same key");
            (StatusCode::BAD_GATEWAY, Fate::Unknown, why).into_response()
        }
    }
}

fn unwritten(error: &std::io::Error, fate: Fate) -> Response {
    let why = told(&format!("the book of orders: {error}"));
    (StatusCode::INTERNAL_SERVER_ERROR, fate, why).into_response()
}

/// The answer for an order that is paid: to the first caller, and to a retry after the
/// resolver has found the charge. So it is made of what both of them know.
fn paid(order: OperationId, charge: &Charge) -> http::Response<Bytes> {
    let Charge { id, amount_cents, .. } = charge;
    let order = json!({ "order": order, "charge": id, "amountCents": amount_cents });
    let mut answer = http::Response::new(Bytes::from(order.to_string()));
    *answer.status_mut() = StatusCode::CREATED;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}

fn told(what: &str) -> Json<serde_json::Value> {
    Json(json!({ "told": what }))
}

/// Finds out what became of an order by the key that the provider knows it under, and writes
/// down what the shop had no time for.
struct AskProvider {
    charging: Charging,
    orders: Orders,
}

#[async_trait]
impl Resolver for AskProvider {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let key = DownstreamKey::of(&record.operation);
        // Not reached: an error, which leaves the outcome unknown.
        Ok(match self.charging.find(&key).await? {
            Some(charge) => {
                self.orders.paid(record.operation, &charge.id)?;
                let answer = paid(record.operation, &charge);
                let happened = Verdict::Happened(outcome_of(answer, &Rules::default()));
                Finding::new(happened, format!("the provider has charge {}", charge.id))
            }
            // "It did not happen" promises that it will not happen later either. Our first
            // request may still be on its way: that is harmless only because the retry goes
            // out under the same key, and the provider makes one charge per key. Without that,
            // this would have to be `Verdict::StillUnknown`.
            None => Finding::new(Verdict::DidNotHappen, format!("no charge under {key}")),
        })
    }

    fn name(&self) -> &str {
        "payment provider"
    }
}

/// Cuts and mends the line to the provider, for the walk: `PUT /line/cut`, `PUT /line/mend`.
pub fn switch(line: Arc<Line>) -> Router {
    let turn = async |State(line): State<Arc<Line>>, Path(how): Path<String>| match how.as_str() {
        "cut" => {
            line.cut().await;
            StatusCode::NO_CONTENT
        }
        "mend" if line.mend().await.is_ok() => StatusCode::NO_CONTENT,
        "mend" => StatusCode::CONFLICT,
        _ => StatusCode::NOT_FOUND,
    };
    Router::new().route("/line/{how}", put(turn)).with_state(line)
}
