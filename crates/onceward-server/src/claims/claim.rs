//! Claims.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use onceward_core::{
    Claim, ClaimRequest, DownstreamKey, Lapsed, OperationId, OwnerToken, TokenSource,
};
use onceward_http::Code;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Claims;
use super::access::WorkerCaller;
use super::fingerprint::ClaimFingerprint;
use super::lease::{self, Lease};
use super::openapi::{ClaimErrors, RequestErrors};
use super::result::{BytesBody, ClaimResult};
use super::scope::{self, SentScope};
use crate::api::{ApiProblem, Caller, Payload};

/// Delay after which to claim again while the operation is running.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MIN: Duration = Duration::from_millis(50);

/// A claim: the right to run one operation once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBody {
    /// The tenant. The default is the tenant of the token, if it has exactly one, or `-`.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$",
        example = "acme"
    )]
    tenant: Option<String>,
    /// The caller on whose behalf it runs. Keys of different callers are different keys.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    caller: Option<String>,
    /// The name of the operation, such as `payments.create`. Keys of different operations are
    /// different keys.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$",
        example = "payments.create"
    )]
    operation: String,
    /// The version of the API, as a part of the scope. The same key under another version is
    /// another key, so send the version that the first attempt had.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    api_version: Option<String>,
    /// The parent resource, such as an account or a cart. Keys of different parents are different
    /// keys.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    parent: Option<String>,
    /// The region. Keys of different regions are different keys. Names that begin with `onceward:`
    /// are reserved.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    region: Option<String>,
    /// The idempotency key: the same on every attempt, and never used for another request.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[ -~]*[!-~][ -~]*$",
        example = "order-1017"
    )]
    key: String,
    /// A digest of the request that the worker computed. Send this or `payload`.
    #[schema(min_length = 1, max_length = 255)]
    fingerprint: Option<String>,
    /// The request as any JSON. It is compared by its value, and only a digest is stored. Send
    /// this or `fingerprint`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Value, required = false)]
    payload: Option<Box<RawValue>>,
    /// Duration of the lease.
    #[schema(pattern = "^([1-9]|[1-5][0-9]|60)(s|m)$", example = "30s")]
    lease: Option<String>,
    /// The response to the next claim if the lease lapses.
    #[serde(default)]
    on_lapse: OnLapse,
    /// A random UUID that the worker draws for this attempt. A claim sent again with the same
    /// one gets the same grant. Without it, a grant whose response is lost holds the key until its
    /// lease lapses.
    owner: Option<Uuid>,
}

/// The response to the next claim after a lease has lapsed.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OnLapse {
    /// The outcome is unknown, until the holder, a resolver or an operator settles it.
    #[default]
    Unknown,
    /// The next claim is granted, with a higher fence and the same downstream key. Only for work
    /// that checks the fence or is idempotent by the downstream key.
    Takeover,
}

/// Keeps `null`, which is a payload too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Response to a claim.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum ClaimResponse {
    /// The operation is this worker's to run and settle.
    Granted {
        /// The id of the operation, the same on every attempt.
        #[schema(format = Uuid)]
        operation_id: String,
        /// The lease, to send with each renewal and the settlement.
        lease: Lease,
        /// The number of this attempt, from one.
        attempt: u32,
        /// The idempotency key for the next system, the same on every attempt.
        downstream_key: String,
    },
    /// The operation was completed before.
    Completed {
        /// The id of the operation.
        #[schema(format = Uuid)]
        operation_id: String,
        /// The result, if it is JSON.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Value, required = false)]
        result: Option<Box<RawValue>>,
        /// The result, if it is not JSON.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        bytes: Option<BytesBody>,
    },
    /// The operation failed for good before.
    Failed {
        /// The id of the operation.
        #[schema(format = Uuid)]
        operation_id: String,
        /// The result, if it is JSON.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Value, required = false)]
        result: Option<Box<RawValue>>,
        /// The result, if it is not JSON.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        bytes: Option<BytesBody>,
    },
}

/// Claim an operation.
///
/// Safe to send again with the same `owner`.
#[utoipa::path(
    post,
    path = "/v1/claims",
    operation_id = "claim",
    request_body = ClaimBody,
    responses((status = 200, body = ClaimResponse, description = "Granted, or settled before"), ClaimErrors, RequestErrors)
)]
pub(super) async fn post(
    State(claims): State<Arc<Claims>>,
    WorkerCaller(caller): WorkerCaller,
    Payload(body): Payload<ClaimBody>,
) -> Result<Json<ClaimResponse>, ApiProblem> {
    claims.claim(&caller, body).await.map(Json)
}

impl Claims {
    pub(super) async fn claim(
        &self,
        caller: &Caller,
        body: ClaimBody,
    ) -> Result<ClaimResponse, ApiProblem> {
        let sent = SentScope {
            tenant: body.tenant.as_deref(),
            caller: body.caller.as_deref(),
            operation: &body.operation,
            api_version: body.api_version.as_deref(),
            parent: body.parent.as_deref(),
            region: body.region.as_deref(),
        };
        let (scope, key) = (sent.parse(caller)?, scope::key(&body.key)?);
        let content = ClaimFingerprint::parse(body.fingerprint, body.payload)?;
        let duration = lease::duration(body.lease.as_deref(), &self.limits)?;
        let id = self.engine.identity().record_id(&scope, &key);
        let (fingerprint, parts) = content.fingerprint();
        let (owner, drawn_by) = match body.owner {
            Some(owner) => (OwnerToken::from_bytes(*owner.as_bytes()), TokenSource::Caller),
            None => (OwnerToken::draw(&self.ambient), TokenSource::Engine),
        };
        let request = ClaimRequest::new(&self.ambient, id, scope, fingerprint, duration)
            .with_owner(owner)
            .with_sketch(self.engine.identity().sketch(&id, &parts))
            .with_lapsed(body.on_lapse.into())
            .with_unpurged(self.engine.policy().unpurged());
        let claim = self.engine.send_claim(request.clone(), drawn_by).await;
        self.report_claim(&request, &claim);
        match claim? {
            Claim::Granted { lease, operation, attempt } => Ok(ClaimResponse::Granted {
                operation_id: operation.to_string(),
                lease: Lease::granted(&id, owner, lease, duration),
                attempt,
                downstream_key: DownstreamKey::of(&operation).as_str().to_owned(),
            }),
            Claim::Completed { operation, outcome } | Claim::Failed { operation, outcome }
                if outcome.is_invalidated() =>
            {
                Err(ApiProblem::of(Code::NotReplayable).operation(&operation).detail(INVALIDATED))
            }
            Claim::Completed { operation, outcome } => {
                let (operation_id, ClaimResult { result, bytes }) =
                    (operation.to_string(), ClaimResult::of(&outcome));
                Ok(ClaimResponse::Completed { operation_id, result, bytes })
            }
            Claim::Failed { operation, outcome } => {
                let (operation_id, ClaimResult { result, bytes }) =
                    (operation.to_string(), ClaimResult::of(&outcome));
                Ok(ClaimResponse::Failed { operation_id, result, bytes })
            }
            Claim::Running { operation, lease_left } => Err(running(&operation, lease_left)),
            Claim::Unknown { operation } => {
                Err(ApiProblem::of(Code::OutcomeUnknown).operation(&operation))
            }
            Claim::Mismatch { first } => {
                let difference = self.engine.identity().compare(&id, &first, &parts);
                let differs = content.differences(difference);
                self.log_mismatch(&request, &differs);
                Err(ApiProblem::of(Code::KeyReused).differs(differs))
            }
            Claim::Expired => Err(ApiProblem::of(Code::KeyExpired)),
        }
    }
}

/// The detail for a result that an operator has invalidated.
const INVALIDATED: &str = "The stored result was invalidated by an operator, because what the \
    operation did has been corrected since. The key does not run again: do not repeat the work.";

/// The running owner may settle at any time, and its lease ends at a known one.
fn running(operation: &OperationId, lease_left: Duration) -> ApiProblem {
    let delay = lease_left.clamp(RETRY_AFTER_MIN, RETRY_AFTER);
    ApiProblem::of(Code::InProgress).operation(operation).retry_after(delay)
}

impl From<OnLapse> for Lapsed {
    fn from(on_lapse: OnLapse) -> Self {
        match on_lapse {
            OnLapse::Unknown => Self::Unknown,
            OnLapse::Takeover => Self::Takeover,
        }
    }
}
