//! Looking up an operation.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use onceward_core::{DownstreamKey, OperationId, OperationStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::access::{ReaderCaller, can_see};
use super::openapi::{NotFound, ReadErrors};
use super::result::{BytesBody, ClaimResult};
use super::scope::{self, SentScope};
use super::{Claims, with_timeout};
use crate::api::{ApiProblem, Caller, RecordState, Rfc3339};

/// The scope and key of an operation.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeyQuery {
    /// The tenant. The default is the tenant of the token, if it has exactly one, or `-`.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    tenant: Option<String>,
    /// The caller on whose behalf it runs.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    caller: Option<String>,
    /// The name of the operation.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    operation: String,
    /// The version of the API, if the claim had one.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    api_version: Option<String>,
    /// The parent resource, if the claim had one.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    parent: Option<String>,
    /// The region, if the claim had one.
    #[param(
        min_length = 1,
        max_length = 255,
        pattern = "^([ -~]{1,255}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,63})$"
    )]
    region: Option<String>,
    /// The idempotency key.
    #[param(min_length = 1, max_length = 255, pattern = "^[ -~]*[!-~][ -~]*$")]
    key: String,
}

impl KeyQuery {
    fn scope(&self) -> SentScope<'_> {
        SentScope {
            tenant: self.tenant.as_deref(),
            caller: self.caller.as_deref(),
            operation: &self.operation,
            api_version: self.api_version.as_deref(),
            parent: self.parent.as_deref(),
            region: self.region.as_deref(),
        }
    }
}

/// An operation.
#[derive(Serialize, ToSchema)]
pub(super) struct OperationView {
    /// The id of the operation.
    #[schema(format = Uuid)]
    operation_id: String,
    /// The state.
    state: RecordState,
    /// The tenant.
    tenant: String,
    /// The caller.
    caller: String,
    /// The name of the operation.
    operation: String,
    /// The version of the API, if it is a part of the scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    api_version: Option<String>,
    /// The parent resource, if it is a part of the scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    parent: Option<String>,
    /// The region, if it is a part of the scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    region: Option<String>,
    /// Number of grants.
    attempts: u32,
    /// The fence of the last grant.
    #[schema(minimum = 0)]
    fence: u64,
    /// The idempotency key that attempts send to the next system. Look the effect up there by it.
    downstream_key: String,
    /// Time of the first grant, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    /// Time of the last change, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Rfc3339,
    /// The result, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    result: Option<Box<RawValue>>,
    /// The result, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes: Option<BytesBody>,
}

/// Show an operation.
#[utoipa::path(
    get,
    path = "/v1/claims/{operation_id}",
    operation_id = "get",
    params(("operation_id" = String, Path, format = Uuid, description = "The id of the operation")),
    responses((status = 200, body = OperationView, description = "The operation"), NotFound, ReadErrors)
)]
pub(super) async fn get(
    State(claims): State<Arc<Claims>>,
    ReaderCaller(caller): ReaderCaller,
    Path(operation_id): Path<String>,
) -> Result<Json<OperationView>, ApiProblem> {
    let id = operation_id.parse().map_err(|_| not_found())?;
    claims.view(&caller, &id).await.map(Json)
}

/// Show an operation by its key.
#[utoipa::path(
    get,
    path = "/v1/claims",
    operation_id = "get_by_key",
    params(KeyQuery),
    responses((status = 200, body = OperationView, description = "The operation"), NotFound, ReadErrors)
)]
pub(super) async fn get_by_key(
    State(claims): State<Arc<Claims>>,
    ReaderCaller(caller): ReaderCaller,
    query: Result<Query<KeyQuery>, QueryRejection>,
) -> Result<Json<OperationView>, ApiProblem> {
    let message = "the query must have operation and key, and may have tenant, caller, \
                   api_version, parent and region, each once";
    let Query(query) = query.map_err(|_| ApiProblem::bad_request(message))?;
    // A caller that may not see the tenant does not learn whether the operation exists.
    let hidden = |it: ApiProblem| if it.status == 403 { not_found() } else { it };
    let scope = query.scope().parse(&caller).map_err(hidden)?;
    let key = scope::key(&query.key)?;
    let id = claims.engine.identity().record_id(&scope, &key);
    let record = with_timeout(claims.store.get(&id)).await?.ok_or_else(not_found)?;
    claims.view(&caller, &record.operation).await.map(Json)
}

impl Claims {
    async fn view(&self, caller: &Caller, id: &OperationId) -> Result<OperationView, ApiProblem> {
        let operation = with_timeout(self.engine.operation(id)).await?;
        let operation = operation.filter(|it| can_see(caller, it.scope.tenant()));
        operation.as_ref().map(OperationView::of).ok_or_else(not_found)
    }
}

fn not_found() -> ApiProblem {
    ApiProblem::not_found("There is no such operation, or it has expired.")
}

impl OperationView {
    fn of(operation: &OperationStatus) -> Self {
        let ClaimResult { result, bytes } =
            operation.outcome.as_ref().map(ClaimResult::of).unwrap_or_default();
        let text = |part: Option<&str>| part.map(str::to_owned);
        Self {
            operation_id: operation.id.to_string(),
            state: operation.standing.into(),
            tenant: operation.scope.tenant().to_owned(),
            caller: operation.scope.caller().to_owned(),
            operation: operation.scope.operation().to_owned(),
            api_version: text(operation.scope.api_version()),
            parent: text(operation.scope.parent()),
            region: text(operation.scope.region()),
            attempts: operation.attempts,
            fence: operation.fence.0,
            downstream_key: DownstreamKey::of(&operation.id).as_str().to_owned(),
            created_at: operation.created_at.into(),
            updated_at: operation.updated_at.into(),
            result,
            bytes,
        }
    }
}
