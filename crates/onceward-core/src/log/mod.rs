//! Log lines about operations. For the crates of Onceward, not part of the API.
//!
//! Every line about a decision has the target [`TARGET`] and the same fields, so that one filter
//! finds them all: `operation`, `operation_id`, `key_hash`, `tenant`, `caller`, `fingerprint`.

mod throttle;

use crate::hex::hex;
use crate::intent::{Fingerprint, Identity, Key, OperationId, RecordId, Scope};
use crate::record::Record;

pub use throttle::LogThrottle;

/// Target of the lines about decisions.
pub const TARGET: &str = "onceward";

/// Bytes of a hash that a line shows: enough to find a record, too few to test guesses of a key.
const PREFIX_BYTES: usize = 4;

/// The operation that a line is about.
#[derive(Debug, Clone)]
pub struct LogSubject<'a> {
    scope: &'a Scope,
    record: RecordId,
    operation: Option<OperationId>,
    fingerprint: Option<&'a Fingerprint>,
}

impl<'a> LogSubject<'a> {
    /// The operation of a record.
    pub fn of_record(record: &'a Record) -> Self {
        let Record { scope, id, operation, fingerprint, .. } = record;
        Self { scope, record: *id, operation: Some(*operation), fingerprint: Some(fingerprint) }
    }

    /// The operation of an intent. Computes the record's id: build it only for a line that is
    /// written.
    pub fn of_intent(
        identity: &Identity,
        scope: &'a Scope,
        key: &Key,
        fingerprint: &'a Fingerprint,
    ) -> Self {
        Self::of_claim(scope, identity.record_id(scope, key), fingerprint)
    }

    /// The operation of a request whose fingerprint was not computed.
    pub fn of_key(identity: &Identity, scope: &'a Scope, key: &Key) -> Self {
        let record = identity.record_id(scope, key);
        Self { scope, record, operation: None, fingerprint: None }
    }

    /// The operation of a claim.
    pub fn of_claim(scope: &'a Scope, record: RecordId, fingerprint: &'a Fingerprint) -> Self {
        Self { scope, record, operation: None, fingerprint: Some(fingerprint) }
    }

    /// Adds the id of the operation, where it is known.
    #[must_use]
    pub fn operation_id(mut self, operation: impl Into<Option<OperationId>>) -> Self {
        self.operation = operation.into();
        self
    }

    /// The name of the operation.
    pub fn name(&self) -> &str {
        self.scope.operation()
    }

    /// The id of the operation.
    pub fn id(&self) -> Option<String> {
        self.operation.map(|id| id.to_string())
    }

    /// The beginning of the record's id, which is a keyed hash of scope and key.
    pub fn key_hash(&self) -> String {
        hex(&self.record.as_bytes()[..PREFIX_BYTES])
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        self.scope.tenant()
    }

    /// The caller; a digest if it is known by its credentials.
    pub fn caller(&self) -> &str {
        self.scope.caller()
    }

    /// The rules and the beginning of the fingerprint, as `records show` shows them.
    pub fn fingerprint(&self) -> Option<String> {
        let fingerprint = self.fingerprint?;
        let digest = hex(&fingerprint.digest()[..PREFIX_BYTES]);
        Some(format!("v{}:{digest}", fingerprint.rules()))
    }
}

/// Writes a line about an operation: `log_operation!(WARN, subject, { reason = "panic" }, "…")`.
#[doc(hidden)]
#[macro_export]
macro_rules! log_operation {
    ($level:ident, $subject:expr, { $($fields:tt)* }, $message:literal) => {{
        let subject: &$crate::log::LogSubject<'_> = &$subject;
        tracing::event!(
            target: "onceward",
            tracing::Level::$level,
            operation = subject.name(),
            operation_id = subject.id(),
            key_hash = subject.key_hash(),
            tenant = subject.tenant(),
            caller = subject.caller(),
            fingerprint = subject.fingerprint(),
            $($fields)*
            $message
        );
    }};
}
