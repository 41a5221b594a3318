//! Cases with a life cycle from draft to paid. Keys make retries safe, expected versions make
//! transitions safe, and neither replaces the other. The README explains the example.

mod bulk;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use onceward::{Engine, MemoryStore, OnLapse, OperationId};
use onceward_http::{InvalidLayer, Onceward, Operation};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// All cases; the first one has the id 1. A real service has a database instead.
pub type Cases = Arc<Mutex<Vec<Case>>>;

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    id: usize,
    title: String,
    status: Status,
    /// Counts the changes. A request to change the case says which version its sender has seen.
    version: u64,
    /// The operation that made the last change, where a bulk made it.
    #[serde(skip)]
    changed_by: Option<OperationId>,
}

/// Where a case stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not submitted yet.
    Draft,
    /// It waits for a decision.
    Submitted,
    /// Can be paid.
    Approved,
    /// It was decided against. The end.
    Rejected,
    /// Paid. This is final.
    Paid,
}

/// A change of a case's status.
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
    /// The status after a step; `None` where it cannot be taken.
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

/// In the body and not in `If-Match`: so it is part of the fingerprint, and a key that comes again
/// with another version is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    expected_version: u64,
}

/// A refusal for reasons of the business. The client decides anew, and that takes a new key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Refusal {
    code: String,
    status: Status,
    version: u64,
}

#[derive(Debug, Clone)]
struct Service {
    cases: Cases,
    engine: Engine,
}

/// The service, on a store in memory.
pub fn app(cases: Cases) -> Result<Router, InvalidLayer> {
    app_on(Engine::new(Arc::new(MemoryStore::new())), cases)
}

/// The service on an engine.
pub fn app_on(engine: Engine, cases: Cases) -> Result<Router, InvalidLayer> {
    // A bulk may be taken over after a crash, because each of its items is guarded.
    let bulk = Operation::post("/cases:bulkApprove").named("cases.bulk_approve");
    let bulk = bulk.with(|rules| rules.on_lapse = Some(OnLapse::Takeover));
    // The defaults keep a 409 of the handler as they keep a success: a refusal for reasons of
    // the business is an outcome, and a retry of the same intent gets the same one.
    let once = Onceward::layer(engine.clone())
        .single_tenant()
        .operation(Operation::post("/cases").named("cases.create"))
        .operation(Operation::post("/cases/{id}/{step}").named("cases.step"))
        .operation(bulk)
        .build()?;
    Ok(Router::new()
        .route("/cases", post(create))
        .route("/cases/{id}", get(show))
        .route("/cases/{id}/{step}", post(take))
        .route("/cases:bulkApprove", post(bulk::approve))
        .layer(once)
        .with_state(Service { cases, engine }))
}

async fn create(State(service): State<Service>, Json(new): Json<NewCase>) -> Response {
    let mut cases = service.cases.lock().await;
    let (id, title) = (cases.len() + 1, new.title);
    let case = Case { id, title, status: Status::Draft, version: 1, changed_by: None };
    cases.push(case.clone());
    (StatusCode::CREATED, [("location", format!("/cases/{id}"))], Json(case)).into_response()
}

async fn show(State(service): State<Service>, Path(id): Path<usize>) -> Response {
    let cases = service.cases.lock().await;
    let case = cases.iter().find(|case| case.id == id);
    case.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |case| Json(case).into_response())
}

/// Takes a step. Compares the version and changes the case under one lock, like
/// `UPDATE … WHERE id = ? AND version = ?`.
async fn take(
    State(service): State<Service>,
    Path((id, step)): Path<(usize, Step)>,
    Json(Expected { expected_version }): Json<Expected>,
) -> Response {
    let mut cases = service.cases.lock().await;
    let Some(case) = cases.iter_mut().find(|case| case.id == id) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match case.step(step, expected_version) {
        Ok(()) => Json(&*case).into_response(),
        Err(refusal) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
    }
}

impl Case {
    /// Its version: the number of its changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn step(&mut self, step: Step, expected_version: u64) -> Result<(), Refusal> {
        if self.version != expected_version {
            return Err(self.refusal("STALE_VERSION"));
        }
        let next = self.status.after(step).ok_or_else(|| self.refusal("NOT_IN_THIS_STATE"))?;
        (self.status, self.version, self.changed_by) = (next, self.version + 1, None);
        Ok(())
    }

    fn refusal(&self, code: &str) -> Refusal {
        Refusal { code: code.to_owned(), status: self.status, version: self.version }
    }
}
