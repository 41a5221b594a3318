//! The admin API: records, decisions and statistics for operators.
//!
//! [`AdminApi`] has every request. [`AdminService`] answers them at the store; [`AdminClient`]
//! sends them to the admin API of a running gateway, where a service answers them. So each command
//! is written once, and access is checked in one place: the service.
//!
//! | file | contents |
//! |---|---|
//! | `requests`, `views` | requests and responses as JSON |
//! | `service`, `listing`, `decisions`, `invalidation` | answers at the store; a decision enters the audit log first |
//! | `client` | the same over HTTP |
//! | `routes`, `json_object` | the HTTP API over the service, and its OpenAPI document |
//! | `monitoring` | `/live`, `/ready` and `/metrics` |
//! | `reply` | stored HTTP replies, shown and written by operators |
//! | `archive_line` | expired records as lines of the archive |

mod archive_line;
mod client;
mod decisions;
mod invalidation;
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

pub(crate) use archive_line::archive_line;
pub(crate) use client::AdminClient;
pub(crate) use invalidation::without_outcome;
pub(crate) use monitoring::Monitoring;
pub(crate) use reply::{HeaderLine, Reply};
pub(crate) use requests::{
    AcceptLoss, FindRecord, InvalidateCache, InvalidateRecord, ListDecisions, ListRecords,
    PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord, VerifyRecords,
};
pub(crate) use routes::AdminRoutes;
pub(crate) use service::AdminService;
pub(crate) use views::{
    AcceptLossDone, CacheInvalidationDone, DecisionPage, DecisionView, OutcomeContent, PurgeDone,
    RecordDetails, RecordPage, RecordView, StoreTotals, VerifiedPage,
};

/// The requests of operators.
///
/// Reads change nothing. A decision is written to the audit log before it is made, and it is
/// completed even if its client disconnects. The same decision sent again is not made twice.
#[async_trait]
pub(crate) trait AdminApi: Send + Sync {
    /// A page of records. The last page is the one without `next`; others may be short or empty.
    async fn records(&self, request: &ListRecords) -> Result<RecordPage, ApiProblem>;

    /// One record, and the decisions about it.
    async fn record(
        &self,
        record_ref: &RecordRef,
        request: &ShowRecord,
    ) -> Result<RecordDetails, ApiProblem>;

    /// The record of a client's key, and the decisions about it.
    async fn find(&self, request: &FindRecord) -> Result<RecordDetails, ApiProblem>;

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

    /// Decides that the stored response of a settled operation must not be replayed any more.
    async fn invalidate(
        &self,
        record_ref: &RecordRef,
        request: &InvalidateRecord,
    ) -> Result<RecordDetails, ApiProblem>;

    /// Decides that copies of records in the cache do not count any more.
    async fn invalidate_cache(
        &self,
        request: &InvalidateCache,
    ) -> Result<CacheInvalidationDone, ApiProblem>;

    /// Removes a batch of expired records.
    async fn purge(&self, request: &PurgeRecords) -> Result<PurgeDone, ApiProblem>;

    /// Accepts that the store has lost records, so that it grants claims again.
    async fn accept_loss(&self, request: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem>;

    /// A page of decisions, or all decisions about one operation.
    async fn decisions(&self, request: &ListDecisions) -> Result<DecisionPage, ApiProblem>;

    /// Totals of the store.
    async fn stats(&self) -> Result<StoreTotals, ApiProblem>;

    /// Reads a page of records, and reports those that cannot be read.
    async fn verify(&self, request: &VerifyRecords) -> Result<VerifiedPage, ApiProblem>;
}
