//! Who holds a record's current grant.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Ambient;
use crate::hex::hex;

/// Which grant of a record is the current one: strictly increasing per record.
///
/// Write it beside business rows and refuse lower ones, and a stale owner cannot overwrite
/// what its successor did. It is at least the store's time in milliseconds at the grant, so
/// it goes on increasing even after a record was forgotten and its key used anew.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The secret of one claim attempt: who holds it may renew and settle what it was granted.
///
/// A fresh one is drawn for every attempt, so an equal token means the same attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// A fresh token.
    pub fn draw(ambient: &dyn Ambient) -> Self {
        Self(ambient.random().to_be_bytes())
    }

    /// A token from its bytes, for stores that read one back.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The raw bytes. Never log them.
    pub const fn expose(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken(sha256:{}…)", hex(&Sha256::digest(self.0)[..3]))
    }
}

/// Who speaks when a lease is renewed or settled: the owner, under one fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The token that claimed.
    pub owner: OwnerToken,
    /// The fence that was granted.
    pub fence: Fence,
}
