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
use super::access::WorkerCaller;
use super::claim::{ClaimBody, ClaimResponse};
use super::lease::Lease;
use super::openapi::RequestErrors;
use super::result::{BytesBody, ClaimResult};
use super::settle::{Applied, LeaseAction};
use crate::api::{ApiProblem, Caller, Payload, read_json};

/// Items of a batch: more would hold up what comes behind it.
const ITEMS_MAX: usize = 100;

/// Many things to do once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBatch {
    /// Each as in `POST /v1/claims`. What is wrong with one is told in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    claims: Items,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct ClaimBatchResponse {
    answers: Vec<ClaimBatchItem>,
}

/// What `POST /v1/claims` would have answered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClaimBatchItem {
    /// With status 200.
    Claim(ClaimResponse),
    /// With the problem's status.
    Problem(ApiProblem),
}

/// Many words about claims.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettlementBatch {
    /// Each as in `POST /v1/claims/…`, with `action` for the end of the path. What is wrong
    /// with one is told in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    settlements: Items,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct SettlementBatchResponse {
    answers: Vec<SettlementBatchItem>,
}

/// What the request would have been answered by itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SettlementBatchItem {
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
    duration: Option<String>,
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
    request_body = ClaimBatch,
    responses((status = 200, body = ClaimBatchResponse, description = "What became of each"), RequestErrors)
)]
pub(super) async fn claims(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(ClaimBatch { claims: Items(items) }): Payload<ClaimBatch>,
) -> Json<ClaimBatchResponse> {
    let claim = async |item: Box<RawValue>| {
        let body: ClaimBody = read_json(item.get().as_bytes())?;
        claims.claim(&caller, body).await
    };
    let answer = async |item| match claim(item).await {
        Ok(answer) => ClaimBatchItem::Claim(answer),
        Err(problem) => ClaimBatchItem::Problem(problem),
    };
    Json(ClaimBatchResponse { answers: join_all(items.into_iter().map(answer)).await })
}

/// Renew, complete, fail, give up or release many claims at once.
///
/// Each is decided by itself, and one that is refused does not hold up the others.
#[utoipa::path(
    post,
    path = "/v1/settlements/batch",
    operation_id = "settle_batch",
    request_body = SettlementBatch,
    responses(
        (status = 200, body = SettlementBatchResponse, description = "What became of each"),
        RequestErrors
    )
)]
pub(super) async fn settlements(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(SettlementBatch { settlements: Items(items) }): Payload<SettlementBatch>,
) -> Json<SettlementBatchResponse> {
    let answer = async |item| match settle(&claims, &caller, item).await {
        Ok(applied) => SettlementBatchItem::Settlement(applied),
        Err(problem) => SettlementBatchItem::Problem(problem),
    };
    Json(SettlementBatchResponse { answers: join_all(items.into_iter().map(answer)).await })
}

async fn settle(
    claims: &Claims,
    caller: &Caller,
    item: Box<RawValue>,
) -> Result<Applied, ApiProblem> {
    let item: SettlementItem = read_json(item.get().as_bytes())?;
    let (lease, action) = item.split()?;
    claims.apply(caller, &lease, action).await
}

impl SettlementItem {
    fn split(self) -> Result<(Lease, LeaseAction), ApiProblem> {
        let Self { action, lease, result, bytes, duration } = self;
        let has_result = result.is_some() || bytes.is_some();
        if has_result && !matches!(action, Action::Complete | Action::Fail) {
            return Err(ApiProblem::bad_request("only complete and fail have a result"));
        }
        if duration.is_some() && action != Action::Renew {
            return Err(ApiProblem::bad_request("only renew has a time to last (for)"));
        }
        let result = ClaimResult { result, bytes };
        let action = match action {
            Action::Renew => LeaseAction::Renew { duration },
            Action::Complete => LeaseAction::Settle(Settlement::Complete(result.into_outcome()?)),
            Action::Fail => LeaseAction::Settle(Settlement::Fail(result.into_outcome()?)),
            Action::Unknown => LeaseAction::Settle(Settlement::Unknown),
            Action::Release => LeaseAction::Settle(Settlement::Release),
        };
        Ok((lease, action))
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
