//! The admin API: what operators look at and decide.
//!
//! [`AdminApi`] is everything that can be asked. [`AdminService`] answers at the store;
//! [`AdminClient`] passes a request on to the admin API of a running gateway, where a service
//! answers it. So each command is written once, and access is checked in one place: the service.
//!
//! | file | contents |
//! |---|---|
//! | `requests`, `views` | requests and responses, as JSON has them |
//! | `service`, `listing`, `decisions` | answers at the store; decisions go into the audit log first |
//! | `client` | the same over HTTP |
//! | `routes`, `json_object` | the HTTP API over the service, with its OpenAPI document |
//! | `monitoring` | `/live`, `/ready` and `/metrics` |
//! | `reply` | stored HTTP replies, shown and written by operators |

mod client;
mod decisions;
mod json_object;
mod listing;
mod monitoring;
mod reply;
mod requests;
mod routes;
mod service;
mod views;

use async_trait::async_trait;

use crate::api::{ApiProblem, RecordRef};

pub(crate) use client::AdminClient;
pub(crate) use monitoring::Monitoring;
pub(crate) use reply::{HeaderLine, Reply};
pub(crate) use requests::{
    AcceptLoss, ListDecisions, ListRecords, PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord,
    VerifyRecords,
};
pub(crate) use routes::AdminRoutes;
pub(crate) use service::AdminService;
pub(crate) use views::{
    AcceptLossDone, DecisionPage, DecisionView, PurgeDone, RecordDetails, RecordPage, RecordView,
    StoreTotals, VerifiedPage,
};

/// What operators ask.
///
/// Looking changes nothing. A decision is written into the trail before it is made, and made
/// whole even if whoever asked for it does not wait; asked for again, it is not made twice.
#[async_trait]
pub(crate) trait AdminApi: Send + Sync {
    /// A page of records. It may be short, or empty, and not the last: `next` tells.
    async fn records(&self, request: &ListRecords) -> Result<RecordPage, ApiProblem>;

    /// One record, and what was decided about it.
    async fn record(
        &self,
        record_ref: &RecordRef,
        request: &ShowRecord,
    ) -> Result<RecordDetails, ApiProblem>;

    /// Decides that an operation has happened, and stores its reply.
    async fn resolve(
        &self,
        record_ref: &RecordRef,
        request: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem>;

    /// Decides that an operation has not happened and cannot any more, and frees its key.
    async fn release(
        &self,
        record_ref: &RecordRef,
        request: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem>;

    /// Removes some of what is past its time.
    async fn purge(&self, request: &PurgeRecords) -> Result<PurgeDone, ApiProblem>;

    /// Grants claims again after the store had lost records.
    async fn accept_loss(&self, request: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem>;

    /// A page of decisions, or all about one operation.
    async fn decisions(&self, request: &ListDecisions) -> Result<DecisionPage, ApiProblem>;

    /// How much the store holds.
    async fn stats(&self) -> Result<StoreTotals, ApiProblem>;

    /// Reads some records, and tells which of them cannot be read.
    async fn verify(&self, request: &VerifyRecords) -> Result<VerifiedPage, ApiProblem>;
}
