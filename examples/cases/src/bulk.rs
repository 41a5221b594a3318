//! `POST /cases:bulkApprove`: many cases under one key, and `GET /cases/bulk/{operation}`: the
//! results of its items, also while it runs and after a crash.
//!
//! The layer guards the request, [`Bulk`] guards each item. A retry after a crash resumes: items
//! that are done are not done again.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, LOCATION, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use onceward::http::{Code, Execution, Fate, Problem, ProblemFormat};
use onceward::{
    BoxError, Bulk, BulkError, InvalidBulk, OnLapse, OperationId, Rejection, StateName,
};
use serde::Serialize;
use serde_json::json;

use crate::Service;
use crate::bulk_item::{BulkRequest, InvalidItems, ItemRow, ItemState, NewBulk, Owner, StoredBulk};
use crate::checkpoint::Checkpoint;

/// The operation's name in the records.
pub(crate) const OPERATION: &str = "cases.bulk_approve";

/// A bulk, as clients see it: the response of a finished one, and the page of any.
#[derive(Debug, Serialize)]
struct BulkPage {
    operation: OperationId,
    state: BulkState,
    items: Vec<ItemRow>,
}

/// Where a bulk stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum BulkState {
    /// A process is working on it, or died a moment ago.
    Running,
    /// It stopped before its end. A retry with the same key continues.
    Interrupted,
    /// Every item has its final result.
    Completed,
}

impl BulkPage {
    fn new(bulk: StoredBulk, is_running: bool) -> Self {
        let StoredBulk { operation, mut items, .. } = bulk;
        let state = match (items.iter().all(|row| row.state.is_final()), is_running) {
            (true, _) => BulkState::Completed,
            (false, true) => BulkState::Running,
            (false, false) => BulkState::Interrupted,
        };
        if state == BulkState::Interrupted {
            let left_behind = items.iter_mut().filter(|row| row.state == ItemState::Running);
            left_behind.for_each(|row| row.state = ItemState::Unknown);
        }
        Self { operation, state, items }
    }
}

/// Why a bulk has no complete result. The key stays usable for the same request, because no
/// response says what became of the items.
enum Stopped {
    /// The list is not valid.
    Invalid(InvalidItems),
    /// The body is not a list.
    NoList(JsonRejection),
    /// The bulk was begun, and this run cannot go on.
    Bulk(BulkError),
    /// The cases cannot be read or written.
    Cases(BoxError),
}

impl From<BulkError> for Stopped {
    fn from(error: BulkError) -> Self {
        Self::Bulk(error)
    }
}

impl From<BoxError> for Stopped {
    fn from(error: BoxError) -> Self {
        Self::Cases(error)
    }
}

/// Approves every item once, and answers with the result of each.
pub(crate) async fn approve(
    State(service): State<Service>,
    execution: Execution,
    body: Result<Json<BulkRequest>, JsonRejection>,
) -> Response {
    match run(&service, &execution, body).await {
        Ok(page) => answer(&page),
        Err(stopped) => stopped.into_response(),
    }
}

async fn run(
    service: &Service,
    execution: &Execution,
    body: Result<Json<BulkRequest>, JsonRejection>,
) -> Result<BulkPage, Stopped> {
    let Json(request) = body.map_err(Stopped::NoList)?;
    let items = request.into_items().map_err(Stopped::Invalid)?;
    let lines = items.iter().map(|item| item.input.clone()).collect();
    let scope = execution.scope();
    let bulk = Bulk::new(service.engine.clone(), scope.clone(), execution.key().clone())
        .items_max(service.bulk_items_max)
        .concurrency(service.bulk_concurrency)
        .on_lapse(OnLapse::Takeover) // the results are stored with the changes, and recognised
        .begin(items)
        .await?;
    let (operation, request) = (bulk.operation(), execution.operation());
    let owner = Owner { tenant: scope.tenant().into(), caller: scope.caller().into() };
    service.cases.begin_bulk(NewBulk { operation, request, owner, lines }).await?;
    service.cases.run_bulk(bulk).await?;
    service.on_checkpoint.reached(Checkpoint::BulkDone, "").await;
    let stored = service.cases.bulk(operation).await?;
    let stored = stored.ok_or_else(|| BoxError::from("the items of the bulk are missing"))?;
    Ok(BulkPage::new(stored, false))
}

/// The response of a bulk whose items have all been tried. It is final only if each of them has a
/// final result: otherwise the key is freed, so that a retry asks again about the others.
fn answer(page: &BulkPage) -> Response {
    let location = [(LOCATION, format!("/cases/bulk/{}", page.operation))];
    match page.state {
        BulkState::Completed => (StatusCode::OK, location, Json(page)).into_response(),
        BulkState::Running | BulkState::Interrupted => {
            let retry = [(RETRY_AFTER, "1")];
            (StatusCode::ACCEPTED, Fate::NothingHappened, location, retry, Json(page))
                .into_response()
        }
    }
}

impl IntoResponse for Stopped {
    /// The key is freed, so that a retry resumes. The records of the bulk and of its items stay: no
    /// item is done twice, and no other list is accepted under the key.
    fn into_response(self) -> Response {
        let response = match self {
            Self::Invalid(invalid) => refusal(invalid.code(), &invalid.to_string()),
            Self::NoList(rejection) => refusal("INVALID_BODY", &rejection.body_text()),
            Self::Bulk(BulkError::Invalid(invalid)) => {
                let code = match invalid {
                    InvalidBulk::TooMany { .. } => "TOO_MANY_ITEMS",
                    InvalidBulk::DuplicateItem { .. } => "DUPLICATE_ITEM_ID",
                    _ => "INVALID_ITEMS",
                };
                refusal(code, &invalid.to_string())
            }
            Self::Bulk(BulkError::Rejected(Rejection::Mismatch { .. })) => {
                problem(Problem::new(Code::KeyReused))
            }
            Self::Bulk(BulkError::Rejected(Rejection::Running { operation, retry_after })) => {
                problem(
                    Problem::new(Code::InProgress).operation(operation).retry_after(retry_after),
                )
            }
            Self::Bulk(error) => interrupted(&error),
            Self::Cases(error) => interrupted(&*error),
        };
        (Fate::NothingHappened, response).into_response()
    }
}

fn refusal(code: &str, message: &str) -> Response {
    let body = Json(json!({ "code": code, "message": message }));
    (StatusCode::BAD_REQUEST, body).into_response()
}

fn problem(problem: Problem) -> Response {
    problem.into_response(&ProblemFormat::default()).map(Body::from)
}

fn interrupted(error: &dyn std::error::Error) -> Response {
    eprintln!("a bulk was interrupted: {error}");
    let message = "the bulk was interrupted; send it again with the same key to continue";
    let body = Json(json!({ "code": "BULK_INTERRUPTED", "message": message }));
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body).into_response()
}

/// Shows a bulk to its caller, by its operation or by that of a request for it. To others it does
/// not exist.
pub(crate) async fn show(
    State(service): State<Service>,
    Path(operation): Path<String>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let caller = match service.once.scope_of(&head, OPERATION) {
        Ok(scope) => Owner { tenant: scope.tenant().into(), caller: scope.caller().into() },
        Err(refused) => return problem(refused),
    };
    match find(&service, &operation, &caller).await {
        Ok(Some(page)) => ([(CACHE_CONTROL, "no-store")], Json(page)).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => crate::unavailable(&*error).into_response(),
    }
}

async fn find(
    service: &Service,
    operation: &str,
    caller: &Owner,
) -> Result<Option<BulkPage>, BoxError> {
    let Ok(operation) = operation.parse() else { return Ok(None) };
    let stored = service.cases.bulk(operation).await?;
    let Some(bulk) = stored.filter(|bulk| bulk.owner == *caller) else { return Ok(None) };
    let record = service.engine.operation(&bulk.operation).await?;
    let is_running = record.is_some_and(|it| it.standing == StateName::Running);
    Ok(Some(BulkPage::new(bulk, is_running)))
}
