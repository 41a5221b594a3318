//! Renewals and settlements by the holder of a claim.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use onceward_core::{
    Fenced, Record, RecordId, RenewRequest, SettleRequest, Settlement, UnknownCause,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::access::{WorkerCaller, can_see};
use super::lease::{self, Lease};
use super::openapi::{RequestErrors, SettleErrors};
use super::result::{BytesBody, ClaimResult};
use super::{Claims, with_timeout};
use crate::api::{ApiProblem, Caller, Payload};

/// A settlement with a result.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultBody {
    /// The lease of the grant or of the last renewal.
    lease: Lease,
    /// The result that later claims of the key get, as any JSON. The default is `null`.
    #[serde(default)]
    #[schema(value_type = Value, required = false)]
    result: Option<Box<RawValue>>,
    /// The result, if it is not JSON.
    bytes: Option<BytesBody>,
}

/// A settlement without a result.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseBody {
    /// The lease of the grant or of the last renewal.
    lease: Lease,
}

/// A settlement as unknown.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnknownBody {
    /// The lease of the grant or of the last renewal.
    lease: Lease,
    /// Why it is unknown, for operators: one short line. It is stored with the record; longer
    /// texts are cut.
    #[schema(max_length = 200, example = "no answer from the bank")]
    reason: Option<String>,
}

/// A renewal.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    /// The lease of the grant or of the last renewal.
    lease: Lease,
    /// Duration of the lease, from now.
    #[serde(rename = "for")]
    #[schema(pattern = "^([1-9]|[1-5][0-9]|60)(s|m)$", example = "30s")]
    duration: Option<String>,
}

/// The renewal or settlement was applied.
#[derive(Serialize, ToSchema)]
pub(super) struct Applied {
    status: AppliedStatus,
    /// The new lease, after a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lease: Option<Lease>,
}

/// Applied now, or by the same request before.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AppliedStatus {
    Applied,
}

/// A request about a claim.
pub(super) enum LeaseAction {
    Renew { duration: Option<String> },
    Settle(Settlement),
}

type ApiResult = Result<Json<Applied>, ApiProblem>;

/// Extend the lease of a claim.
///
/// Renew at a third of the lease. 409 means that the lease has lapsed: begin nothing new, and
/// settle the claim if the result is known.
#[utoipa::path(
    post,
    path = "/v1/claims/renew",
    operation_id = "renew",
    request_body = RenewBody,
    responses((status = 200, body = Applied, description = "The lease is extended"), SettleErrors, RequestErrors)
)]
pub(super) async fn renew(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(RenewBody { lease, duration }): Payload<RenewBody>,
) -> ApiResult {
    claims.apply(&caller, &lease, LeaseAction::Renew { duration }).await.map(Json)
}

/// Settle a claim as completed.
///
/// Accepted even after the lease has lapsed, unless the key was granted again. Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/complete",
    operation_id = "complete",
    request_body = ResultBody,
    responses((status = 200, body = Applied, description = "Applied"), SettleErrors, RequestErrors)
)]
pub(super) async fn complete(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(body): Payload<ResultBody>,
) -> ApiResult {
    let (lease, result) = body.split();
    let action = LeaseAction::Settle(Settlement::Complete(result.into_outcome()?));
    claims.apply(&caller, &lease, action).await.map(Json)
}

/// Settle a claim as failed for good: later claims of the key get this failure.
///
/// Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/fail",
    operation_id = "fail",
    request_body = ResultBody,
    responses((status = 200, body = Applied, description = "Applied"), SettleErrors, RequestErrors)
)]
pub(super) async fn fail(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(body): Payload<ResultBody>,
) -> ApiResult {
    let (lease, result) = body.split();
    let action = LeaseAction::Settle(Settlement::Fail(result.into_outcome()?));
    claims.apply(&caller, &lease, action).await.map(Json)
}

/// Mark the outcome of a claim as unknown, for example after a timeout at a provider.
///
/// Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/unknown",
    operation_id = "unknown",
    request_body = UnknownBody,
    responses((status = 200, body = Applied, description = "Applied"), SettleErrors, RequestErrors)
)]
pub(super) async fn unknown(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(UnknownBody { lease, reason }): Payload<UnknownBody>,
) -> ApiResult {
    let action = LeaseAction::Settle(reported(reason.as_deref()));
    claims.apply(&caller, &lease, action).await.map(Json)
}

/// Release a claim because nothing has happened: the key is free.
///
/// Only if that is certain. Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/release",
    operation_id = "release",
    request_body = LeaseBody,
    responses((status = 200, body = Applied, description = "Applied"), SettleErrors, RequestErrors)
)]
pub(super) async fn release(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(LeaseBody { lease }): Payload<LeaseBody>,
) -> ApiResult {
    claims.apply(&caller, &lease, LeaseAction::Settle(Settlement::Release)).await.map(Json)
}

/// The settlement of a worker that does not know the outcome.
pub(super) fn reported(reason: Option<&str>) -> Settlement {
    Settlement::Unknown(UnknownCause::reported(reason.unwrap_or_default()))
}

impl ResultBody {
    fn split(self) -> (Lease, ClaimResult) {
        (self.lease, ClaimResult { result: self.result, bytes: self.bytes })
    }
}

impl Claims {
    /// Applies a renewal or settlement of the holder.
    pub(super) async fn apply(
        &self,
        caller: &Caller,
        lease: &Lease,
        action: LeaseAction,
    ) -> Result<Applied, ApiProblem> {
        let (id, holder) = lease.parse()?;
        let record = self.record(caller, &id).await?;
        let lease = match action {
            LeaseAction::Renew { duration } => {
                let duration = lease::duration(duration.as_deref(), &self.limits)?;
                let request = RenewRequest { id, holder, lease: duration };
                let renewed = applied(with_timeout(self.store.renew(&request)).await?)?;
                Some(Lease::granted(&id, holder.owner, renewed, duration))
            }
            LeaseAction::Settle(settlement) => {
                let retention = self.limits.retention();
                let request = SettleRequest { id, holder, settlement, retention };
                let settled = with_timeout(self.store.settle(&request)).await;
                self.report_settlement(&record, &request.settlement, &settled);
                applied(settled?)?;
                None
            }
        };
        Ok(Applied { status: AppliedStatus::Applied, lease })
    }

    /// Returns the record of a lease. A record's tenant never changes, so the check holds for the call that follows.
    async fn record(&self, caller: &Caller, id: &RecordId) -> Result<Record, ApiProblem> {
        let record = with_timeout(self.store.get(id)).await?;
        let visible = record.filter(|record| can_see(caller, record.scope.tenant()));
        visible.ok_or_else(claim_not_found)
    }
}

fn applied<T>(fenced: Fenced<T>) -> Result<T, ApiProblem> {
    match fenced {
        Fenced::Applied(value) => Ok(value),
        Fenced::Stale => Err(lease_lost()),
        Fenced::Missing => Err(claim_not_found()),
    }
}

fn lease_lost() -> ApiProblem {
    let title = "The lease is lost";
    ApiProblem::new(StatusCode::CONFLICT, "LEASE_LOST", title).detail(
        "The lease has lapsed, the key was granted again, or the operation is settled otherwise. \
         Begin nothing new; claim the key again to get the current state.",
    )
}

fn claim_not_found() -> ApiProblem {
    ApiProblem::not_found("There is no such claim, or it has expired.")
}
