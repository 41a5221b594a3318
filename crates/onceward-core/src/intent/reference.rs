//! A second name for an intent, which outlives its key: the reference that the business itself
//! knows it by.

use super::Intent;
use super::fingerprint::Fingerprint;
use super::identity::{Identity, RecordId};
use super::key::{InvalidKey, Key};

/// What the business calls an intent, for example the payment reference that a bank prints:
/// unique for its scope, and remembered long after the key is forgotten.
///
/// The intent's record lives under the reference. What is kept under the key is only where to
/// look, so a new key with a known reference finds the first outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessReference {
    text: Key,
    known: KnownReference,
}

/// What another key gets whose reference is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownReference {
    /// The first outcome, if it asks for the same; else a conflict.
    #[default]
    Replay,
    /// A conflict, whatever it asks for.
    Conflict,
}

impl BusinessReference {
    /// Checks and takes a reference: 1 to 255 printable ASCII characters, as a key.
    ///
    /// Unlike keys it is stored as text, so that people and resolvers can look it up.
    pub fn new(text: &str, known: KnownReference) -> Result<Self, InvalidKey> {
        Ok(Self { text: Key::new(text)?, known })
    }

    /// Where an intent lives that has this reference.
    pub fn place(&self, identity: &Identity, intent: &Intent) -> Place {
        let key_id = identity.record_id(&intent.scope, &intent.key);
        let fingerprint = match self.known {
            KnownReference::Replay => intent.fingerprint,
            KnownReference::Conflict => owned_by(&key_id, &intent.fingerprint),
        };
        let under_reference = Intent::new(intent.scope.clone(), self.text.clone(), fingerprint);
        let id = identity.reference_id(&intent.scope, &self.text);
        Place { id, intent: under_reference.with_parts(intent.parts.clone()) }
    }
}

/// A fingerprint that no other key has.
fn owned_by(key: &RecordId, fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint::of_parts(&[&[fingerprint.rules()], fingerprint.digest(), key.as_bytes()])
}

/// Where an intent with a [`BusinessReference`] lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The reference's record.
    pub id: RecordId,
    /// The intent as that record knows it.
    pub intent: Intent,
}
