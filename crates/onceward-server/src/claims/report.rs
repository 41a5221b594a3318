//! Metrics and log lines of claims, the same as those of the gateway's requests.

use onceward_core::log::{LogSubject, LogThrottle};
use onceward_core::{
    Claim, ClaimRequest, Disposition, Ended, Fenced, Record, Resource, Settled, Settlement,
    StoreError, StoreErrorKind, log_operation,
};
use onceward_http::{Event, Observer};

use super::Claims;

/// Rate limits of log lines. Workers are trusted, but a faulty one may loop.
pub(super) struct LogLimits {
    refused: LogThrottle,
    unknown: LogThrottle,
    stale: LogThrottle,
}

impl Default for LogLimits {
    fn default() -> Self {
        let (refused, unknown) = (LogThrottle::new(10), LogThrottle::new(50));
        Self { refused, unknown, stale: LogThrottle::new(10) }
    }
}

impl Claims {
    /// Counts a claim, and logs a replay.
    pub(super) fn report_claim(&self, request: &ClaimRequest, claim: &Result<Claim, StoreError>) {
        let event = match claim {
            Ok(Claim::Granted { .. }) => Event::Granted,
            Ok(Claim::Completed { .. }) => Event::Replayed(Ended::Completed),
            Ok(Claim::Failed { .. }) => Event::Replayed(Ended::Failed),
            Ok(Claim::Running { .. }) => Event::InProgress,
            Ok(Claim::Unknown { .. }) => Event::Unknown,
            Ok(Claim::Mismatch { .. }) => Event::Mismatch,
            Ok(Claim::Expired) => Event::Expired,
            Err(error) if error.kind == StoreErrorKind::Full => Event::StoreFull,
            Err(_) => Event::StoreDown,
        };
        self.metrics.observe(request.scope.operation(), event);
        if let Ok(Claim::Completed { operation, outcome } | Claim::Failed { operation, outcome }) =
            claim
            && let Event::Replayed(ended) = event
            && tracing::enabled!(target: "onceward", tracing::Level::DEBUG)
        {
            let resource = outcome.resource.as_deref().map(Resource::as_text);
            log_operation!(DEBUG, subject(request).operation_id(*operation), {
                state = ended.name(), replayed = true, resource,
            }, "replayed");
        }
    }

    /// Logs a claim of a key that was used for another request.
    pub(super) fn log_mismatch(&self, request: &ClaimRequest, differs: &[String]) {
        if let Some(occurrences) = self.log_limits.refused.occurred() {
            let differs = (!differs.is_empty()).then(|| differs.join(", "));
            log_operation!(INFO, subject(request), {
                reason = "mismatch", differs, occurrences,
            }, "the key was used for another request");
        }
    }

    /// Counts a settlement, and logs one that a person may have to explain.
    pub(super) fn report_settlement(
        &self,
        record: &Record,
        settlement: &Settlement,
        settled: &Result<Fenced<()>, StoreError>,
    ) {
        let settled = match settled {
            Ok(Fenced::Applied(())) => Settled::Durable,
            Ok(Fenced::Stale) => Settled::Superseded,
            Ok(Fenced::Missing) => Settled::Missing,
            Err(_) => Settled::Pending,
        };
        let disposition = match settlement {
            Settlement::Complete(_) | Settlement::Fail(_) => Disposition::Keep,
            Settlement::Release => Disposition::Release,
            Settlement::Unknown(_) => Disposition::Unknown,
        };
        self.metrics.observe(record.scope.operation(), Event::Settled(disposition, settled));
        let subject = LogSubject::of_record(record);
        match (disposition, settled) {
            (Disposition::Unknown, Settled::Durable) => {
                if let Some(occurrences) = self.log_limits.unknown.occurred() {
                    log_operation!(WARN, subject, {
                        state = "unknown", reason = "reported", occurrences,
                    }, "the outcome is unknown");
                }
            }
            (_, Settled::Superseded) => {
                if let Some(occurrences) = self.log_limits.stale.occurred() {
                    let (fence, state) = (record.fence.0, record.state.name().as_str());
                    log_operation!(WARN, subject, {
                        fence, state, occurrences,
                        reason = "another owner took over, or it is settled",
                    }, "a stale settlement was refused");
                }
            }
            _ => {}
        }
    }
}

fn subject(request: &ClaimRequest) -> LogSubject<'_> {
    LogSubject::of_claim(&request.scope, request.id, &request.fingerprint)
}
