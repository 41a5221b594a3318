//! One thing that somebody wants done, and the identity of its record.

mod fingerprint;
mod identity;
mod key;
mod operation_id;
mod reference;
mod scope;
mod sketch;

pub use fingerprint::Fingerprint;
pub use identity::{Identity, RecordId};
pub use key::{InvalidKey, KEY_CHARS_MAX, Key, ToKey};
pub use operation_id::{DownstreamKey, OperationId};
pub use reference::{BusinessReference, KnownReference, Place};
pub use scope::{INTERNAL_TENANT, InvalidScope, SCOPE_PART_BYTES_MAX, Scope, ScopePart};
pub use sketch::{Difference, Part, SKETCH_PARTS_MAX, Sketch};

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
    /// What it consists of, so that a mismatch can say what differs; may be empty.
    pub parts: Vec<Part>,
    /// What the business calls it, if it does.
    pub reference: Option<BusinessReference>,
}

impl Intent {
    /// Puts an intent together.
    pub const fn new(scope: Scope, key: Key, fingerprint: Fingerprint) -> Self {
        Self { scope, key, fingerprint, parts: Vec::new(), reference: None }
    }

    /// Names the parts by which a mismatch can be explained.
    #[must_use]
    pub fn with_parts(mut self, parts: Vec<Part>) -> Self {
        self.parts = parts;
        self
    }

    /// Names what the business calls it: known beyond the retention of its key, and under any
    /// other key.
    #[must_use]
    pub fn with_reference(mut self, reference: BusinessReference) -> Self {
        self.reference = Some(reference);
        self
    }
}
