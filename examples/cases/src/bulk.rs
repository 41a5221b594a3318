//! `POST /cases:bulkApprove`: many cases under one key.
//!
//! The layer guards the request, [`Bulk`] guards each item. A retry after a crash resumes: items
//! that are done are not done again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onceward::{Bulk, BulkError, BulkItem, Failure, ItemResult, OnLapse, OperationId};
use onceward_http::{Execution, Fate};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Case, Cases, Refusal, Service, Step};

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    items: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    client_item_id: String,
    #[serde(flatten)]
    approval: Approval,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Approval {
    case_id: usize,
    expected_version: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LineResult {
    client_item_id: String,
    #[serde(flatten)]
    result: ItemResult<Case, Option<Refusal>>,
}

/// Approves every item once, and answers with the result of each.
pub(crate) async fn approve(
    State(Service { cases, engine }): State<Service>,
    execution: Execution,
    Json(request): Json<Request>,
) -> Response {
    let items = request.items.into_iter();
    let items = items.map(|line| BulkItem { id: line.client_item_id, input: line.approval });
    let bulk = Bulk::new(engine, execution.scope().clone(), execution.key().clone())
        .concurrency(1) // the cases have one lock
        .on_lapse(OnLapse::Takeover); // an approval recognises its operation
    let done = bulk.run(items.collect(), move |approval, grant| {
        approve_one(cases.clone(), approval, grant.operation())
    });
    match done.await {
        Ok(done) => {
            let results = done.items.into_iter();
            let results =
                results.map(|(client_item_id, result)| LineResult { client_item_id, result });
            Json(json!({ "items": results.collect::<Vec<_>>() })).into_response()
        }
        Err(BulkError::Invalid(invalid)) => {
            (StatusCode::BAD_REQUEST, invalid.to_string()).into_response()
        }
        // The key is freed, so that a retry resumes.
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Fate::NothingHappened, error.to_string())
            .into_response(),
    }
}

/// Approves one case. If an earlier run of the same item died after its change, the change is
/// recognised by its operation, and not refused for its old version.
async fn approve_one(
    cases: Cases,
    approval: Approval,
    operation: OperationId,
) -> Result<Case, Failure<Option<Refusal>>> {
    let mut cases = cases.lock().await;
    let case = cases.iter_mut().find(|case| case.id == approval.case_id);
    let case = case.ok_or(Failure::Keep(None))?;
    if case.changed_by != Some(operation) {
        let stepped = case.step(Step::Approve, approval.expected_version);
        stepped.map_err(|refusal| Failure::Keep(Some(refusal)))?;
        case.changed_by = Some(operation);
    }
    Ok(case.clone())
}
