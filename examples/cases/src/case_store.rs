//! Where the cases and the results of bulks are stored.

use async_trait::async_trait;
use onceward::http::PgTransaction;
use onceward::{BoxError, BulkError, OpenBulk, OperationId};

use crate::bulk_item::{Line, NewBulk, StoredBulk};
use crate::case::{Case, Refusal, Step};

/// The cases and the results of bulks. Every change is durable when its call returns, as far as the
/// store is.
#[async_trait]
pub(crate) trait CaseStore: Send + Sync {
    /// Creates a case, within the request's transaction if there is one.
    async fn create(&self, tx: Option<&PgTransaction>, title: String) -> Result<Case, BoxError>;

    async fn find(&self, id: i64) -> Result<Option<Case>, BoxError>;

    /// Takes a step, within the request's transaction if there is one; `None` if there is no such
    /// case.
    async fn take(
        &self,
        tx: Option<&PgTransaction>,
        id: i64,
        step: Step,
        expected_version: i64,
    ) -> Result<Option<Result<Case, Refusal>>, BoxError>;

    /// Stores the items of a bulk as pending. Items that are stored already stay as they are.
    async fn begin_bulk(&self, bulk: NewBulk) -> Result<(), BoxError>;

    /// Does each item of a bulk once: stores the change of its case and its result in one step, and
    /// never again for an item with a final result.
    async fn run_bulk(&self, bulk: OpenBulk<Line>) -> Result<(), BulkError>;

    /// Finds a bulk by its operation, or by that of a request for it.
    async fn bulk(&self, id: OperationId) -> Result<Option<StoredBulk>, BoxError>;
}
