//! The admin API: the desk behind bearer tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use onceward_core::Identity;
use onceward_stores::SharedStore;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::AdminApi;
use super::json_object::JsonObject;
use super::requests::{
    AcceptLoss, ListDecisions, ListRecords, PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord,
    VerifyRecords,
};
use super::service::AdminService;
use super::views::{
    AcceptLossDone, DecisionPage, PurgeDone, RecordDetails, RecordPage, StoreTotals, VerifiedPage,
};
use crate::api::{ApiProblem, CurrentApiSettings, Payload, QueryParams, RecordRef};

/// Largest order: a reply in base64 that is larger than any that is kept by default.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Where callers of the admin API are asked for their tokens, and led to a service.
#[derive(Clone)]
pub(crate) struct AdminRoutes {
    pub(crate) store: SharedStore,
    pub(crate) identity: Identity,
    pub(crate) settings: CurrentApiSettings,
}

impl AdminRoutes {
    /// Its routes.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/openapi.json", get(openapi))
            .route("/v1/records", get(records))
            .route("/v1/records/{id}", get(record))
            .route("/v1/records/{id}/resolve", post(resolve))
            .route("/v1/records/{id}/release", post(release))
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
                    "That is not done here",
                )
                .detail("/openapi.json tells what is.")
            })
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(self)
    }
}

/// Who has shown a token that holds is led to a service, before anything else is looked at.
impl FromRequestParts<AdminRoutes> for AdminService {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        routes: &AdminRoutes,
    ) -> Result<Self, ApiProblem> {
        let caller = routes.settings.caller(&parts.headers)?;
        let retention = routes.settings.retention();
        Ok(Self::new(Arc::clone(&routes.store), routes.identity.clone(), retention, caller))
    }
}

/// Why a question is not answered.
struct ReadErrors;

impl IntoResponses for ReadErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problem_responses(&[
            ("400", "That is no id, or a parameter is wrong"),
            ("401", "No token that holds"),
            ("403", "The token does not allow it"),
            ("404", "Not there, or not for this token"),
            ("503", "The store is unavailable, or the record cannot be read"),
        ])
    }
}

/// Why an order is not carried out.
struct WriteErrors;

impl IntoResponses for WriteErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut all = ReadErrors::responses();
        all.extend(problem_responses(&[
            ("408", "The order came too slowly"),
            ("409", "There is nothing to decide, or not under this fence"),
            ("413", "The order is too large"),
            ("415", "The order is not application/json"),
            ("422", "The order is not what is described here"),
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

/// The admin API of Onceward. `reader` and `worker` look, `operator` decides; a token with
/// tenants sees only theirs.
#[derive(OpenApi)]
#[openapi(
    info(title = "Onceward admin API", license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")),
    paths(
        openapi, records, record, resolve, release, purge, accept_loss, operation, decisions, stats, verify
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

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// Records, a page at a time.
#[utoipa::path(
    get,
    path = "/v1/records",
    params(ListRecords),
    responses((status = 200, description = "A page; follow `next`", body = RecordPage), ReadErrors)
)]
async fn records(
    service: AdminService,
    QueryParams(request): QueryParams<ListRecords>,
) -> ApiResult<RecordPage> {
    Ok(Json(service.records(&request).await?))
}

/// One record by its operation's id or its own, and what was decided about it.
#[utoipa::path(
    get,
    path = "/v1/records/{id}",
    params(("id" = String, Path, description = "An operation's id or a record's", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"), ShowRecord),
    responses((status = 200, description = "The record", body = RecordDetails), ReadErrors)
)]
async fn record(
    service: AdminService,
    Path(id): Path<String>,
    QueryParams(request): QueryParams<ShowRecord>,
) -> ApiResult<RecordDetails> {
    Ok(Json(service.record(&record_ref(&id)?, &request).await?))
}

/// Decides that an operation has happened, and stores the reply that retries get.
///
/// Only where the outcome is unknown. The decision is written into the trail before. Sent
/// again, it is not made again.
#[utoipa::path(
    post,
    path = "/v1/records/{id}/resolve",
    params(("id" = String, Path, description = "An operation's id or a record's", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")),
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

/// Decides that an operation has not happened and cannot any more, and frees its key.
///
/// Only where the outcome is unknown: a live lease is refused. The decision is written into
/// the trail before. Sent again, it is not made again.
#[utoipa::path(
    post,
    path = "/v1/records/{id}/release",
    params(("id" = String, Path, description = "An operation's id or a record's", pattern = "^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")),
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

/// Removes some of what is past its time. Ask again while there is `more`.
///
/// Never touches what is running or unknown, nor decisions within their time.
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

/// Grants claims again after the store had lost records.
///
/// Only if no client sends again what it sent before the loss, or if such effects may be
/// repeated. The trail has it afterwards. Sent again, it changes nothing.
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

/// One operation, and what was decided about it.
#[utoipa::path(
    get,
    path = "/v1/operations/{id}",
    params(("id" = String, Path, description = "The operation's id", pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"), ShowRecord),
    responses((status = 200, description = "Its record", body = RecordDetails), ReadErrors)
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
        RecordRef::Record(_) => Err(ApiProblem::bad_request("An operation's id is a UUID.")),
    }
}

/// The trail of decisions. Nobody can change it.
#[utoipa::path(
    get,
    path = "/v1/decisions",
    params(ListDecisions),
    responses((status = 200, description = "A page; follow `next`", body = DecisionPage), ReadErrors)
)]
async fn decisions(
    service: AdminService,
    QueryParams(request): QueryParams<ListDecisions>,
) -> ApiResult<DecisionPage> {
    Ok(Json(service.decisions(&request).await?))
}

/// How much the store holds.
#[utoipa::path(
    get,
    path = "/v1/stats",
    responses((status = 200, description = "The totals", body = StoreTotals), ReadErrors)
)]
async fn stats(service: AdminService) -> ApiResult<StoreTotals> {
    Ok(Json(service.stats().await?))
}

/// Reads some records, and tells which of them cannot be read. Go on at `next`.
#[utoipa::path(
    post,
    path = "/v1/verify",
    request_body = VerifyRecords,
    responses((status = 200, description = "What was read", body = VerifiedPage), WriteErrors)
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
