//! Forced decisions: what nobody could prove, somebody takes upon themselves.
//!
//! A decision is about a record under one fence. It is written into the trail, then made by
//! the store, which refuses it if the matter has moved on; that is written down too.

use http::StatusCode;
use onceward_core::{
    Decision, DecisionKind, Fence, Fenced, LossAccepted, OperationId, Query, Record, RecordId,
    ResolveRequest, Retention, State, StateName, StoreError, SystemAmbient, Verdict,
};
use onceward_stores::sealed;
use sha2::{Digest, Sha256};

use super::requests::{AcceptLoss, ReleaseRecord, ResolveRecord, ShowRecord, reason};
use super::service::{AdminService, told};
use super::views::{AcceptLossDone, RecordDetails};
use crate::api::{ApiProblem, RecordRef, RecordState, Rfc3339};
use crate::config::Role;

/// What is to be decided, complete.
struct Order {
    record: Record,
    verdict: Verdict,
    decided: DecisionKind,
    evidence: String,
    retention: Retention,
}

impl AdminService {
    pub(super) async fn decide_happened(
        &self,
        subject: &RecordRef,
        order: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        let record = self.decidable(subject, order.fence).await?;
        let outcome = order.reply.outcome()?;
        let (status, digest) = (order.reply.status, Sha256::digest(&outcome.bytes));
        let digits: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = order.reply.body()?.len();
        let why = reason(&order.reason)?;
        self.decide(Order {
            retention: self.retention.retention(&record.scope, order.keep()?),
            evidence: format!("{why} (reply {status}, {bytes} bytes, sha256 {digits}…)"),
            verdict: Verdict::Happened(outcome),
            decided: DecisionKind::Happened,
            record,
        })
        .await
    }

    pub(super) async fn decide_did_not_happen(
        &self,
        subject: &RecordRef,
        order: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        let record = self.decidable(subject, order.fence).await?;
        self.decide(Order {
            retention: self.retention.retention(&record.scope, None),
            evidence: reason(&order.reason)?.to_owned(),
            verdict: Verdict::DidNotHappen,
            decided: DecisionKind::DidNotHappen,
            record,
        })
        .await
    }

    /// Accepts that the store has lost records.
    pub(super) async fn decide_loss(
        &self,
        order: &AcceptLoss,
    ) -> Result<AcceptLossDone, ApiProblem> {
        let (service, why) = (self.clone(), reason(&order.reason)?.to_owned());
        to_the_end(async move { service.accept_loss_and_write(why).await }).await
    }

    /// The one decision that is written down after it was made: a store that has lost records
    /// takes no new ones before, not even this.
    async fn accept_loss_and_write(&self, why: String) -> Result<AcceptLossDone, ApiProblem> {
        let by = &self.caller.name;
        tracing::warn!(by, reason = why, "an operator accepts that the store has lost records");
        match self.store.accept_loss().await.map_err(told)? {
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
        self.decisions.write(&decision).await.map_err(|error| unwritten(&error))?;
        Ok(AcceptLossDone { reopened: true })
    }

    /// A record that the caller may decide about, under the fence that it has seen.
    async fn decidable(&self, subject: &RecordRef, fence: u64) -> Result<Record, ApiProblem> {
        self.caller.must_be(Role::Operator)?;
        let record = self.found_to_change(subject).await?;
        self.must_open_seals().await?;
        if record.fence != Fence(fence) {
            return Err(moved(&record));
        }
        Ok(record)
    }

    /// Whoever has no keys of a sealed store would write what its gateways refuse to read: all
    /// outcomes are sealed there, so any one tells.
    async fn must_open_seals(&self) -> Result<(), ApiProblem> {
        let standing = Some(StateName::Completed);
        let any = self.store.list(&Query { standing, limit: 1, ..Query::default() }).await;
        let any = any.map_err(told)?;
        let outcome = any.records.first().and_then(|record| record.state.outcome());
        match outcome {
            Some(outcome) if outcome.tag == sealed::TAG => Err(keys_missing()),
            _ => Ok(()),
        }
    }

    /// In a task of its own: whoever hangs up has decided all the same, and no decision is
    /// written down and then not made.
    async fn decide(&self, order: Order) -> Result<RecordDetails, ApiProblem> {
        let service = self.clone();
        to_the_end(async move { service.carry_out(order).await }).await
    }

    async fn carry_out(&self, order: Order) -> Result<RecordDetails, ApiProblem> {
        let record = &order.record;
        if order.is_made() {
            return self.shown(record, ShowRecord::default()).await;
        }
        if !self.store.is_unknown(record).await.map_err(told)? {
            return Err(self.not_unknown(record).await?);
        }
        let decision = order.decision(&self.caller.name);
        self.write_once(&decision).await?;
        match self.store.resolve(&order.request()).await.map_err(told)? {
            Fenced::Applied(()) => {}
            Fenced::Stale | Fenced::Missing => {
                let superseded = Decision { decided: DecisionKind::Superseded, ..decision };
                self.decisions.write(&superseded).await.map_err(told)?;
                return Err(settled("Somebody else has settled it meanwhile."));
            }
        }
        let record = self.found_to_change(&RecordRef::Record(record.id)).await?;
        self.shown(&record, ShowRecord::default()).await
    }

    /// An order that is sent again, because its answer was lost, is written down once.
    async fn write_once(&self, decision: &Decision) -> Result<(), ApiProblem> {
        let written = self.decisions.about(&decision.operation).await.map_err(told)?;
        if written.last().is_some_and(|last| last.decision == *decision) {
            return Ok(());
        }
        self.decisions.write(decision).await.map_err(told)
    }

    /// Why there is nothing to decide about a record.
    async fn not_unknown(&self, record: &Record) -> Result<ApiProblem, ApiProblem> {
        if let State::Running { lease_until } = record.state {
            return Ok(live(record, lease_until.into()));
        }
        let standing = self.standing(record).await.map_err(told)?;
        Ok(settled(match standing {
            RecordState::Completed | RecordState::Failed => {
                "Its outcome is known and is not changed."
            }
            RecordState::Released => "It was released: its key is free.",
            RecordState::Expired => "Its outcome was known and is past its time.",
            RecordState::Running | RecordState::Unknown => {
                "It has changed just now: look at it again."
            }
        }))
    }
}

impl Order {
    /// Whether this very order was carried out before.
    fn is_made(&self) -> bool {
        match (&self.record.state, &self.verdict) {
            (State::Completed { outcome, .. }, Verdict::Happened(ordered)) => outcome == ordered,
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

    fn request(&self) -> ResolveRequest {
        ResolveRequest {
            id: self.record.id,
            fence: self.record.fence,
            verdict: self.verdict.clone(),
            retention: self.retention,
        }
    }
}

/// Runs a decision in a task of its own, which does not end with its caller.
async fn to_the_end<T: Send + 'static>(
    decision: impl Future<Output = Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    tokio::spawn(decision).await.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_stopped) => Err(stopping()),
    })
}

fn unwritten(error: &StoreError) -> ApiProblem {
    tracing::error!(%error, "the accepted loss is not in the trail; the log above has its reason");
    let title = "The loss is accepted, and not in the trail";
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "TRAIL_NOT_WRITTEN", title)
        .detail(format!("Claims are granted again. The trail: {} ({}).", error.kind, error.effect))
}

fn stopping() -> ApiProblem {
    let title = "The program is stopping";
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", title)
        .detail("It may have been decided; look, or send it again.")
        .retryable()
}

fn keys_missing() -> ApiProblem {
    let title = "The store is sealed";
    ApiProblem::new(StatusCode::CONFLICT, "SEALING_KEYS_NEEDED", title).detail(
        "Gateways could not read what is decided without its keys: give --config FILE with \
         store.sealing_keys_file or store.sealing_keys_env, or ask a gateway by --admin URL.",
    )
}

fn moved(record: &Record) -> ApiProblem {
    let title = "The record has moved on";
    ApiProblem::new(StatusCode::CONFLICT, "FENCE_MOVED", title).detail(format!(
        "Its fence is {} now: somebody was granted it since you looked. Look at it again.",
        record.fence
    ))
}

fn live(record: &Record, until: Rfc3339) -> ApiProblem {
    let title = "Somebody works on it";
    ApiProblem::new(StatusCode::CONFLICT, "LEASE_LIVE", title).detail(format!(
        "Its lease lasts until {until} and may be renewed (attempt {}): wait until it is \
         settled, or stop its owner and wait until the lease has lapsed.",
        record.attempts
    ))
}

fn settled(detail: &str) -> ApiProblem {
    let title = "There is nothing to decide";
    ApiProblem::new(StatusCode::CONFLICT, "ALREADY_SETTLED", title).detail(detail)
}
