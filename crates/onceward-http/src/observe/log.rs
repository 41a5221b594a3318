//! Log lines about decisions that a person may have to explain.

use onceward_core::log::{LogSubject, LogThrottle};
use onceward_core::{
    Fingerprint, Identity, Intent, Key, OperationId, Replay, Scope, log_operation,
};

/// Rate limits of the lines of one operation. A refusal is the fault of a client, which may send many;
/// an unknown outcome is one that a person may ask about.
#[derive(Debug)]
pub(crate) struct LogLimits {
    pub(crate) unknown: LogThrottle,
    pub(crate) refused: LogThrottle,
    pub(crate) over_quota: LogThrottle,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            unknown: LogThrottle::new(50),
            refused: LogThrottle::new(10),
            over_quota: LogThrottle::new(1),
        }
    }
}

/// The parts of an intent that log lines name, for lines after the intent is gone.
#[derive(Clone)]
pub(crate) struct LoggedIntent {
    scope: Scope,
    key: Key,
    fingerprint: Fingerprint,
}

impl LoggedIntent {
    pub(crate) fn of(intent: &Intent) -> Self {
        let Intent { scope, key, fingerprint, .. } = intent;
        Self { scope: scope.clone(), key: key.clone(), fingerprint: *fingerprint }
    }

    /// Computes the key's hash: only for a line that is written.
    pub(crate) fn subject(&self, identity: &Identity) -> LogSubject<'_> {
        LogSubject::of_intent(identity, &self.scope, &self.key, &self.fingerprint)
    }
}

/// Returns true if lines at debug are written. Others are rare enough to be prepared in any case.
pub(crate) fn debug_enabled() -> bool {
    tracing::enabled!(target: "onceward", tracing::Level::DEBUG)
}

pub(crate) fn replayed(intent: &LoggedIntent, identity: &Identity, replay: &Replay) {
    let resource = replay.outcome.resource.as_deref();
    log_operation!(DEBUG, intent.subject(identity).operation_id(replay.operation), {
        state = replay.ended.name(),
        replayed = true,
        resource = resource.map(onceward_core::Resource::as_text),
    }, "replayed");
}

pub(crate) fn too_many_keys(intent: &Intent, identity: &Identity, limit: &str, occurrences: u64) {
    let Intent { scope, key, fingerprint, .. } = intent;
    let subject = LogSubject::of_intent(identity, scope, key, fingerprint);
    log_operation!(WARN, subject, { reason = "quota", limit, occurrences, },
        "over a quota: new keys get 429");
}

pub(crate) fn key_too_often(subject: &LogSubject<'_>, limit: &str, occurrences: u64) {
    log_operation!(WARN, *subject, { reason = "quota", limit, occurrences, },
        "over a quota: requests with a key get 429");
}

pub(crate) fn mismatch(
    intent: &LoggedIntent,
    identity: &Identity,
    (reason, operation): (&'static str, Option<OperationId>),
    differs: &[String],
    occurrences: u64,
) {
    let differs = (!differs.is_empty()).then(|| differs.join(", "));
    log_operation!(INFO, intent.subject(identity).operation_id(operation), {
        reason, differs, occurrences,
    }, "the key was used for another request");
}
