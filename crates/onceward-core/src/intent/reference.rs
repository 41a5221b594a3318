//! Business references: a second name for an intent, which outlives its key.

use super::Intent;
use super::fingerprint::Fingerprint;
use super::identity::{Identity, RecordId};
use super::key::{InvalidKey, Key};

/// The name of an intent in the business, for example the payment reference on a bank
/// statement: unique in its scope, and remembered long after the key is forgotten.
///
/// The intent's record lives under the reference. The key's record only links to it, so a new
/// key with a known reference finds the first outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessReference {
    text: Key,
    known: KnownReference,
}

/// The answer to another key with a known reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum KnownReference {
    /// The first outcome for the same request, a conflict for another one.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "answer"))]
    Replay,
    /// A conflict for every request.
    Conflict,
}

impl BusinessReference {
    /// Checks a text and makes it a reference: 1 to 255 printable ASCII characters, like a key.
    ///
    /// Unlike keys it is stored as text, so that people and resolvers can look it up.
    pub fn new(text: &str, known: KnownReference) -> Result<Self, InvalidKey> {
        Ok(Self { text: Key::new(text)?, known })
    }

    /// The record that an intent with this reference lives in.
    pub fn target(&self, identity: &Identity, intent: &Intent) -> ReferenceTarget {
        let key_id = identity.record_id(&intent.scope, &intent.key);
        let fingerprint = match self.known {
            KnownReference::Replay => intent.fingerprint,
            KnownReference::Conflict => fingerprint_with_key(&key_id, &intent.fingerprint),
        };
        let under_reference = Intent::new(intent.scope.clone(), self.text.clone(), fingerprint);
        let id = identity.reference_id(&intent.scope, &self.text);
        ReferenceTarget { id, intent: under_reference.with_parts(intent.parts.clone()) }
    }
}

/// A fingerprint that includes the key, so that no other key has the same.
fn fingerprint_with_key(key: &RecordId, fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint::of_parts(&[&[fingerprint.rules()], fingerprint.digest(), key.as_bytes()])
}

/// The record that an intent with a [`BusinessReference`] lives in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceTarget {
    /// The id of the reference's record.
    pub id: RecordId,
    /// The intent as it is claimed there: the reference is its key.
    pub intent: Intent,
}
