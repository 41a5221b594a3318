//! Going through all pages of the admin, until the end or Ctrl-C.

use super::Fallible;
use super::failure::Failure;
use super::interrupt::{Interrupt, Interrupted};
use super::progress::Progress;
use crate::admin::{AdminApi, DecisionView, ListDecisions, ListRecords, RecordPage, RecordView};

/// All records that are wanted, at most `limit`.
pub(super) async fn records(
    admin: &dyn AdminApi,
    wanted: ListRecords,
    limit: Option<usize>,
) -> Fallible<RecordPage> {
    let mut all = RecordPage::default();
    each_page(admin, wanted, limit, |page| {
        all.records.extend(page.records);
        all.undecodable.extend(page.undecodable);
        all.next = page.next;
        Ok(())
    })
    .await?;
    Ok(all)
}

/// Hands over page after page, at most `limit` records, and returns how many there were.
pub(super) async fn each_page(
    admin: &dyn AdminApi,
    mut wanted: ListRecords,
    limit: Option<usize>,
    mut take: impl FnMut(RecordPage) -> Fallible,
) -> Fallible<usize> {
    let (mut interrupt, mut seen) = (Interrupt::listen()?, 0);
    let mut progress = Progress::new("records", None);
    let page = usize::from(wanted.limit.unwrap_or(500));
    loop {
        let left = limit.map_or(page, |limit| page.min(limit - seen));
        wanted.limit = u16::try_from(left).ok();
        let stopped = |Interrupted| {
            Failure::Interrupted(format!("after {seen} records; nothing was changed"))
        };
        let listing = interrupt.or(admin.records(&wanted)).await.map_err(stopped)??;
        seen += listing.records.len() + listing.undecodable.len();
        wanted.after.clone_from(&listing.next);
        take(listing)?;
        progress.at(seen as u64);
        if wanted.after.is_none() || limit.is_some_and(|limit| seen >= limit) {
            return Ok(seen);
        }
    }
}

/// All records of a listing, the one that has waited longest first.
pub(super) fn oldest_first(records: &mut [RecordView]) {
    records.sort_by_key(|record| record.updated_at);
}

/// All decisions, in the order in which they were made.
pub(super) async fn decisions(admin: &dyn AdminApi) -> Fallible<Vec<DecisionView>> {
    let (mut interrupt, mut all) = (Interrupt::listen()?, Vec::new());
    let mut trail = ListDecisions { limit: Some(500), ..ListDecisions::default() };
    loop {
        let stopped = |Interrupted| {
            Failure::Interrupted(format!("after {} decisions; nothing was changed", all.len()))
        };
        let page = interrupt.or(admin.decisions(&trail)).await.map_err(stopped)??;
        all.extend(page.decisions);
        match page.next {
            Some(next) => trail.after = Some(next),
            None => break,
        }
    }
    all.sort_by_key(|decision: &DecisionView| decision.at);
    Ok(all)
}
