//! Decisions of operators about unknown outcomes.
//!
//! A decision is about a record under one fence. It is written to the audit log and then applied by
//! the store, which refuses it if the record has changed meanwhile. Such a refusal is written to the
//! audit log too.

use http::StatusCode;
use onceward_core::log::LogSubject;
use onceward_core::{
    Decision, DecisionKind, Fence, Fenced, LossAccepted, OperationId, Outcome, Query, Record,
    RecordId, RecoveryStatus, ResolveRequest, Retention, State, StateName, StoreError,
    SystemAmbient, Verdict, log_operation,
};
use onceward_http::{ResponseBody, outcome_head};
use onceward_stores::sealed;
use sha2::{Digest, Sha256};

use super::reply::Reply;
use super::requests::{AcceptLoss, ReleaseRecord, ResolveRecord, ShowRecord, reason};
use super::service::{AdminService, store_problem};
use super::views::{AcceptLossDone, RecordDetails};
use crate::api::{ApiProblem, RecordRef, RecordState, Rfc3339};
use crate::config::Role;

/// A decision that is complete and not applied yet.
struct PendingDecision {
    record: Record,
    verdict: Verdict,
    decided: DecisionKind,
    evidence: String,
    retention: Retention,
}

impl AdminService {
    pub(super) async fn decide_happened(
        &self,
        record_ref: &RecordRef,
        request: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        let record = self.decidable(record_ref, request.fence).await?;
        let outcome = self.outcome(&record, &request.reply)?;
        let (status, digest) = (request.reply.status, Sha256::digest(&outcome.bytes));
        let digits: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = request.reply.body()?.len();
        let why = reason(&request.reason)?;
        self.decide(PendingDecision {
            retention: self.outcome_rules.retention(&record.scope, request.keep()?),
            evidence: format!("{why} (reply {status}, {bytes} bytes, sha256 {digits}…)"),
            verdict: Verdict::Happened(outcome),
            decided: DecisionKind::Happened,
            record,
        })
        .await
    }

    pub(super) async fn decide_did_not_happen(
        &self,
        record_ref: &RecordRef,
        request: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        let record = self.decidable(record_ref, request.fence).await?;
        self.decide(PendingDecision {
            retention: self.outcome_rules.retention(&record.scope, None),
            evidence: reason(&request.reason)?.to_owned(),
            verdict: Verdict::DidNotHappen,
            decided: DecisionKind::DidNotHappen,
            record,
        })
        .await
    }

    /// The outcome to store, without a body where the operation's bodies are not stored.
    fn outcome(&self, record: &Record, reply: &Reply) -> Result<Outcome, ApiProblem> {
        let outcome = reply.outcome()?;
        match self.outcome_rules.response_body(&record.scope) {
            ResponseBody::Store => Ok(outcome),
            ResponseBody::Omit if reply.body_base64.is_empty() => Ok(outcome_head(&outcome)),
            ResponseBody::Omit => Err(ApiProblem::bad_request(
                "body_base64: bodies of this operation are not stored (response_body = \"omit\"); \
                 send the reply without its body",
            )),
        }
    }

    /// Accepts that the store has lost records.
    pub(super) async fn decide_loss(
        &self,
        request: &AcceptLoss,
    ) -> Result<AcceptLossDone, ApiProblem> {
        let (service, why) = (self.clone(), reason(&request.reason)?.to_owned());
        run_detached(async move { service.accept_and_record_loss(why).await }).await
    }

    /// The only decision that is written to the audit log after it is applied: a store that has lost
    /// records takes no new ones before, not even this one.
    async fn accept_and_record_loss(&self, why: String) -> Result<AcceptLossDone, ApiProblem> {
        let by = &self.caller.name;
        tracing::warn!(by, reason = why, "an operator accepts that the store has lost records");
        match self.store.accept_loss().await.map_err(store_problem)? {
            LossAccepted::NothingWasLost => return Ok(AcceptLossDone { reopened: false }),
            LossAccepted::Reopened => {}
        }
        let ambient = SystemAmbient::new();
        let decision = Decision {
            operation: OperationId::draw(&ambient, &RecordId::from_bytes([0; 32])),
            fence: Fence(0),
            decided: DecisionKind::LossAccepted,
            by: by.clone(),
            evidence: why,
        };
        self.decisions.write(&decision).await.map_err(|error| audit_log_not_written(&error))?;
        Ok(AcceptLossDone { reopened: true })
    }

    /// A record that the caller may decide about. `fence` is the one that the caller has seen.
    async fn decidable(&self, record_ref: &RecordRef, fence: u64) -> Result<Record, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        let record = self.find_for_change(record_ref).await?;
        self.must_have_sealing_keys().await?;
        if record.fence != Fence(fence) {
            return Err(fence_moved(&record));
        }
        Ok(record)
    }

    /// Refuses a decision without the keys of a sealed store: its gateways could not read the
    /// outcome. All outcomes of such a store are sealed, so one of them is enough to tell.
    async fn must_have_sealing_keys(&self) -> Result<(), ApiProblem> {
        let standing = Some(StateName::Completed);
        let any = self.store.list(&Query { standing, limit: 1, ..Query::default() }).await;
        let any = any.map_err(store_problem)?;
        let outcome = any.records.first().and_then(|record| record.state.outcome());
        match outcome {
            Some(outcome) if outcome.tag == sealed::TAG => Err(sealing_keys_needed()),
            _ => Ok(()),
        }
    }

    /// Applies a decision in a task of its own: a client that disconnects cancels nothing, so no
    /// decision is written to the audit log and then not applied.
    async fn decide(&self, pending: PendingDecision) -> Result<RecordDetails, ApiProblem> {
        let service = self.clone();
        run_detached(async move { service.apply(pending).await }).await
    }

    async fn apply(&self, pending: PendingDecision) -> Result<RecordDetails, ApiProblem> {
        let record = &pending.record;
        if pending.is_applied() {
            return self.details(record, ShowRecord::default()).await;
        }
        if !self.store.is_unknown(record).await.map_err(store_problem)? {
            return Err(self.not_decidable(record).await?);
        }
        let decision = pending.decision(&self.caller.name);
        self.record_once(&decision).await?;
        match self.store.resolve(&pending.resolve_request()).await.map_err(store_problem)? {
            Fenced::Applied(()) => self.report(record, pending.decided, &decision),
            Fenced::Stale | Fenced::Missing => {
                self.report(record, DecisionKind::Superseded, &decision);
                let superseded = Decision { decided: DecisionKind::Superseded, ..decision };
                self.decisions.write(&superseded).await.map_err(store_problem)?;
                return Err(already_settled("It was settled otherwise meanwhile."));
            }
        }
        let record = self.find_for_change(&RecordRef::Record(record.id)).await?;
        self.details(&record, ShowRecord::default()).await
    }

    /// Counts and logs a decision.
    fn report(&self, record: &Record, decided: DecisionKind, decision: &Decision) {
        let Decision { by, evidence, .. } = decision;
        let status = RecoveryStatus::of_decision(decided);
        if let (Some(observer), Some(status)) = (&self.observer, status) {
            observer.recovered(record, status);
        }
        let verdict = status.map(RecoveryStatus::name);
        log_operation!(INFO, LogSubject::of_record(record), {
            by, verdict, state = decided.state_after(), reason = evidence,
        }, "an operator decided");
    }

    /// Writes a decision once, also when it is sent again because its response was lost.
    pub(super) async fn record_once(&self, decision: &Decision) -> Result<(), ApiProblem> {
        let written = self.decisions.about(&decision.operation).await.map_err(store_problem)?;
        if written.last().is_some_and(|last| last.decision == *decision) {
            return Ok(());
        }
        self.decisions.write(decision).await.map_err(store_problem)
    }

    /// The problem for a record whose outcome is not unknown.
    async fn not_decidable(&self, record: &Record) -> Result<ApiProblem, ApiProblem> {
        if let State::Running { lease_until } = record.state {
            return Ok(lease_live(record, lease_until.into()));
        }
        let state = self.state(record).await.map_err(store_problem)?;
        Ok(already_settled(match state {
            RecordState::Completed | RecordState::Failed => {
                "Its outcome is known and does not change."
            }
            RecordState::Released => "It was released: its key is free.",
            RecordState::Expired => "Its outcome was known and has expired.",
            RecordState::Running | RecordState::Unknown => "It has just changed: look at it again.",
        }))
    }
}

impl PendingDecision {
    /// True if this very decision was applied before.
    fn is_applied(&self) -> bool {
        match (&self.record.state, &self.verdict) {
            (State::Completed { outcome, .. }, Verdict::Happened(decided)) => outcome == decided,
            (State::Released { .. }, Verdict::DidNotHappen) => true,
            _ => false,
        }
    }

    fn decision(&self, by: &str) -> Decision {
        Decision {
            operation: self.record.operation,
            fence: self.record.fence,
            decided: self.decided,
            by: by.to_owned(),
            evidence: self.evidence.clone(),
        }
    }

    fn resolve_request(&self) -> ResolveRequest {
        ResolveRequest {
            id: self.record.id,
            fence: self.record.fence,
            verdict: self.verdict.clone(),
            retention: self.retention,
        }
    }
}

/// Runs a decision in a task of its own, which goes on when its caller is dropped.
pub(super) async fn run_detached<T: Send + 'static>(
    decision: impl Future<Output = Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    tokio::spawn(decision).await.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_stopped) => Err(stopping()),
    })
}

fn audit_log_not_written(error: &StoreError) -> ApiProblem {
    tracing::error!(%error, "the accepted loss is not in the audit log; its reason is in the log line before");
    let title = "The loss is accepted, and not in the audit log";
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "TRAIL_NOT_WRITTEN", title).detail(format!(
        "Claims are granted again. The audit log could not be written: {} ({}).",
        error.kind, error.effect
    ))
}

fn stopping() -> ApiProblem {
    let title = "The program is stopping";
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", title)
        .detail(
            "The decision may have been applied. Look at the record, or send the request again.",
        )
        .retryable()
}

fn sealing_keys_needed() -> ApiProblem {
    let title = "The store is sealed";
    ApiProblem::new(StatusCode::CONFLICT, "SEALING_KEYS_NEEDED", title).detail(
        "Gateways could not read an outcome that is stored without its keys. Give --config FILE with \
         store.sealing_keys_file or store.sealing_keys_env, or ask a gateway with --admin URL.",
    )
}

pub(super) fn fence_moved(record: &Record) -> ApiProblem {
    let title = "The fence has changed";
    ApiProblem::new(StatusCode::CONFLICT, "FENCE_MOVED", title).detail(format!(
        "Its fence is {} now: the key was granted again since you looked. Look at the record again.",
        record.fence
    ))
}

pub(super) fn lease_live(record: &Record, until: Rfc3339) -> ApiProblem {
    let title = "The operation is running";
    ApiProblem::new(StatusCode::CONFLICT, "LEASE_LIVE", title).detail(format!(
        "Its lease lasts until {until} and may be renewed (attempt {}). Wait until it is \
         settled, or stop its owner and wait until the lease has lapsed.",
        record.attempts
    ))
}

fn already_settled(detail: &str) -> ApiProblem {
    let title = "The outcome is not unknown";
    ApiProblem::new(StatusCode::CONFLICT, "ALREADY_SETTLED", title).detail(detail)
}
