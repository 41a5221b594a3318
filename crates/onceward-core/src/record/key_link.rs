//! The link from a key to its business reference.
//!
//! An intent with a [`BusinessReference`](crate::BusinessReference) lives in the reference's
//! record. The key's record is completed with a link to that record, so stores need to know
//! nothing about references.

use super::Record;
use super::outcome::{Content, Outcome, Tag};
use crate::intent::RecordId;
use crate::intent::{Identity, ReferenceTarget};

/// Codec tag of links.
const TAG: Tag = Tag::from_static("reference/v1");

/// Where the outcome stored under a key leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLink {
    /// To this reference.
    ThisReference,
    /// To another reference: the key was used for another request.
    OtherReference,
    /// The outcome is not a link: the key was used before its operation had references.
    Unlinked,
}

impl ReferenceTarget {
    /// The outcome that links a key to this record.
    pub fn link(&self) -> Outcome {
        Outcome::whole(TAG, self.id.as_bytes().to_vec())
    }

    /// Follows the outcome stored under a key. Nothing else reads links.
    pub fn follow(&self, stored: &Outcome) -> KeyLink {
        if stored.content != Content::Whole || stored.tag != TAG {
            KeyLink::Unlinked
        } else if stored.bytes[..] == self.id.as_bytes()[..] {
            KeyLink::ThisReference
        } else {
            KeyLink::OtherReference
        }
    }
}

impl Outcome {
    /// The reference's record that the outcome stored under a key leads to, if it is a link.
    pub fn linked_record(&self) -> Option<RecordId> {
        let linked = self.content == Content::Whole && self.tag == TAG;
        let id = linked.then(|| self.bytes[..].try_into().ok()).flatten()?;
        Some(RecordId::from_bytes(id))
    }
}

impl Identity {
    /// The business reference that a record lives under. `None` if it lives under a key.
    pub fn reference_of<'r>(&self, record: &'r Record) -> Option<&'r str> {
        let reference = record.key.as_ref()?;
        let lives_there = self.reference_id(&record.scope, reference) == record.id;
        lives_there.then(|| reference.expose())
    }
}
