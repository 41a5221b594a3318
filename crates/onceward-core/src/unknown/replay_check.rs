//! Questions to the source of truth about completed operations, before they are replayed.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use super::reconciler::ReconcilerSettings;
use super::recovery::Recovery;
use super::resolver::{BoxError, Finding};
use crate::intent::{OperationId, RecordId};
use crate::log::{LogSubject, LogThrottle};
use crate::log_operation;
use crate::record::{Record, State};
use crate::store::Verdict;

/// Result of a question about a completed operation, before its replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayVerdict {
    /// The source of truth says that it happened: it is replayed.
    Confirmed,
    /// The source of truth says that it did not happen. It is neither replayed nor run again.
    Contradicted,
    /// The source of truth does not know, failed, or did not answer in time.
    Unconfirmed,
}

impl ReplayVerdict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Confirmed, Self::Contradicted, Self::Unconfirmed];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Contradicted => "contradicted",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// The open questions. Retries of one operation share a question, and few questions are asked at
/// once.
pub(super) struct ReplayChecks {
    open: Mutex<HashMap<OperationId, SharedVerdict>>,
    slots: Semaphore,
    pub(super) patience: Duration,
    /// Rate limit of log lines about contradictions: each is about an operation that a person has
    /// to look at.
    contradictions: LogThrottle,
}

/// The verdict of an open question; an error if its task has ended without one.
type SharedVerdict = Shared<oneshot::Receiver<ReplayVerdict>>;

impl ReplayChecks {
    pub(super) fn new(at_once: usize, patience: Duration) -> Self {
        Self {
            open: Mutex::default(),
            slots: Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)),
            patience,
            contradictions: LogThrottle::new(50),
        }
    }
}

impl Default for ReplayChecks {
    fn default() -> Self {
        let ReconcilerSettings { at_once, patience, .. } = ReconcilerSettings::default();
        Self::new(at_once, patience)
    }
}

/// Removes a question from the open ones when its task ends in any way.
struct OpenQuestion {
    checks: Arc<ReplayChecks>,
    operation: OperationId,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.checks.open.lock().remove(&self.operation);
    }
}

impl Recovery {
    /// Asks whether a completed operation stands, or joins a question about it that is open. The
    /// question goes on when its caller is dropped. The record is searched for without its `id`.
    pub(crate) async fn check_replay(
        &self,
        id: Option<RecordId>,
        operation: OperationId,
    ) -> ReplayVerdict {
        let (sender, question) = {
            let mut open = self.replay_checks.open.lock();
            match open.get(&operation) {
                Some(question) => (None, question.clone()),
                None => {
                    let (sender, receiver) = oneshot::channel();
                    let question = receiver.shared();
                    open.insert(operation, question.clone());
                    (Some(sender), question)
                }
            }
        };
        if let Some(sender) = sender {
            let checks = Arc::clone(&self.replay_checks);
            let (this, open) = (self.clone(), OpenQuestion { checks, operation });
            tokio::spawn(async move {
                let verdict = this.ask_before_replay(id, operation).await;
                drop(open); // Later retries ask again: what was true may have changed.
                let _waiters_may_be_gone = sender.send(verdict);
            });
        }
        question.await.unwrap_or(ReplayVerdict::Unconfirmed)
    }

    async fn ask_before_replay(
        &self,
        id: Option<RecordId>,
        operation: OperationId,
    ) -> ReplayVerdict {
        let end = Instant::now() + self.replay_checks.patience;
        let reading = async {
            match id {
                Some(id) => self.store.get(&id).await,
                None => self.store.find(&operation).await,
            }
        };
        let found = match timeout_at(end, reading).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return self.not_asked(operation, &error),
            Err(_late) => return self.not_asked(operation, &"the store did not answer in time"),
        };
        let stands = |record: &Record| {
            record.operation == operation && matches!(record.state, State::Completed { .. })
        };
        let Some(record) = found.filter(stands) else {
            return self.not_asked(operation, &"its record has changed meanwhile");
        };
        let asking = async {
            let _slot = self.replay_checks.slots.acquire().await?;
            let asking = AssertUnwindSafe(self.resolver.resolve(&record)).catch_unwind();
            asking.await.unwrap_or_else(|_panic| Err("the resolver panicked".into()))
        };
        let finding = match timeout_at(end, asking).await {
            Ok(finding) => finding,
            Err(_late) => Err(format!("no answer within {:?}", self.replay_checks.patience).into()),
        };
        let verdict = self.replay_verdict(&record, finding);
        if let Some(observer) = &self.observer {
            observer.replay_checked(&record, verdict);
        }
        verdict
    }

    /// Judges a finding, and logs it unless it confirms the replay.
    fn replay_verdict(&self, record: &Record, finding: Result<Finding, BoxError>) -> ReplayVerdict {
        let by = self.resolver.name();
        let why: BoxError = match finding {
            Ok(Finding { verdict: Verdict::Happened(_), .. }) => return ReplayVerdict::Confirmed,
            Ok(Finding { verdict: Verdict::DidNotHappen, evidence }) => {
                if let Some(occurrences) = self.replay_checks.contradictions.occurred() {
                    log_operation!(WARN, LogSubject::of_record(record), {
                        by, state = "completed", reason = evidence, occurrences,
                    }, "the source of truth does not know a completed operation");
                }
                return ReplayVerdict::Contradicted;
            }
            Ok(Finding { verdict: Verdict::StillUnknown, evidence }) => evidence.into(),
            Err(error) => error,
        };
        if let Some(occurrences) = self.resolver.failures.occurred() {
            log_operation!(WARN, LogSubject::of_record(record), {
                by, state = "completed", reason = why.to_string(), occurrences,
            }, "a replay could not be confirmed");
        }
        ReplayVerdict::Unconfirmed
    }

    /// A question that was not asked, because the record was not found.
    fn not_asked(&self, operation: OperationId, why: &dyn Display) -> ReplayVerdict {
        if let Some(occurrences) = self.resolver.failures.occurred() {
            tracing::warn!(%operation, %why, occurrences, "a replay could not be confirmed");
        }
        ReplayVerdict::Unconfirmed
    }
}
