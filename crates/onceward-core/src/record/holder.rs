//! The holder of a record's current grant: owner token and fence.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Ambient;
use crate::hex::hex;

/// Number of a grant, strictly increasing for each record.
///
/// Write it beside business rows and refuse writes with a lower one: then a stale owner cannot
/// overwrite its successor. It is at least the store's time in milliseconds at the grant, so it
/// still increases when a record was forgotten and its key is used again.
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

/// Secret of one claim attempt. It gives the right to renew and settle the grant.
///
/// Every attempt draws a fresh one, so an equal token means the same attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// A fresh token.
    pub fn draw(ambient: &dyn Ambient) -> Self {
        Self(ambient.random().to_be_bytes())
    }

    /// A token read back from a store.
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

/// Credentials of a renewal or a settlement: the owner, under one fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The token that claimed.
    pub owner: OwnerToken,
    /// The fence that was granted.
    pub fence: Fence,
}
