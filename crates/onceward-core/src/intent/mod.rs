//! Intents: what a client wants done once, and the ids made from it.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Intent`: scope, key, fingerprint |
//! | `scope` | whose key it is, and for which operation |
//! | `key` | the client's name for the intent |
//! | `fingerprint` | tells a retry from another request |
//! | `sketch` | explains a mismatch without keeping the request |
//! | `reference` | a business reference, which outlives the key |
//! | `request_path` | the path of the request, for operators |
//! | `identity` | the record's id, a keyed hash of scope and key |
//! | `operation_id` | the operation's public id, and the key for downstream systems |

mod fingerprint;
mod identity;
mod key;
mod operation_id;
mod reference;
mod request_path;
mod scope;
mod sketch;

pub use fingerprint::Fingerprint;
pub use identity::{Identity, RecordId};
pub use key::{InvalidKey, KEY_CHARS_MAX, Key, ToKey};
pub use operation_id::{DownstreamKey, OperationId};
pub use reference::{BusinessReference, KnownReference, ReferenceTarget};
pub use request_path::RequestPath;
pub use scope::{INTERNAL_TENANT, InvalidScope, SCOPE_PART_BYTES_MAX, Scope, ScopePart};
pub use sketch::{Difference, Part, SKETCH_PARTS_MAX, Sketch};

/// One thing to be done once: for whom and what (scope), the client's name for it (key), and
/// what exactly is asked for (fingerprint).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Namespace of the key: tenant, caller, operation.
    pub scope: Scope,
    /// The client's name for the intent.
    pub key: Key,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Hashed parts of the request, by which a mismatch tells what differs; may be empty.
    pub parts: Vec<Part>,
    /// The business reference, if it has one.
    pub reference: Option<BusinessReference>,
    /// The path that the request was sent to, for operators.
    pub path: Option<RequestPath>,
}

impl Intent {
    /// An intent without parts and without a reference.
    pub const fn new(scope: Scope, key: Key, fingerprint: Fingerprint) -> Self {
        Self { scope, key, fingerprint, parts: Vec::new(), reference: None, path: None }
    }

    /// Adds the parts by which a mismatch is explained.
    #[must_use]
    pub fn with_parts(mut self, parts: Vec<Part>) -> Self {
        self.parts = parts;
        self
    }

    /// Adds the path that the request was sent to, for operators.
    #[must_use]
    pub fn with_path(mut self, path: RequestPath) -> Self {
        self.path = Some(path);
        self
    }

    /// Adds a business reference, which is known for longer than the key and under any key.
    #[must_use]
    pub fn with_reference(mut self, reference: BusinessReference) -> Self {
        self.reference = Some(reference);
        self
    }
}
