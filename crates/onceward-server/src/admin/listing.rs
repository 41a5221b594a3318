//! Pages of records that match a filter and are visible to the caller.

use onceward_core::{INTERNAL_TENANT, Page, Query, Record, RecordId, StoreError};

use super::requests::{ListRecords, cursor, page_size};
use super::service::AdminService;
use super::views::{RecordPage, RecordView, ids};
use crate::api::{ApiProblem, RecordState};
use crate::config::Role;

/// Largest number of store pages that one call reads. A filter with few matches takes several
/// calls, each of them short.
const STORE_PAGES_MAX: usize = 20;

impl AdminService {
    /// A page of the records that match and are visible to the caller.
    pub(super) async fn listing(&self, request: &ListRecords) -> Result<RecordPage, ApiProblem> {
        if request.outcomes {
            self.caller.must_be(Role::Operator)?;
        }
        let (limit, older_than) = (page_size(request.limit)?, request.older_than()?);
        let (mut after, mut listing) = (cursor(request.after.as_deref())?, RecordPage::default());
        for _ in 0..STORE_PAGES_MAX {
            let left = limit - listing.records.len() - listing.undecodable.len();
            let page = self.page(request, after, left).await?;
            listing.undecodable.extend(ids(&page.undecodable));
            let is_old = |it: &&Record| it.updated_at.until(self.now()) >= older_than;
            for record in page.records.iter().filter(|it| is_listed(it, request)).filter(is_old) {
                let state = self.listed_state(record, request.state).await?;
                listing.records.push(RecordView::of(record, state, request.outcomes));
            }
            after = page.next;
            if after.is_none() || listing.records.len() + listing.undecodable.len() == limit {
                break;
            }
        }
        listing.next = after.map(|after| after.to_string());
        Ok(listing)
    }

    /// A filter by state was already applied by the store, which needs no second query.
    async fn listed_state(
        &self,
        record: &Record,
        requested: Option<RecordState>,
    ) -> Result<RecordState, StoreError> {
        match requested {
            Some(state) => Ok(state),
            None => self.state(record).await,
        }
    }

    /// One page of the store. For a caller with tenants it is merged from a page of each tenant,
    /// without undecodable records: their tenant is not known.
    async fn page(
        &self,
        request: &ListRecords,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let query = Query {
            standing: request.state.map(Into::into),
            tenant: request.tenant.clone(),
            operation_name: request.operation.clone(),
            after,
            limit,
        };
        let tenants = self.caller.tenants();
        if tenants.is_empty() {
            return self.store.list(&query).await;
        }
        let mut pages = Vec::new();
        let is_requested =
            |it: &&String| request.tenant.as_ref().is_none_or(|tenant| tenant == *it);
        for tenant in tenants.iter().filter(is_requested) {
            let query = Query { tenant: Some(tenant.clone()), ..query.clone() };
            pages.push(self.store.list(&query).await?);
        }
        Ok(merge(pages, limit))
    }
}

/// Returns whether a record is in the listing: of the requested caller, and internal ones only on
/// request. The store filters by the rest.
fn is_listed(record: &Record, request: &ListRecords) -> bool {
    let of_caller = request.caller.as_ref().is_none_or(|it| record.scope.caller() == it);
    of_caller && (request.internal || record.scope.tenant() != INTERNAL_TENANT)
}

/// Merges pages that start at the same record into one.
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    // Beyond the end of a page that has a next one, records may be missing.
    let end = pages.iter().filter_map(|page| page.next).min();
    let records = pages.into_iter().flat_map(|page| page.records);
    let mut records: Vec<_> = records.filter(|it| end.is_none_or(|end| it.id <= end)).collect();
    records.sort_unstable_by_key(|record| record.id);
    records.dedup_by_key(|record| record.id);
    let next = if records.len() > limit { Some(records[limit - 1].id) } else { end };
    records.truncate(limit);
    Page { records, next, undecodable: Vec::new() }
}
