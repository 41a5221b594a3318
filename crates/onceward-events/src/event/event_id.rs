//! Ids of events.

use std::fmt;
use std::str::FromStr;

use onceward_core::OperationId;
use sha2::{Digest as _, Sha256};
use uuid::{Builder, Uuid};

/// The id of an event: the same whenever the event is published or delivered again. Consumers
/// deduplicate by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

impl EventId {
    /// The id of the `number`th event (from 1) of an operation. `outbox/sql/publish.sql` computes
    /// the same.
    pub fn of_operation(operation: &OperationId, number: u64) -> Self {
        Self::hashed(&format!("onceward.event:{operation}:{number}"))
    }

    /// An id derived from a name that is the same whenever the event is published again, such as
    /// `invoices/2026-11/reminder`. For callers without an operation.
    pub fn of_name(name: &str) -> Self {
        Self::hashed(&format!("onceward.name:{name}"))
    }

    /// Version 8, "custom": the first bits of a SHA-256.
    fn hashed(text: &str) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The id as a UUID.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for EventId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl FromStr for EventId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_derived_and_never_change() {
        let operation = OperationId::from(Uuid::from_u128(7));
        let id = EventId::of_operation(&operation, 1);
        assert_eq!(id, EventId::of_operation(&operation, 1));
        assert_ne!(id, EventId::of_operation(&operation, 2));
        assert_ne!(id, EventId::of_name("onceward.event:x"));
        assert_eq!(id.as_uuid().get_version_num(), 8);
        assert_eq!(id.to_string(), "42bc2c7e-ed79-8178-9d04-9ce15301ff25");
    }
}
