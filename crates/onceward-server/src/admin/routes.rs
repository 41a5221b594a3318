//! The HTTP routes of the admin API, behind bearer tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use onceward_core::{Identity, Purger, RecoveryObserver};
use onceward_stores::SharedStore;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::AdminApi;
use super::json_object::JsonObject;
use super::requests::{
    AcceptLoss, FindRecord, InvalidateCache, InvalidateRecord, ListDecisions, ListRecords,
    PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord, VerifyRecords,
};
use super::service::AdminService;
use super::views::{
    AcceptLossDone, CacheInvalidationDone, DecisionPage, PurgeDone, RecordDetails, RecordPage,
    StoreTotals, VerifiedPage,
};
use crate::api::{ApiProblem, CurrentApiSettings, Payload, QueryParams, RecordRef};

/// Body limit: a reply in base64 that is larger than any that is stored by default.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Authenticates callers by their tokens and gives each a service.
#[derive(Clone)]
pub(crate) struct AdminRoutes {
    pub(crate) store: SharedStore,
    pub(crate) identity: Identity,
    pub(crate) purger: Purger,
    pub(crate) settings: CurrentApiSettings,
    pub(crate) recoveries: Arc<dyn RecoveryObserver>,
}

impl AdminRoutes {
    /// The routes.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/openapi.json", get(openapi))
            .route("/v1/records", get(records))
            .route("/v1/records/find", post(find))
            .route("/v1/records/{id}", get(record))
            .route("/v1/records/{id}/resolve", post(resolve))
            .route("/v1/records/{id}/release", post(release))
            .route("/v1/records/{id}/invalidate", post(invalidate))
            .route("/v1/invalidate-cache", post(invalidate_cache))
            .route("/v1/purge", post(purge))
            .route("/v1/accept-loss", post(accept_loss))
            .route("/v1/operations/{id}", get(operation))
            .route("/v1/decisions", get(decisions))
            .route("/v1/stats", get(stats))
            .route("/v1/verify", post(verify))
            .method_not_allowed_fallback(async || {
                ApiProblem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "METHOD_NOT_ALLOWED",
                    "Method not allowed",
                )
                .detail("/openapi.json lists the methods of each path.")
            })
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(self)
    }
}

/// Authenticates before anything else of the request is read.
impl FromRequestParts<AdminRoutes> for AdminService {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        routes: &AdminRoutes,
    ) -> Result<Self, ApiProblem> {
        let caller = routes.settings.caller(&parts.headers)?;
        let outcome_rules = routes.settings.outcome_rules();
        let (store, identity) = (Arc::clone(&routes.store), routes.identity.clone());
        let (purger, recoveries) = (routes.purger.clone(), Arc::clone(&routes.recoveries));
        Ok(Self::new(store, identity, purger, outcome_rules, caller).observer(recoveries))
    }
}

/// Problem responses of reads.
struct ReadErrors;

impl IntoResponses for ReadErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problem_responses(&[
            ("400", "The id or a parameter is invalid"),
            ("401", "The token is missing or unknown"),
            ("403", "The token does not allow this request"),
            ("404", "Not found, or not visible to this token"),
            ("503", "The store is unavailable, or the record cannot be read"),
        ])
    }
}

/// Problem responses of reads with a body.
struct FindErrors;

impl IntoResponses for FindErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut all = WriteErrors::responses();
        all.remove("409");
        all
    }
}

/// Problem responses of decisions and other requests with a body.
struct WriteErrors;

impl IntoResponses for WriteErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut all = ReadErrors::responses();
        all.extend(problem_responses(&[
            ("408", "The body did not arrive in time"),
            ("409", "The state of the record does not allow it, or the fence has changed"),
            ("413", "The body is too large"),
            ("415", "The content type is not application/json"),
            ("422", "The body does not match the schema"),
        ]));
        all
    }
}

fn problem_responses(
    errors: &[(&str, &str)],
) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let problem = || Content::new(Some(Ref::from_schema_name("ApiProblem")));
    let response = |description: &str| {
        ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", problem())
    };
    let entry = |(status, description): &(&str, &str)| {
        (status.to_string(), response(description).build().into())
    };
    errors.iter().map(entry).collect()
}

type ApiResult<T> = Result<Json<T>, ApiProblem>;

/// Inspects and resolves operations. The roles `reader` and `worker` may read, `operator` may also
/// decide. A token with tenants sees only their records.
#[derive(OpenApi)]
#[openapi(
    info(title = "Onceward admin API", license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")),
    paths(
        openapi, records, record, find, resolve, release, invalidate, invalidate_cache, purge, accept_loss,
        operation, decisions, stats, verify
    ),
    components(schemas(ApiProblem)),
    modifiers(&Bearer),
    security(("token" = []))
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// List records, one page at a time.
#[utoipa::path(
    get,
    path = "/v1/records",
    params(ListRecords),
    responses((status = 200, description = "A page. `next` is the start of the next one", body = RecordPage), ReadErrors)
)]
async fn records(
    service: AdminService,
    QueryParams(request): QueryParams<ListRecords>,
) -> ApiResult<RecordPage> {
    Ok(Json(service.records(&request).await?))
}

/// Show one record, and the decisions about it.
#[utoipa::path(
    get,
    path = "/v1/records/{id}",
    params(("id" = String, Path, description = "The id of an operation or of a record", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"), ShowRecord),
    responses((status = 200, description = "The record", body = RecordDetails), ReadErrors)
)]
async fn record(
    service: AdminService,
    Path(id): Path<String>,
    QueryParams(request): QueryParams<ShowRecord>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.record(&record_ref(&id)?, &request).await?))
}

/// Find the record of a client's idempotency key, and the decisions about it.
///
/// The key is in the body, so that it enters no log of URLs. A key with a business reference leads
/// to the record of the reference.
#[utoipa::path(
    post,
    path = "/v1/records/find",
    request_body = FindRecord,
    responses((status = 200, description = "The record", body = RecordDetails), FindErrors)
)]
async fn find(
    service: AdminService,
    Payload(JsonObject(request)): Payload<JsonObject<FindRecord>>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.find(&request).await?))
}

/// Decide that an operation has happened, and store the reply that retries get.
///
/// Allowed only while the outcome is unknown. The decision is written to the audit log first. The
/// same request sent again is not decided again.
#[utoipa::path(
    post,
    path = "/v1/records/{id}/resolve",
    params(("id" = String, Path, description = "The id of an operation or of a record", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")),
    request_body = ResolveRecord,
    responses((status = 200, description = "Decided", body = RecordDetails), WriteErrors)
)]
async fn resolve(
    service: AdminService,
    Path(id): Path<String>,
    Payload(JsonObject(request)): Payload<JsonObject<ResolveRecord>>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.resolve(&record_ref(&id)?, &request).await?))
}

/// Decide that an operation has not happened and cannot happen any more, and free its key.
///
/// Allowed only while the outcome is unknown; an operation with a live lease is refused. The
/// decision is written to the audit log first. The same request sent again is not decided again.
#[utoipa::path(
    post,
    path = "/v1/records/{id}/release",
    params(("id" = String, Path, description = "The id of an operation or of a record", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")),
    request_body = ReleaseRecord,
    responses((status = 200, description = "Decided", body = RecordDetails), WriteErrors)
)]
async fn release(
    service: AdminService,
    Path(id): Path<String>,
    Payload(JsonObject(request)): Payload<JsonObject<ReleaseRecord>>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.release(&record_ref(&id)?, &request).await?))
}

/// Decide that the stored response of a settled operation must not be replayed any more.
///
/// For corrections of data that removed the effect. The response is deleted and the record stays:
/// retries get 409, and the key does not run again within its retention. A key with a business
/// reference leads to the record of the reference. The decision is written to the audit log first.
/// The same request sent again is not decided again.
#[utoipa::path(
    post,
    path = "/v1/records/{id}/invalidate",
    params(("id" = String, Path, description = "The id of an operation or of a record", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")),
    request_body = InvalidateRecord,
    responses((status = 200, description = "Invalidated", body = RecordDetails), WriteErrors)
)]
async fn invalidate(
    service: AdminService,
    Path(id): Path<String>,
    Payload(JsonObject(request)): Payload<JsonObject<InvalidateRecord>>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.invalidate(&record_ref(&id)?, &request).await?))
}

/// Invalidate copies of records in the cache in front of the store.
///
/// For records that were changed in the store by hand. Safe at any time: the next retry asks the
/// store, and its answer is cached again. When the response comes, no process answers from a copy
/// that was made before. The decision is written to the audit log first.
#[utoipa::path(
    post,
    path = "/v1/invalidate-cache",
    request_body = InvalidateCache,
    responses((status = 200, description = "Invalidated", body = CacheInvalidationDone), WriteErrors)
)]
async fn invalidate_cache(
    service: AdminService,
    Payload(JsonObject(request)): Payload<JsonObject<InvalidateCache>>,
) -> ApiResult<CacheInvalidationDone> {
    Ok(Json(service.invalidate_cache(&request).await?))
}

/// Remove a batch of expired records. Send the request again while `more` is true.
///
/// Running and unknown records and unexpired decisions are never removed. If the store has an
/// archive, the records are written to it first.
#[utoipa::path(
    post,
    path = "/v1/purge",
    request_body = PurgeRecords,
    responses((status = 200, description = "Removed", body = PurgeDone), WriteErrors)
)]
async fn purge(
    service: AdminService,
    Payload(JsonObject(request)): Payload<JsonObject<PurgeRecords>>,
) -> ApiResult<PurgeDone> {
    Ok(Json(service.purge(&request).await?))
}

/// Accept that the store has lost records, so that it grants claims again.
///
/// Safe only if no client retries a request from before the loss, or if the effects of such
/// requests may be repeated. The decision is written to the audit log afterwards. The same request
/// sent again changes nothing.
#[utoipa::path(
    post,
    path = "/v1/accept-loss",
    request_body = AcceptLoss,
    responses((status = 200, description = "Claims are granted", body = AcceptLossDone), WriteErrors)
)]
async fn accept_loss(
    service: AdminService,
    Payload(JsonObject(request)): Payload<JsonObject<AcceptLoss>>,
) -> ApiResult<AcceptLossDone> {
    Ok(Json(service.accept_loss(&request).await?))
}

/// Show one operation, and the decisions about it.
#[utoipa::path(
    get,
    path = "/v1/operations/{id}",
    params(("id" = String, Path, description = "The id of the operation", pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"), ShowRecord),
    responses((status = 200, description = "The record", body = RecordDetails), ReadErrors)
)]
async fn operation(
    service: AdminService,
    Path(id): Path<String>,
    QueryParams(request): QueryParams<ShowRecord>,
) -> ApiResult<RecordDetails> {
    match record_ref(&id)? {
        operation @ RecordRef::Operation(_) => {
            Ok(Json(service.record(&operation, &request).await?))
        }
        RecordRef::Record(_) => Err(ApiProblem::bad_request("The id of an operation is a UUID.")),
    }
}

/// List the audit log of decisions, which cannot be changed.
#[utoipa::path(
    get,
    path = "/v1/decisions",
    params(ListDecisions),
    responses((status = 200, description = "A page. `next` is the start of the next one", body = DecisionPage), ReadErrors)
)]
async fn decisions(
    service: AdminService,
    QueryParams(request): QueryParams<ListDecisions>,
) -> ApiResult<DecisionPage> {
    Ok(Json(service.decisions(&request).await?))
}

/// Count the records in the store.
#[utoipa::path(
    get,
    path = "/v1/stats",
    responses((status = 200, description = "Totals by state", body = StoreTotals), ReadErrors)
)]
async fn stats(service: AdminService) -> ApiResult<StoreTotals> {
    Ok(Json(service.stats().await?))
}

/// Read a page of records, and report those that cannot be read. Continue at `next`.
#[utoipa::path(
    post,
    path = "/v1/verify",
    request_body = VerifyRecords,
    responses((status = 200, description = "The result of this page", body = VerifiedPage), WriteErrors)
)]
async fn verify(
    service: AdminService,
    Payload(JsonObject(request)): Payload<JsonObject<VerifyRecords>>,
) -> ApiResult<VerifiedPage> {
    Ok(Json(service.verify(&request).await?))
}

fn record_ref(id: &str) -> Result<RecordRef, ApiProblem> {
    id.parse().map_err(|wrong| ApiProblem::bad_request(format!("{wrong}")))
}
