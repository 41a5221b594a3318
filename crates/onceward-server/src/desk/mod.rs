//! The desk: what operators ask, and where they decide.
//!
//! [`Desk`] is everything that can be asked. Behind it is a [`Clerk`], who works on the store
//! itself, or [`Remote`], who passes the question on to the admin API of a running gateway,
//! where a clerk answers it. So every command is written once, and every right is checked in
//! one place: the clerk's.

mod api;
mod clerk;
mod decide;
mod keeping;
mod listing;
mod moment;
mod orders;
mod remote;
mod reply;
mod strict;
mod subject;
mod views;

use async_trait::async_trait;

use crate::api::ApiProblem;

pub(crate) use api::Reception;
pub(crate) use clerk::Clerk;
pub(crate) use keeping::Keeping;
pub(crate) use moment::Moment;
pub(crate) use orders::{AcceptLoss, Look, Purge, Release, Resolve, Trail, Verify, Wanted};
pub(crate) use remote::Remote;
pub(crate) use reply::{HeaderLine, Reply};
pub(crate) use subject::{Subject, record_id};
pub(crate) use views::{
    AcceptLossDone, DecisionPage, DecisionView, Listing, PurgeDone, RecordView, Shown, Standing,
    Totals, VerifiedPage,
};

/// What operators ask.
///
/// Looking changes nothing. A decision is written into the trail before it is made, and made
/// whole even if whoever asked for it does not wait; asked for again, it is not made twice.
#[async_trait]
pub(crate) trait Desk: Send + Sync {
    /// A page of records. It may be short, or empty, and not the last: `next` tells.
    async fn records(&self, wanted: &Wanted) -> Result<Listing, ApiProblem>;

    /// One record, and what was decided about it.
    async fn record(&self, subject: &Subject, look: &Look) -> Result<Shown, ApiProblem>;

    /// Decides that an operation has happened, and stores its reply.
    async fn resolve(&self, subject: &Subject, order: &Resolve) -> Result<Shown, ApiProblem>;

    /// Decides that an operation has not happened and cannot any more, and frees its key.
    async fn release(&self, subject: &Subject, order: &Release) -> Result<Shown, ApiProblem>;

    /// Removes some of what is past its time.
    async fn purge(&self, order: &Purge) -> Result<PurgeDone, ApiProblem>;

    /// Grants claims again after the store had lost records.
    async fn accept_loss(&self, order: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem>;

    /// A page of decisions, or all about one operation.
    async fn decisions(&self, trail: &Trail) -> Result<DecisionPage, ApiProblem>;

    /// How much the store holds.
    async fn stats(&self) -> Result<Totals, ApiProblem>;

    /// Reads some records, and tells which of them cannot be read.
    async fn verify(&self, order: &Verify) -> Result<VerifiedPage, ApiProblem>;
}
