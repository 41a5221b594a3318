//! What a key's record keeps of an intent that lives under a business reference.

use super::Record;
use super::outcome::{Content, Outcome, Tag};
use crate::intent::{Identity, Place};

/// Of what is kept under a key.
const TAG: Tag = Tag::from_static("reference/v1");

impl Place {
    /// What is kept under the key.
    pub fn link(&self) -> Outcome {
        Outcome::whole(TAG, self.id.as_bytes().to_vec())
    }

    /// What is kept under a key leads here, somewhere else, or is the outcome itself.
    pub fn follow(&self, kept: &Outcome) -> Follow {
        match (kept.content, &kept.tag) {
            (Content::Whole, tag) if *tag == TAG && kept.bytes[..] == self.id.as_bytes()[..] => {
                Follow::Here
            }
            (Content::Whole, tag) if *tag == TAG => Follow::Elsewhere,
            _ => Follow::Outcome,
        }
    }
}

/// Where what is kept under a key leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// To this reference.
    Here,
    /// To another reference: the key was used for another request.
    Elsewhere,
    /// Nowhere: the key was used before its operation had references.
    Outcome,
}

impl Identity {
    /// What the business calls a record's intent, if the record lives under that.
    pub fn reference_of<'r>(&self, record: &'r Record) -> Option<&'r str> {
        let reference = record.key.as_ref()?;
        let lives_there = self.reference_id(&record.scope, reference) == record.id;
        lives_there.then(|| reference.expose())
    }
}
