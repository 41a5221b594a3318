//! References to records, as operators give them.

use std::fmt;
use std::str::FromStr;

use onceward_core::{OperationId, RecordId};

/// A reference to a record: the id of its operation, or its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordRef {
    /// The id of the operation.
    Operation(OperationId),
    /// The id of the record.
    Record(RecordId),
}

/// A text that is no reference to a record.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is neither an operation id (a UUID) nor a record id (64 hexadecimal digits); \
     `onceward records list` shows both"
)]
pub(crate) struct InvalidRecordRef(String);

impl FromStr for RecordRef {
    type Err = InvalidRecordRef;

    fn from_str(text: &str) -> Result<Self, InvalidRecordRef> {
        let record = record_id(text).map(Self::Record);
        let operation = || text.parse().ok().map(Self::Operation);
        record.or_else(operation).ok_or_else(|| InvalidRecordRef(text.chars().take(80).collect()))
    }
}

impl fmt::Display for RecordRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(id) => id.fmt(f),
            Self::Record(id) => id.fmt(f),
        }
    }
}

/// Parses a record id, 64 hexadecimal digits.
pub(crate) fn record_id(text: &str) -> Option<RecordId> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(RecordId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ids_are_read_as_they_are_shown() {
        let record = RecordId::from_bytes([0xa7; 32]);
        assert_eq!(record.to_string().parse::<RecordRef>().unwrap(), RecordRef::Record(record));
        let operation = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
        assert_eq!(operation.parse::<RecordRef>().unwrap().to_string(), operation);
        for wrong in ["", "12", "+1", &"g".repeat(64), &"+1".repeat(32)] {
            let error = wrong.parse::<RecordRef>().unwrap_err().to_string();
            assert!(error.contains("records list"), "{error}");
        }
    }
}
