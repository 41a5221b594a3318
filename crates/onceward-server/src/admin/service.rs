//! The admin API at the store, by the role and tenants of the caller.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use onceward_core::{
    Clock, DecisionLog, INTERNAL_TENANT, Identity, Key, LoggedDecision, OperationId, Outcome,
    PurgeError, Purger, Query, Record, RecoveryObserver, Scope, State, StateName, StoreError,
    StoreErrorKind, SystemAmbient, Timestamp,
};
use onceward_stores::SharedStore;

use super::AdminApi;
use super::requests::{
    AcceptLoss, FindRecord, InvalidateCache, InvalidateRecord, ListDecisions, ListRecords,
    PAGE_MAX, PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord, VerifyRecords, cursor,
    page_size,
};
use super::views::{
    AcceptLossDone, CacheInvalidationDone, DecisionPage, PurgeDone, RecordDetails, RecordPage,
    RecordView, StoreTotals, VerifiedPage, ids,
};
use crate::api::{ApiProblem, Caller, OutcomeRules, RecordRef, RecordState};
use crate::config::Role;

/// The admin API of one caller at a store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AdminService {
    pub(super) store: SharedStore,
    identity: Identity,
    pub(super) decisions: DecisionLog,
    pub(super) outcome_rules: Arc<OutcomeRules>,
    pub(super) caller: Arc<Caller>,
    pub(super) observer: Option<Arc<dyn RecoveryObserver>>,
    purger: Purger,
    clock: Arc<SystemAmbient>,
}

impl AdminService {
    /// The API of `caller` at a store. `identity` is the one that the engines on the store use, and
    /// `purger` removes its expired records.
    pub(crate) fn new(
        store: SharedStore,
        identity: Identity,
        purger: Purger,
        outcome_rules: Arc<OutcomeRules>,
        caller: Arc<Caller>,
    ) -> Self {
        let decisions = DecisionLog::new(Arc::clone(&store), identity.clone());
        let clock = Arc::new(SystemAmbient::new());
        Self { store, identity, decisions, outcome_rules, caller, observer: None, purger, clock }
    }

    /// Reports decisions, for metrics.
    pub(super) fn observer(mut self, observer: Arc<dyn RecoveryObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// This machine's clock: for ages that are shown, never for a decision.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The state of a record. Only the store decides whether a lease has lapsed.
    pub(super) async fn state(&self, record: &Record) -> Result<RecordState, StoreError> {
        Ok(match record.state {
            State::Running { .. } if self.store.is_unknown(record).await? => RecordState::Unknown,
            State::Running { .. } => RecordState::Running,
            _ => record.standing(self.now()).unwrap_or(StateName::Expired).into(),
        })
    }

    /// A record that is visible to the caller; not found if there is none.
    pub(super) async fn must_find(&self, record_ref: &RecordRef) -> Result<Record, ApiProblem> {
        self.visible(record_ref).await?.ok_or_else(|| not_found(record_ref))
    }

    /// A record that is visible to the caller, if there is one.
    pub(super) async fn visible(
        &self,
        record_ref: &RecordRef,
    ) -> Result<Option<Record>, ApiProblem> {
        let found = match record_ref {
            RecordRef::Operation(id) => self.store.find(id).await,
            RecordRef::Record(id) => self.store.get(id).await,
        };
        let record = found.map_err(store_problem)?.filter(|it| self.caller.sees(it.scope.tenant()));
        Ok(record.filter(|it| it.standing(self.now()).is_some()))
    }

    /// The record of a key, or of the business reference that the key leads to.
    async fn find_key(&self, scope: &Scope, key: &Key) -> Result<Record, ApiProblem> {
        let none = || {
            ApiProblem::not_found(
                "There is no record of this key; it may have expired. Tenant, caller and operation \
                 have to be those of the request, as `records list` shows them.",
            )
        };
        let of_key = RecordRef::Record(self.identity.record_id(scope, key));
        let record = self.visible(&of_key).await?.ok_or_else(none)?;
        match record.state.outcome().and_then(Outcome::linked_record) {
            Some(linked) => self.visible(&RecordRef::Record(linked)).await?.ok_or_else(none),
            None => Ok(record),
        }
    }

    /// A record that decisions may change: visible and not internal.
    pub(super) async fn find_for_change(
        &self,
        record_ref: &RecordRef,
    ) -> Result<Record, ApiProblem> {
        let record = self.must_find(record_ref).await?;
        match record.scope.tenant() {
            INTERNAL_TENANT => Err(not_found(record_ref)),
            _ => Ok(record),
        }
    }

    pub(super) async fn details(
        &self,
        record: &Record,
        request: ShowRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        let state = self.state(record).await.map_err(store_problem)?;
        let decisions = self.decisions.about(&record.operation).await.map_err(store_problem)?;
        let record = RecordView::of(record, state, request.outcome);
        Ok(RecordDetails { record, decisions: decisions.into_iter().map(Into::into).collect() })
    }

    /// Refuses callers with tenants: the request covers the records of all tenants.
    pub(super) fn must_see_all_tenants(&self) -> Result<(), ApiProblem> {
        if self.caller.tenants().is_empty() {
            return Ok(());
        }
        let title = "The token is restricted to tenants";
        Err(ApiProblem::new(StatusCode::FORBIDDEN, "ALL_TENANTS_NEEDED", title).detail(
            "The request covers the records of all tenants: use a token without `tenants`.",
        ))
    }

    /// The decisions about one operation. Decisions outlive the record that they are about.
    async fn decisions_about(&self, operation: &OperationId) -> Result<DecisionPage, ApiProblem> {
        let written = self.decisions.about(operation).await.map_err(store_problem)?;
        if !self.operation_exists(operation, &written).await? {
            return Err(not_found(&RecordRef::Operation(*operation)));
        }
        let decisions = written.into_iter().map(Into::into).collect();
        Ok(DecisionPage { decisions, next: None })
    }

    /// Returns whether an operation is visible to the caller.
    async fn operation_exists(
        &self,
        id: &OperationId,
        written: &[LoggedDecision],
    ) -> Result<bool, ApiProblem> {
        let record = self.store.find(id).await.map_err(store_problem)?;
        Ok(match record {
            Some(record) => self.caller.sees(record.scope.tenant()),
            // The tenant of a removed record is not known any more.
            None => !written.is_empty() && self.caller.tenants().is_empty(),
        })
    }

    async fn all_decisions(&self, request: &ListDecisions) -> Result<DecisionPage, ApiProblem> {
        let (after, limit) = (cursor(request.after.as_deref())?, page_size(request.limit)?);
        let (written, next) = self.decisions.list(after, limit).await.map_err(store_problem)?;
        let mut decisions = Vec::with_capacity(written.len());
        for written in written {
            let about = written.decision.operation;
            if self.operation_exists(&about, std::slice::from_ref(&written)).await? {
                decisions.push(written.into());
            }
        }
        Ok(DecisionPage { decisions, next: next.map(|next| next.to_string()) })
    }
}

#[async_trait]
impl AdminApi for AdminService {
    async fn records(&self, request: &ListRecords) -> Result<RecordPage, ApiProblem> {
        self.listing(request).await
    }

    async fn record(
        &self,
        record_ref: &RecordRef,
        request: &ShowRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        if request.outcome {
            self.caller.must_be(Role::Operator)?;
        }
        let record = self.must_find(record_ref).await?;
        self.details(&record, *request).await
    }

    async fn find(&self, request: &FindRecord) -> Result<RecordDetails, ApiProblem> {
        if request.outcome {
            self.caller.must_be(Role::Operator)?;
        }
        let (scope, key) = request.parse()?;
        let record = self.find_key(&scope, &key).await?;
        self.details(&record, ShowRecord { outcome: request.outcome }).await
    }

    async fn resolve(
        &self,
        record_ref: &RecordRef,
        request: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.decide_happened(record_ref, request).await
    }

    async fn release(
        &self,
        record_ref: &RecordRef,
        request: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.decide_did_not_happen(record_ref, request).await
    }

    async fn invalidate(
        &self,
        record_ref: &RecordRef,
        request: &InvalidateRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.decide_invalid(record_ref, request).await
    }

    async fn invalidate_cache(
        &self,
        request: &InvalidateCache,
    ) -> Result<CacheInvalidationDone, ApiProblem> {
        self.decide_cache_invalid(request).await
    }

    async fn purge(&self, request: &PurgeRecords) -> Result<PurgeDone, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        self.must_see_all_tenants()?;
        let limit = page_size(request.limit.or(Some(PAGE_MAX)))?;
        Ok(self.purger.purge(limit).await.map_err(not_purged)?.into())
    }

    async fn accept_loss(&self, request: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        self.must_see_all_tenants()?;
        self.decide_loss(request).await
    }

    async fn decisions(&self, request: &ListDecisions) -> Result<DecisionPage, ApiProblem> {
        let Some(operation) = &request.operation_id else {
            return self.all_decisions(request).await;
        };
        let wrong =
            |_| ApiProblem::bad_request(format!("operation_id: {operation:?} is not a UUID"));
        self.decisions_about(&operation.parse().map_err(wrong)?).await
    }

    async fn stats(&self) -> Result<StoreTotals, ApiProblem> {
        self.must_see_all_tenants()?;
        Ok(self.store.stats().await.map_err(store_problem)?.into())
    }

    async fn verify(&self, request: &VerifyRecords) -> Result<VerifiedPage, ApiProblem> {
        self.must_see_all_tenants()?;
        let (after, limit) = (cursor(request.after.as_deref())?, page_size(request.limit)?);
        let query = Query { after, limit, ..Query::default() };
        let page = self.store.list(&query).await.map_err(store_problem)?;
        let read = (page.records.len() + page.undecodable.len()) as u64;
        let next = page.next.map(|next| next.to_string());
        Ok(VerifiedPage { read, undecodable: ids(&page.undecodable), next })
    }
}

/// An undecodable record is not retryable: the same request fails again.
pub(super) fn store_problem(error: StoreError) -> ApiProblem {
    if error.kind != StoreErrorKind::Undecodable {
        return error.into();
    }
    tracing::warn!(%error, "the store failed");
    let title = "The record cannot be read";
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "RECORD_UNREADABLE", title).detail(
        "The record exists. It is damaged, of a newer release, or sealed with a key that is not \
         configured. `onceward store verify` lists such records.",
    )
}

/// Why expired records were not removed. Those of earlier calls are.
fn not_purged(error: PurgeError) -> ApiProblem {
    match error {
        PurgeError::Store(error) => store_problem(error),
        PurgeError::Archive(error) => {
            tracing::error!(%error, "expired records are not archived, so they are not removed");
            let title = "The archive cannot be written";
            ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "ARCHIVE_NOT_WRITTEN", title)
                .detail(format!("Nothing was removed. {error}"))
                .retryable()
        }
        _ => {
            let title = "No archive is set";
            ApiProblem::new(StatusCode::CONFLICT, "ARCHIVE_NEEDED", title).detail(
                "Nothing was removed: expired records of this store are archived first. Give \
                 --config FILE with store.archive, or ask a gateway that has it with --admin URL. To \
                 remove them without an archive, set store.archive = \"off\".",
            )
        }
    }
}

pub(super) fn not_found(record_ref: &RecordRef) -> ApiProblem {
    ApiProblem::not_found(&match record_ref {
        RecordRef::Operation(id) => format!("There is no operation {id}; it may have expired."),
        RecordRef::Record(id) => format!("There is no record {id}; it may have expired."),
    })
}

impl fmt::Debug for AdminService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminService").field("caller", &self.caller).finish_non_exhaustive()
    }
}
