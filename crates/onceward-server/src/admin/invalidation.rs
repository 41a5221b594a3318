//! Decisions of operators after corrections of data: stored responses that must not be replayed any
//! more, and copies in the cache that do not count any more.

use http::StatusCode;
use onceward_core::log::LogSubject;
use onceward_core::{
    CachedCopies, Decision, DecisionKind, Fence, Fenced, InvalidateRequest, OperationId, Outcome,
    Record, RecordId, State, SystemAmbient, log_operation,
};

use super::decisions::{fence_moved, lease_live, run_detached};
use super::requests::{InvalidateCache, InvalidateRecord, ShowRecord, reason};
use super::service::{AdminService, not_found, store_problem};
use super::views::{CacheInvalidationDone, RecordDetails};
use crate::api::{ApiProblem, RecordRef, RecordState};
use crate::config::Role;

impl AdminService {
    /// Decides that a stored response must not be replayed any more.
    pub(super) async fn decide_invalid(
        &self,
        record_ref: &RecordRef,
        request: &InvalidateRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        let record = self.find_for_change(record_ref).await?;
        if record.fence != Fence(request.fence) {
            return Err(fence_moved(&record));
        }
        let record = self.with_response(record).await?;
        let (service, why) = (self.clone(), reason(&request.reason)?.to_owned());
        run_detached(async move { service.invalidate_record(record, why).await }).await
    }

    /// The record that has the response: that of the business reference, if a key leads to one.
    async fn with_response(&self, record: Record) -> Result<Record, ApiProblem> {
        match record.state.outcome().and_then(Outcome::linked_record) {
            Some(linked) => self.find_for_change(&RecordRef::Record(linked)).await,
            None => Ok(record),
        }
    }

    async fn invalidate_record(
        &self,
        record: Record,
        why: String,
    ) -> Result<RecordDetails, ApiProblem> {
        let decision = Decision {
            operation: record.operation,
            fence: record.fence,
            decided: DecisionKind::Invalidated,
            by: self.caller.name.clone(),
            evidence: why,
        };
        if !record.state.outcome().is_some_and(Outcome::is_invalidated) {
            self.must_have_outcome(&record).await?;
            self.record_once(&decision).await?;
        }
        // Also for an invalidated record: an earlier attempt may not have reached the cache.
        let request = InvalidateRequest { id: record.id, fence: record.fence };
        match self.store.invalidate(&request).await.map_err(store_problem)? {
            Fenced::Applied(()) => {}
            Fenced::Stale | Fenced::Missing => {
                let superseded = Decision { decided: DecisionKind::Superseded, ..decision };
                self.decisions.write(&superseded).await.map_err(store_problem)?;
                return Err(nothing_to_invalidate("It has expired meanwhile, or was used again."));
            }
        }
        let Decision { by, evidence, .. } = &decision;
        log_operation!(INFO, LogSubject::of_record(&record), {
            by, verdict = "invalidated", reason = evidence,
        }, "an operator decided");
        let record = self.find_for_change(&RecordRef::Record(record.id)).await?;
        self.details(&record, ShowRecord::default()).await
    }

    /// Refuses a record that has no outcome to invalidate. Only the store decides whether an outcome
    /// has expired.
    async fn must_have_outcome(&self, record: &Record) -> Result<(), ApiProblem> {
        if record.state.outcome().is_some() {
            return Ok(());
        }
        let state = self.state(record).await.map_err(store_problem)?;
        match (state, &record.state) {
            (RecordState::Running, State::Running { lease_until }) => {
                Err(lease_live(record, (*lease_until).into()))
            }
            _ => Err(nothing_to_invalidate(without_outcome(state).unwrap_or_default())),
        }
    }

    /// Decides that copies in the cache do not count any more.
    pub(super) async fn decide_cache_invalid(
        &self,
        request: &InvalidateCache,
    ) -> Result<CacheInvalidationDone, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        let why = reason(&request.reason)?.to_owned();
        let copies = match request.records()? {
            Some(ids) => self.copies_of(&ids).await?,
            None => {
                self.must_see_all_tenants()?;
                Copies::default()
            }
        };
        if !self.store.has_cache() {
            return Err(no_cache());
        }
        let service = self.clone();
        run_detached(async move { service.invalidate_copies(copies, why).await }).await
    }

    /// The copies of these records. A record that was deleted may have one; only callers of all
    /// tenants may name it, as its tenant is not known any more.
    async fn copies_of(&self, ids: &[RecordRef]) -> Result<Copies, ApiProblem> {
        let mut copies = Copies { all: false, ..Copies::default() };
        for id in ids {
            match (self.visible(id).await?, id) {
                (Some(record), _) => {
                    copies.records.push(record.id);
                    copies.only = Some((record.operation, record.fence));
                }
                (None, _) if !self.caller.tenants().is_empty() => return Err(not_found(id)),
                (None, RecordRef::Record(record)) => copies.records.push(*record),
                (None, RecordRef::Operation(_)) => copies.missing += 1,
            }
        }
        if ids.len() > 1 {
            copies.only = None;
        }
        Ok(copies)
    }

    async fn invalidate_copies(
        &self,
        copies: Copies,
        why: String,
    ) -> Result<CacheInvalidationDone, ApiProblem> {
        let Copies { records, missing, .. } = &copies;
        let done = CacheInvalidationDone { records: records.len() as u64, missing: *missing };
        let ambient = SystemAmbient::new();
        let of_no_record = || OperationId::draw(&ambient, &RecordId::from_bytes([0; 32]));
        let (operation, fence) = copies.only.unwrap_or_else(|| (of_no_record(), Fence(0)));
        let evidence = match copies.all {
            true => format!("{why} (all copies)"),
            false => format!("{why} (copies of {} records)", done.records + done.missing),
        };
        let (decided, by) = (DecisionKind::CacheInvalidated, self.caller.name.clone());
        let decision = Decision { operation, fence, decided, by, evidence };
        self.decisions.write(&decision).await.map_err(store_problem)?;
        let Decision { by, evidence, .. } = &decision;
        tracing::info!(by, reason = evidence, "an operator invalidates copies in the cache");
        let of_all = copies.all || copies.records.is_empty();
        let cached = if of_all { CachedCopies::All } else { CachedCopies::Of(copies.records) };
        self.store.invalidate_cache(&cached).await.map_err(store_problem)?;
        Ok(done)
    }
}

/// The copies that a request is about.
struct Copies {
    all: bool,
    records: Vec<RecordId>,
    /// Operations that no record has any more.
    missing: u64,
    /// The operation and its fence, if the request is about one.
    only: Option<(OperationId, Fence)>,
}

impl Default for Copies {
    /// All of them.
    fn default() -> Self {
        Self { all: true, records: Vec::new(), missing: 0, only: None }
    }
}

/// Why a record in this state has no outcome to invalidate; `None` if it has one.
pub(crate) fn without_outcome(state: RecordState) -> Option<&'static str> {
    match state {
        RecordState::Completed | RecordState::Failed => None,
        RecordState::Running => Some("It is running: wait until it is settled, then try again."),
        RecordState::Unknown => Some(
            "Its outcome is unknown, and no response is stored. Decide it with `onceward records \
             resolve` or `onceward records release`.",
        ),
        RecordState::Released => {
            Some("It was released: no response is stored, and its key is free.")
        }
        RecordState::Expired => Some("It has expired: its response is not replayed any more."),
    }
}

fn nothing_to_invalidate(detail: &str) -> ApiProblem {
    let title = "There is no outcome to invalidate";
    ApiProblem::new(StatusCode::CONFLICT, "NOTHING_TO_INVALIDATE", title).detail(detail)
}

fn no_cache() -> ApiProblem {
    let title = "The store has no cache";
    ApiProblem::new(StatusCode::CONFLICT, "NO_CACHE", title).detail(
        "Only PostgreSQL with store.cache has copies of records; without it, every retry asks the \
         store itself. For a store with a cache give --config FILE, or --admin URL. If a stored \
         response must not be replayed any more, use `onceward records invalidate`.",
    )
}
