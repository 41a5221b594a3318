//! What the holder of a claim says: more time, or what came of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use onceward_core::{Fenced, RecordId, RenewRequest, SettleRequest, Settlement};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::access::{WorkerCaller, can_see};
use super::lease::{self, Lease};
use super::openapi::{RequestErrors, SettleErrors};
use super::result::{BytesBody, ClaimResult};
use super::{Claims, with_timeout};
use crate::api::{ApiProblem, Caller, Payload};

/// What came of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultBody {
    /// As it was granted.
    lease: Lease,
    /// What every later claim of the key gets, as any JSON. `null` without it.
    #[serde(default)]
    #[schema(value_type = Value, required = false)]
    result: Option<Box<RawValue>>,
    /// The same, if it is not JSON.
    bytes: Option<BytesBody>,
}

/// Which claim it is about.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseBody {
    /// As it was granted.
    lease: Lease,
}

/// Which claim is to last longer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    /// As it was granted.
    lease: Lease,
    /// For how long from now.
    #[serde(rename = "for")]
    #[schema(pattern = "^([1-9]|[1-5][0-9]|60)(s|m)$", example = "30s")]
    duration: Option<String>,
}

/// It counts.
#[derive(Serialize, ToSchema)]
pub(super) struct Applied {
    status: AppliedStatus,
    /// The lease from now on, if it was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lease: Option<Lease>,
}

/// Now, or by an earlier sending of the same.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AppliedStatus {
    Applied,
}

/// What can be said about a claim.
pub(super) enum LeaseAction {
    Renew { duration: Option<String> },
    Settle(Settlement),
}

type ApiResult = Result<Json<Applied>, ApiProblem>;

/// Keep a claim for longer.
///
/// Every third of the lease is often enough. 409 means that the lease has lapsed: begin
/// nothing more, and say what came of it if you know.
#[utoipa::path(
    post,
    path = "/v1/claims/renew",
    operation_id = "renew",
    request_body = RenewBody,
    responses((status = 200, body = Applied, description = "It lasts longer"), SettleErrors, RequestErrors)
)]
pub(super) async fn renew(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(RenewBody { lease, duration }): Payload<RenewBody>,
) -> ApiResult {
    claims.apply(&caller, &lease, LeaseAction::Renew { duration }).await.map(Json)
}

/// It was done.
///
/// Accepted even after the lease has lapsed, as long as nobody else was granted the key.
/// Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/complete",
    operation_id = "complete",
    request_body = ResultBody,
    responses((status = 200, body = Applied, description = "It counts"), SettleErrors, RequestErrors)
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

/// It failed for good: every later claim of the key gets this failure.
///
/// Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/fail",
    operation_id = "fail",
    request_body = ResultBody,
    responses((status = 200, body = Applied, description = "It counts"), SettleErrors, RequestErrors)
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

/// Nobody knows what came of it, as after a provider that did not answer.
///
/// Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/unknown",
    operation_id = "unknown",
    request_body = LeaseBody,
    responses((status = 200, body = Applied, description = "It counts"), SettleErrors, RequestErrors)
)]
pub(super) async fn unknown(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(LeaseBody { lease }): Payload<LeaseBody>,
) -> ApiResult {
    claims.apply(&caller, &lease, LeaseAction::Settle(Settlement::Unknown)).await.map(Json)
}

/// Nothing has happened: the key is free for the next one.
///
/// Only if that is certain. Safe to send again.
#[utoipa::path(
    post,
    path = "/v1/claims/release",
    operation_id = "release",
    request_body = LeaseBody,
    responses((status = 200, body = Applied, description = "It counts"), SettleErrors, RequestErrors)
)]
pub(super) async fn release(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(LeaseBody { lease }): Payload<LeaseBody>,
) -> ApiResult {
    claims.apply(&caller, &lease, LeaseAction::Settle(Settlement::Release)).await.map(Json)
}

impl ResultBody {
    fn split(self) -> (Lease, ClaimResult) {
        (self.lease, ClaimResult { result: self.result, bytes: self.bytes })
    }
}

impl Claims {
    /// Hears what the holder of a claim says.
    pub(super) async fn apply(
        &self,
        caller: &Caller,
        lease: &Lease,
        action: LeaseAction,
    ) -> Result<Applied, ApiProblem> {
        let (id, holder) = lease.parse()?;
        self.must_exist(caller, &id).await?;
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
                applied(with_timeout(self.store.settle(&request)).await?)?;
                None
            }
        };
        Ok(Applied { status: AppliedStatus::Applied, lease })
    }

    /// A record's tenant never changes, so what is seen here holds for what follows.
    async fn must_exist(&self, caller: &Caller, id: &RecordId) -> Result<(), ApiProblem> {
        let record = with_timeout(self.store.get(id)).await?;
        match record.filter(|record| can_see(caller, record.scope.tenant())) {
            Some(_) => Ok(()),
            None => Err(claim_not_found()),
        }
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
    let title = "The claim is no longer yours";
    ApiProblem::new(StatusCode::CONFLICT, "LEASE_LOST", title).detail(
        "The lease has lapsed, somebody else has taken over, or the matter is settled otherwise. \
         Begin nothing more; claim the key again to learn what counts.",
    )
}

fn claim_not_found() -> ApiProblem {
    ApiProblem::not_found("No claim like this was granted, or it is past its time.")
}
