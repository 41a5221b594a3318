//! Several claims, renewals or settlements in one request. Each has a response of its own.

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
use super::settle::{Applied, LeaseAction, reported};
use crate::api::{ApiProblem, Caller, Payload, read_json};

/// Largest number of items: a larger batch would delay the requests behind it.
const ITEMS_MAX: usize = 100;

/// A batch of claims.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBatch {
    /// Each as in `POST /v1/claims`. An invalid one gets a problem in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    claims: Items,
}

/// The response of each item, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct ClaimBatchResponse {
    answers: Vec<ClaimBatchItem>,
}

/// The response that `POST /v1/claims` would have had.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClaimBatchItem {
    /// A response with status 200.
    Claim(ClaimResponse),
    /// A problem with its own status.
    Problem(ApiProblem),
}

/// A batch of renewals and settlements.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettlementBatch {
    /// Each as in `POST /v1/claims/…`, with the last part of the path as `action`. An invalid one
    /// gets a problem in its place.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 100)]
    settlements: Items,
}

/// The response of each item, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct SettlementBatchResponse {
    answers: Vec<SettlementBatchItem>,
}

/// The response that the request would have had by itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SettlementBatchItem {
    /// A response with status 200.
    Settlement(Applied),
    /// A problem with its own status.
    Problem(ApiProblem),
}

/// One renewal or settlement.
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
    reason: Option<String>,
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

/// Send several claims at once.
///
/// Each is decided independently; a refused one does not affect the others.
#[utoipa::path(
    post,
    path = "/v1/claims/batch",
    operation_id = "claim_batch",
    request_body = ClaimBatch,
    responses((status = 200, body = ClaimBatchResponse, description = "The response of each item"), RequestErrors)
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

/// Renew, complete, fail, give up or release several claims at once.
///
/// Each is decided independently; a refused one does not affect the others.
#[utoipa::path(
    post,
    path = "/v1/settlements/batch",
    operation_id = "settle_batch",
    request_body = SettlementBatch,
    responses(
        (status = 200, body = SettlementBatchResponse, description = "The response of each item"),
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
        let Self { action, lease, result, bytes, duration, reason } = self;
        let has_result = result.is_some() || bytes.is_some();
        if has_result && !matches!(action, Action::Complete | Action::Fail) {
            return Err(ApiProblem::bad_request(
                "only the actions complete and fail have a result",
            ));
        }
        if duration.is_some() && action != Action::Renew {
            return Err(ApiProblem::bad_request("only the action renew has a duration (`for`)"));
        }
        if reason.is_some() && action != Action::Unknown {
            return Err(ApiProblem::bad_request("only the action unknown has a reason"));
        }
        let result = ClaimResult { result, bytes };
        let action = match action {
            Action::Renew => LeaseAction::Renew { duration },
            Action::Complete => LeaseAction::Settle(Settlement::Complete(result.into_outcome()?)),
            Action::Fail => LeaseAction::Settle(Settlement::Fail(result.into_outcome()?)),
            Action::Unknown => LeaseAction::Settle(reported(reason.as_deref())),
            Action::Release => LeaseAction::Settle(Settlement::Release),
        };
        Ok((lease, action))
    }
}

/// Objects that are parsed one by one.
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
