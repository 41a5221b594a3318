//! Orders that are paid once, although the provider loses answers and the order service may
//! have to try again. The README walks through it.

mod charging;
mod provider;

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
    BoxError, DownstreamKey, Engine, Finding, MemoryStore, OnLapse, OperationId, Policy, Record,
    Recovery, Resolver, Verdict,
};
use onceward_http::{Execution, Fate, Onceward, Operation, Rules, outcome_of};
use serde_json::json;

pub use charging::Charging;
pub use provider::{Charge, Line, NewCharge, Provider};

use charging::Charged;

/// The order service.
pub fn app(charging: Charging) -> Result<Router, BoxError> {
    let store = Arc::new(MemoryStore::new());
    // Whoever comes with a key whose outcome is unknown makes us ask the provider first.
    let recovery = Recovery::new(store.clone(), Arc::new(AskProvider(charging.clone())));
    let policy = Policy::builder().on_lapse(OnLapse::Resolve).build()?;
    let engine = Engine::builder(store).recovery(recovery).policy(policy).build();
    let once = Onceward::layer(engine)
        .single_tenant()
        .operation(Operation::post("/orders").named("orders.create"))
        .build()?;
    Ok(Router::new().route("/orders", post(create)).layer(once).with_state(charging))
}

/// Says by its answer what is known about the money, and by [`Fate`] what that means for the
/// key. Two of the four ends are final and are kept as they are.
async fn create(
    State(charging): State<Charging>,
    execution: Execution,
    Json(new): Json<NewCharge>,
) -> Response {
    // The same on every attempt at this order: the provider makes one charge of them.
    let key = execution.downstream_key();
    println!("  shop: attempt {} to charge under {key}", execution.grant().attempt());
    match charging.charge(&key, &new).await {
        Charged::Yes(charge) => paid(execution.operation(), &charge).map(Body::from),
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

/// Finds out what became of an order by the key that the provider knows it under.
struct AskProvider(Charging);

#[async_trait]
impl Resolver for AskProvider {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let key = DownstreamKey::of(&record.operation);
        // Not reached: an error, which leaves the outcome unknown.
        Ok(match self.0.find(&key).await? {
            Some(charge) => {
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
