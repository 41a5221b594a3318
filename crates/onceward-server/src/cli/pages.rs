//! Paging through listings of the admin API, until the end or Ctrl-C.

use super::Fallible;
use super::failure::Failure;
use super::interrupt::{Interrupt, Interrupted};
use super::progress::Progress;
use crate::admin::{AdminApi, DecisionView, ListDecisions, ListRecords, RecordPage, RecordView};

/// Collects the wanted records, at most `limit`.
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

/// Passes each page to `take`, at most `limit` records, and returns their number.
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
            Failure::Interrupted(format!("after {seen} records; nothing has changed"))
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

/// Sorts records by their last change, oldest first.
pub(super) fn oldest_first(records: &mut [RecordView]) {
    records.sort_by_key(|record| record.updated_at);
}

/// Collects all decisions, oldest first.
pub(super) async fn decisions(admin: &dyn AdminApi) -> Fallible<Vec<DecisionView>> {
    let (mut interrupt, mut all) = (Interrupt::listen()?, Vec::new());
    let mut query = ListDecisions { limit: Some(500), ..ListDecisions::default() };
    loop {
        let stopped = |Interrupted| {
            Failure::Interrupted(format!("after {} decisions; nothing has changed", all.len()))
        };
        let page = interrupt.or(admin.decisions(&query)).await.map_err(stopped)??;
        all.extend(page.decisions);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    all.sort_by_key(|decision: &DecisionView| decision.at);
    Ok(all)
}
