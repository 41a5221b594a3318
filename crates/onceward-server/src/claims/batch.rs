//! Many claims, or many words about claims, in one request. Each is answered by itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use onceward_core::Settlement;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Claims;
use super::access::Worker;
use super::claim::{ClaimBody, ClaimResponse};
use super::lease::Lease;
use super::openapi::Refusals;
use super::result::{BytesBody, ClaimResult};
use super::settle::{Applied, Word};
use crate::api::{ApiProblem, Caller, Payload, read_json};

/// Items of a batch: more would hold up what comes behind it.
const ITEMS_MAX: usize = 100;

/// Many things to do once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimsBatch {
    /// Each as in `POST /v1/claims`. What is wrong with one is told in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    claims: Items,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct ClaimsAnswers {
    answers: Vec<ClaimsAnswer>,
}

/// What `POST /v1/claims` would have answered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClaimsAnswer {
    /// With status 200.
    Claim(ClaimResponse),
    /// With the problem's status.
    Problem(ApiProblem),
}

/// Many words about claims.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettlementsBatch {
    /// Each as in `POST /v1/claims/…`, with `action` for the end of the path. What is wrong
    /// with one is told in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    settlements: Items,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct SettlementsAnswers {
    answers: Vec<SettlementsAnswer>,
}

/// What the request would have been answered by itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SettlementsAnswer {
    /// With status 200.
    Settlement(Applied),
    /// With the problem's status.
    Problem(ApiProblem),
}

/// One word about a claim.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettlementItem {
    action: Action,
    lease: Lease,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    bytes: Option<BytesBody>,
    #[serde(rename = "for")]
    time: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Renew,
    Complete,
    Fail,
    Unknown,
    Release,
}

/// Claim many things at once.
///
/// Each is decided by itself, and one that is refused does not hold up the others.
#[utoipa::path(
    post,
    path = "/v1/claims/batch",
    operation_id = "claim_batch",
    request_body = ClaimsBatch,
    responses((status = 200, body = ClaimsAnswers, description = "What became of each"), Refusals)
)]
pub(super) async fn claims(
    State(claims): State<Arc<Claims>>,
    Worker(caller): Worker,
    Payload(ClaimsBatch { claims: Items(items) }): Payload<ClaimsBatch>,
) -> Json<ClaimsAnswers> {
    let claim = async |item: Box<RawValue>| {
        let body: ClaimBody = read_json(item.get().as_bytes())?;
        claims.claim(&caller, body).await
    };
    let answer = async |item| match claim(item).await {
        Ok(answer) => ClaimsAnswer::Claim(answer),
        Err(problem) => ClaimsAnswer::Problem(problem),
    };
    Json(ClaimsAnswers { answers: join_all(items.into_iter().map(answer)).await })
}

/// Renew, complete, fail, give up or release many claims at once.
///
/// Each is decided by itself, and one that is refused does not hold up the others.
#[utoipa::path(
    post,
    path = "/v1/settlements/batch",
    operation_id = "settle_batch",
    request_body = SettlementsBatch,
    responses(
        (status = 200, body = SettlementsAnswers, description = "What became of each"),
        Refusals
    )
)]
pub(super) async fn settlements(
    State(claims): State<Arc<Claims>>,
    Worker(caller): Worker,
    Payload(SettlementsBatch { settlements: Items(items) }): Payload<SettlementsBatch>,
) -> Json<SettlementsAnswers> {
    let answer = async |item| match settle(&claims, &caller, item).await {
        Ok(applied) => SettlementsAnswer::Settlement(applied),
        Err(problem) => SettlementsAnswer::Problem(problem),
    };
    Json(SettlementsAnswers { answers: join_all(items.into_iter().map(answer)).await })
}

async fn settle(
    claims: &Claims,
    caller: &Caller,
    item: Box<RawValue>,
) -> Result<Applied, ApiProblem> {
    let item: SettlementItem = read_json(item.get().as_bytes())?;
    let (lease, word) = item.split()?;
    claims.hear(caller, &lease, word).await
}

impl SettlementItem {
    fn split(self) -> Result<(Lease, Word), ApiProblem> {
        let Self { action, lease, result, bytes, time } = self;
        let has_result = result.is_some() || bytes.is_some();
        if has_result && !matches!(action, Action::Complete | Action::Fail) {
            return Err(ApiProblem::bad_request("only complete and fail have a result"));
        }
        if time.is_some() && action != Action::Renew {
            return Err(ApiProblem::bad_request("only renew has a time to last (for)"));
        }
        let result = ClaimResult { result, bytes };
        let word = match action {
            Action::Renew => Word::Renew { time },
            Action::Complete => Word::Settle(Settlement::Complete(result.into_outcome()?)),
            Action::Fail => Word::Settle(Settlement::Fail(result.into_outcome()?)),
            Action::Unknown => Word::Settle(Settlement::Unknown),
            Action::Release => Word::Settle(Settlement::Release),
        };
        Ok((lease, word))
    }
}

/// Objects that are read one by one.
struct Items(Vec<Box<RawValue>>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::<Box<RawValue>>::deserialize(deserializer)?;
        let objects = items.iter().all(|item| item.get().starts_with('{'));
        if objects && (1..=ITEMS_MAX).contains(&items.len()) {
            return Ok(Self(items));
        }
        Err(D::Error::custom(format!("wrong items, expected 1 to {ITEMS_MAX} objects")))
    }
}
