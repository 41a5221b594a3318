//! Cases with a life cycle from draft to paid. Keys make retries safe, expected versions make
//! transitions safe, and neither replaces the other. The README explains the example.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use onceward::{Engine, MemoryStore};
use onceward_http::{InvalidLayer, Onceward, Operation};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// All cases; the first one has the id 1. A real service has a database instead.
pub type Cases = Arc<Mutex<Vec<Case>>>;

/// One case.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    id: usize,
    title: String,
    status: Status,
    /// Counts the changes. Who wants to change the case says which version they have seen.
    version: u64,
}

/// Where a case stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not submitted yet.
    Draft,
    /// Somebody has to decide.
    Submitted,
    /// Can be paid.
    Approved,
    /// Somebody decided against it. The end.
    Rejected,
    /// Paid. This is final.
    Paid,
}

/// What can be done with a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// A draft becomes submitted.
    Submit,
    /// A submitted case becomes approved.
    Approve,
    /// A submitted case becomes rejected.
    Reject,
    /// An approved case becomes paid.
    Pay,
}

impl Status {
    /// What a step leads to; `None` where it cannot be taken.
    fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Draft, Step::Submit) => Some(Self::Submitted),
            (Self::Submitted, Step::Approve) => Some(Self::Approved),
            (Self::Submitted, Step::Reject) => Some(Self::Rejected),
            (Self::Approved, Step::Pay) => Some(Self::Paid),
            (Self::Draft | Self::Submitted | Self::Approved | Self::Rejected | Self::Paid, _) => {
                None
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct NewCase {
    title: String,
}

/// In the body and not in `If-Match`: so it is part of what the key stands for, and a key that
/// comes again with another version is a mistake that is noticed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    expected_version: u64,
}

/// The service.
pub fn app(cases: Cases) -> Result<Router, InvalidLayer> {
    // The defaults keep a 409 of the handler as they keep a success: a refusal for reasons of
    // the business is an outcome, and a retry of the same intent gets the same one.
    let once = Onceward::layer(Engine::new(Arc::new(MemoryStore::new())))
        .single_tenant()
        .operation(Operation::post("/cases").named("cases.create"))
        .operation(Operation::post("/cases/{id}/{step}").named("cases.step"))
        .build()?;
    Ok(Router::new()
        .route("/cases", post(create))
        .route("/cases/{id}", get(show))
        .route("/cases/{id}/{step}", post(take))
        .layer(once)
        .with_state(cases))
}

async fn create(State(cases): State<Cases>, Json(new): Json<NewCase>) -> Response {
    let mut cases = cases.lock().unwrap_or_else(PoisonError::into_inner);
    let (id, title) = (cases.len() + 1, new.title);
    let case = Case { id, title, status: Status::Draft, version: 1 };
    cases.push(case.clone());
    (StatusCode::CREATED, [("location", format!("/cases/{id}"))], Json(case)).into_response()
}

async fn show(State(cases): State<Cases>, Path(id): Path<usize>) -> Response {
    let cases = cases.lock().unwrap_or_else(PoisonError::into_inner);
    let case = cases.iter().find(|case| case.id == id);
    case.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |case| Json(case).into_response())
}

/// Takes a step. Compares the version and changes the case under one lock, like
/// `UPDATE … WHERE id = ? AND version = ?`.
async fn take(
    State(cases): State<Cases>,
    Path((id, step)): Path<(usize, Step)>,
    Json(Expected { expected_version }): Json<Expected>,
) -> Response {
    let mut cases = cases.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(case) = cases.iter_mut().find(|case| case.id == id) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if case.version != expected_version {
        return refused("STALE_VERSION", case);
    }
    let Some(next) = case.status.after(step) else { return refused("NOT_IN_THIS_STATE", case) };
    case.status = next;
    case.version += 1;
    Json(&*case).into_response()
}

/// The client is told what it did not know. It decides anew, and that takes a new key.
fn refused(code: &str, case: &Case) -> Response {
    let told = json!({ "code": code, "status": case.status, "version": case.version });
    (StatusCode::CONFLICT, Json(told)).into_response()
}
