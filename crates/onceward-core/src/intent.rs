//! One thing that somebody wants done, and the identity of its record.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::fingerprint::Fingerprint;
use crate::key::{Key, hex};
use crate::scope::Scope;

/// What somebody wants done once: who and what (scope), their name for it (key), and what
/// exactly they asked for (fingerprint).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Whose key it is, and for which operation.
    pub scope: Scope,
    /// The client's name for the intent.
    pub key: Key,
    /// What the request means.
    pub fingerprint: Fingerprint,
}

impl Intent {
    /// Puts an intent together.
    pub const fn new(scope: Scope, key: Key, fingerprint: Fingerprint) -> Self {
        Self { scope, key, fingerprint }
    }
}

/// Under which a record is stored: a keyed hash over scope and key.
///
/// Whoever sees the store learns neither the client's key nor whether a guessed key exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// An id from its bytes, for stores that read one back.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 of its bits, as evenly spread as a hash can be.
    pub(crate) fn short(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({}…)", hex(&self.0[..4]))
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Makes record ids. All engines on one store need the same secret, or each sees only its
/// own records.
#[derive(Clone)]
pub struct Identity {
    keyed: Hmac<Sha256>,
}

impl Identity {
    /// Identities keyed with a secret.
    pub fn keyed(secret: &[u8]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let keyed = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self { keyed }
    }

    /// Identities without a secret: whoever can read the store can test guesses of keys.
    /// Right for the memory store, and where keys are random UUIDs.
    pub fn unkeyed() -> Self {
        Self::keyed(b"onceward identity v1, no secret")
    }

    /// The id of the record that an intent lives under. Its fingerprint has no part in it.
    pub fn record_id(&self, scope: &Scope, key: &Key) -> RecordId {
        let mut mac = self.keyed.clone();
        for part in scope.parts().into_iter().chain([key.expose()]) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        RecordId(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_key_and_secret_all_make_another_record() {
        let scope = |tenant| Scope::new(tenant, "caller", "op").unwrap();
        let key = |text: &str| Key::new(text).unwrap();
        let identity = Identity::unkeyed();
        let id = identity.record_id(&scope("a"), &key("k"));

        assert_eq!(id, identity.record_id(&scope("a"), &key("k")));
        assert_ne!(id, identity.record_id(&scope("b"), &key("k")));
        assert_ne!(id, identity.record_id(&scope("a"), &key("l")));
        assert_ne!(id, Identity::keyed(b"secret").record_id(&scope("a"), &key("k")));
    }
}
