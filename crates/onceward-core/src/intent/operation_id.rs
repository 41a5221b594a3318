//! The public id of one operation, and the key that it hands to the next system.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::identity::RecordId;
use crate::clock::{Ambient, SystemAmbient};
use crate::hex::hex;

/// Public id of one operation (UUIDv7): its status page, its event ids and its downstream key
/// derive from it. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(Uuid);

impl OperationId {
    /// A fresh id for an operation on a record, ordered by the time it was drawn.
    ///
    /// Of the 74 bits that are not time, 62 are the first of the record's id. So a store that
    /// keeps records by their ids finds an operation without another index.
    pub fn draw(ambient: &dyn Ambient, record: &RecordId) -> Self {
        let mut bits = [0; 10];
        bits[..2].copy_from_slice(&ambient.random().to_be_bytes()[..2]);
        bits[2..].copy_from_slice(&(record.first_bits() >> 2).to_be_bytes());
        let millis = ambient.now().as_millis();
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid())
    }

    /// An id that no record has, for probes.
    pub fn of_no_record() -> Self {
        Self::draw(&SystemAmbient::new(), &RecordId::from_bytes([0; 32]))
    }

    /// True if it can have been drawn for this record.
    pub fn may_be_of(&self, record: &RecordId) -> bool {
        self.record_bits() == record.first_bits() & !3
    }

    /// A record id before all records that it can have been drawn for.
    pub(crate) fn before_records(&self) -> RecordId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.record_bits().to_be_bytes());
        RecordId::from_bytes(bytes)
    }

    /// The record's first 62 bits, and two zero bits.
    fn record_bits(&self) -> u64 {
        self.0.as_u64_pair().1 << 2
    }

    /// The id as a UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for OperationId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for OperationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({})", self.0)
    }
}

/// The idempotency key for the next system: the same on every attempt of one operation, and
/// independent of the client's key.
///
/// Unlike the client's key it may be shown: it goes into requests and support tickets, and a
/// provider looks a charge up by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DownstreamKey(String);

impl DownstreamKey {
    /// The downstream key of an operation.
    pub fn of(operation: &OperationId) -> Self {
        let digest = Sha256::new_with_prefix(b"onceward downstream key v1")
            .chain_update(operation.0.as_bytes())
            .finalize();
        Self(format!("ow_{}", hex(&digest[..20])))
    }

    /// The key for one of several downstream calls of the operation.
    ///
    /// ```
    /// # use onceward_core::{DownstreamKey, OperationId, RecordId, SystemAmbient};
    /// # let record = RecordId::from_bytes([7; 32]);
    /// # let operation = OperationId::draw(&SystemAmbient::new(), &record);
    /// let key = DownstreamKey::of(&operation);
    /// assert_ne!(key.step("charge"), key.step("refund"));
    /// ```
    pub fn step(&self, step: &str) -> Self {
        let digest = Sha256::new_with_prefix(b"onceward downstream step v1")
            .chain_update((self.0.len() as u64).to_be_bytes())
            .chain_update(&self.0)
            .chain_update(step)
            .finalize();
        Self(format!("ow_{}", hex(&digest[..20])))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DownstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_id_leads_to_its_record() {
        let ambient = SystemAmbient::new();
        for first in [0x00, 0x3f, 0x80, 0xff] {
            let mut bytes = [first; 32];
            bytes[7] = 0b1010_1011;
            let record = RecordId::from_bytes(bytes);
            let operation = OperationId::draw(&ambient, &record);
            assert_eq!(operation.as_uuid().get_version_num(), 7);
            assert!(operation.may_be_of(&record) && operation.before_records() < record);
            bytes[7] ^= 0b100;
            assert!(!operation.may_be_of(&RecordId::from_bytes(bytes)));
        }
    }
}
