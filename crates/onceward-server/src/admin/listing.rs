//! Pages of records, by what somebody asks for and what exists for them.

use onceward_core::{INTERNAL_TENANT, Page, Query, Record, RecordId, StoreError};

use super::requests::{ListRecords, cursor, page_size};
use super::service::AdminService;
use super::views::{RecordPage, RecordView, ids};
use crate::api::{ApiProblem, RecordState};
use crate::config::Role;

/// Most pages of the store that one call reads: what few records match is found over
/// several calls, each of which is short.
const STORE_PAGES_MAX: usize = 20;

impl AdminService {
    /// A page of what is wanted, as far as it exists for the caller.
    pub(super) async fn listing(&self, wanted: &ListRecords) -> Result<RecordPage, ApiProblem> {
        if wanted.outcomes {
            self.caller.must_be(Role::Operator)?;
        }
        let (limit, older_than) = (page_size(wanted.limit)?, wanted.older_than()?);
        let (mut after, mut listing) = (cursor(wanted.after.as_deref())?, RecordPage::default());
        for _ in 0..STORE_PAGES_MAX {
            let left = limit - listing.records.len() - listing.undecodable.len();
            let page = self.page(wanted, after, left).await?;
            listing.undecodable.extend(ids(&page.undecodable));
            let is_old = |it: &&Record| it.updated_at.until(self.now()) >= older_than;
            for record in page.records.iter().filter(|it| shown(it, wanted)).filter(is_old) {
                let standing = self.listed_standing(record, wanted.state).await?;
                listing.records.push(RecordView::of(record, standing, wanted.outcomes));
            }
            after = page.next;
            if after.is_none() || listing.records.len() + listing.undecodable.len() == limit {
                break;
            }
        }
        listing.next = after.map(|after| after.to_string());
        Ok(listing)
    }

    /// Whoever asked for a state has been told by the store that it is so.
    async fn listed_standing(
        &self,
        record: &Record,
        asked: Option<RecordState>,
    ) -> Result<RecordState, StoreError> {
        match asked {
            Some(standing) => Ok(standing),
            None => self.standing(record).await,
        }
    }

    /// One page of the store, or one that is put together of those of each tenant. What
    /// cannot be read is nobody's, and does not exist for who is tied to tenants.
    async fn page(
        &self,
        wanted: &ListRecords,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let query = Query {
            standing: wanted.state.map(Into::into),
            tenant: wanted.tenant.clone(),
            operation_name: wanted.operation.clone(),
            after,
            limit,
        };
        let tied = self.caller.tenants();
        if tied.is_empty() {
            return self.store.list(&query).await;
        }
        let mut pages = Vec::new();
        let asked = |it: &&String| wanted.tenant.as_ref().is_none_or(|tenant| tenant == *it);
        for tenant in tied.iter().filter(asked) {
            let query = Query { tenant: Some(tenant.clone()), ..query.clone() };
            pages.push(self.store.list(&query).await?);
        }
        Ok(merged(pages, limit))
    }
}

/// Whether a record is shown to who did not ask for Onceward's own.
fn shown(record: &Record, wanted: &ListRecords) -> bool {
    wanted.internal || record.scope.tenant() != INTERNAL_TENANT
}

/// The first records of several pages that begin at one place.
fn merged(pages: Vec<Page>, limit: usize) -> Page {
    // Beyond the end of a page that has a next one, something may be missing.
    let end = pages.iter().filter_map(|page| page.next).min();
    let records = pages.into_iter().flat_map(|page| page.records);
    let mut records: Vec<_> = records.filter(|it| end.is_none_or(|end| it.id <= end)).collect();
    records.sort_unstable_by_key(|record| record.id);
    records.dedup_by_key(|record| record.id);
    let next = if records.len() > limit { Some(records[limit - 1].id) } else { end };
    records.truncate(limit);
    Page { records, next, undecodable: Vec::new() }
}
