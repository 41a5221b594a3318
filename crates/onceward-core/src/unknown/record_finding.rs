//! Settles an unknown record by a finding, and logs the decision.

use super::decision_log::{Decision, DecisionKind, DecisionLog};
use super::recovery_observer::{RecoveryObserver, RecoveryStatus};
use super::resolver::{BoxError, Finding};
use crate::log::{LogSubject, LogThrottle};
use crate::log_operation;
use crate::record::{Record, Resource, Retention};
use crate::store::{Fenced, ResolveRequest, StoreAdmin, StoreError, Verdict};

/// A finding about a record, to be applied to it.
pub(super) struct RecordFinding<'a> {
    pub(super) record: &'a Record,
    /// `Err` if the resolver failed, which counts as still unknown.
    pub(super) finding: Result<Finding, BoxError>,
    /// Name of the resolver.
    pub(super) by: &'a str,
    pub(super) retention: Retention,
    pub(super) observer: Option<&'a dyn RecoveryObserver>,
    /// Rate limit of log lines about failures.
    pub(super) failures: &'a LogThrottle,
}

impl RecordFinding<'_> {
    /// Settles the record if its fence has not changed, and reports the result. The decision is
    /// logged before it is applied. Returns `None` if the outcome is still unknown.
    pub(super) async fn apply<S: StoreAdmin + ?Sized>(
        self,
        store: &S,
        decisions: Option<&DecisionLog>,
    ) -> Result<Option<DecisionKind>, StoreError> {
        let Self { record, finding, by, retention, observer, failures } = self;
        let report = |status| {
            if let Some(observer) = observer {
                observer.recovered(record, status);
            }
        };
        let subject = LogSubject::of_record(record);
        let Finding { verdict, evidence } = match finding {
            Ok(finding) => finding,
            Err(error) => {
                if let Some(occurrences) = failures.occurred() {
                    log_operation!(WARN, subject, { by, %error, occurrences, },
                        "the resolver failed");
                }
                report(RecoveryStatus::Failed);
                return Ok(None);
            }
        };
        let Some(decided) = DecisionKind::of_verdict(&verdict) else {
            log_operation!(DEBUG, subject, { by, state = "unknown", reason = evidence, },
                "the resolver does not know the outcome");
            report(RecoveryStatus::StillUnknown);
            return Ok(None);
        };
        let resource = match &verdict {
            Verdict::Happened(outcome) => outcome.resource.as_deref().map(Resource::as_text),
            Verdict::DidNotHappen | Verdict::StillUnknown => None,
        };
        let (operation, fence) = (record.operation, record.fence);
        let decision = Decision { operation, fence, decided, by: by.to_owned(), evidence };
        if let Some(decisions) = decisions {
            decisions.write(&decision).await?;
        }
        let request = ResolveRequest { id: record.id, fence, verdict, retention };
        if store.resolve(&request).await? == Fenced::Applied(()) {
            let state = decided.state_after();
            log_operation!(INFO, subject, {
                by, state, resource, reason = decision.evidence,
            }, "the resolver decided");
            RecoveryStatus::of_decision(decided).into_iter().for_each(report);
            return Ok(Some(decided));
        }
        log_operation!(INFO, subject, { by, reason = "settled elsewhere", },
            "the resolver's verdict came too late");
        report(RecoveryStatus::SettledElsewhere);
        let decided = DecisionKind::Superseded;
        if let Some(decisions) = decisions {
            decisions.write(&Decision { decided, ..decision }).await?;
        }
        Ok(Some(decided))
    }
}
