//! Record ids: keyed hashes of scope and key.

use std::fmt;
use std::io::Write;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::key::Key;
use super::scope::{SEPARATOR, Scope};
use super::sketch::{Difference, Part, Sketch, Sketcher};
use crate::hex::hex;

/// Id of a record: a keyed hash over scope and key.
///
/// Access to the store reveals neither the client's key nor whether a guessed key exists.
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

    /// The first 64 bits, in the order of ids.
    pub(crate) fn first_bits(&self) -> u64 {
        self.short().swap_bytes()
    }

    /// 64 of its bits, as a hash-table hash.
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

/// Buffer for the scope and key of most intents, each part with its length.
const NAMED_BYTES: usize = 256;

/// Makes record ids. All engines on one store need the same secret, or each sees only its
/// own records.
#[derive(Clone)]
pub struct Identity {
    keyed: Hmac<Sha256>,
    sketcher: Sketcher,
}

impl Identity {
    /// Identities keyed with a secret.
    pub fn keyed(secret: &[u8]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let keyed = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        let derived = keyed.clone().chain_update(b"onceward sketch v1").finalize().into_bytes();
        let mut half = [0; 16];
        half.copy_from_slice(&derived[..16]);
        Self { keyed, sketcher: Sketcher::new(&half) }
    }

    /// Identities without a secret: a reader of the store can test guesses of keys.
    /// Right for the memory store, and where keys are random UUIDs.
    pub fn unkeyed() -> Self {
        Self::keyed(b"onceward identity v1, no secret")
    }

    /// The id of an intent's record. Its fingerprint has no part in it.
    pub fn record_id(&self, scope: &Scope, key: &Key) -> RecordId {
        let mac = self.keyed.clone();
        let named = || scope.identity_parts().chain([key.expose().as_bytes()]);
        let length = |part: &[u8]| (part.len() as u64).to_be_bytes();
        // One update where it fits is faster than many small ones.
        let mut room = [0; NAMED_BYTES];
        let mut left = &mut room[..];
        let fit = named()
            .all(|part| left.write_all(&length(part)).is_ok() && left.write_all(part).is_ok());
        let unused = left.len();
        let mac = if fit {
            mac.chain_update(&room[..NAMED_BYTES - unused])
        } else {
            named().fold(mac, |mac, part| mac.chain_update(length(part)).chain_update(part))
        };
        RecordId(mac.finalize().into_bytes().into())
    }

    /// The id of a business reference's record.
    pub(crate) fn reference_id(&self, scope: &Scope, reference: &Key) -> RecordId {
        let named: Vec<_> = scope.identity_parts().chain([reference.expose().as_bytes()]).collect();
        self.internal_id("reference", named.join(&SEPARATOR))
    }

    /// The id of one of Onceward's own records. No scope and key have this id.
    pub(crate) fn internal_id(&self, purpose: &str, key: impl AsRef<[u8]>) -> RecordId {
        let mut mac = self.keyed.clone();
        for part in [b"onceward internal record v1", purpose.as_bytes(), key.as_ref()] {
            // A length that no part of a scope or key has.
            mac.update(&(u64::MAX - part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        RecordId(mac.finalize().into_bytes().into())
    }

    /// The sketch that a record keeps of its request's parts.
    pub fn sketch(&self, id: &RecordId, parts: &[Part]) -> Sketch {
        self.sketcher.sketch(id, parts)
    }

    /// The parts in which a refused request differs from the first one under its key.
    pub fn compare(&self, id: &RecordId, first: &Sketch, parts: &[Part]) -> Difference {
        self.sketcher.compare(id, first, parts)
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

    #[test]
    fn an_id_is_the_hash_of_each_part_with_its_length_however_long_they_are() {
        let identity = Identity::unkeyed();
        for length in [1, 100, 254, 255] {
            let (tenant, key) = ("t".repeat(length), "k".repeat(length));
            let scope = Scope::new(&tenant, "caller", "op").unwrap();
            let mut mac = identity.keyed.clone();
            for part in [&*tenant, "caller", "op", "", "", "", &*key] {
                mac.update(&(part.len() as u64).to_be_bytes());
                mac.update(part.as_bytes());
            }
            let expected = RecordId(mac.finalize().into_bytes().into());
            assert_eq!(identity.record_id(&scope, &Key::new(key).unwrap()), expected, "{length}");
        }
    }
}
