//! What an operation came to, as it is stored and replayed.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::intent::OperationId;

/// The stored result of an operation. The core never looks inside: `tag` says who can read
/// the bytes.
///
/// `Debug` shows sizes and never the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How much of the reply the bytes are.
    pub content: Content,
    /// Which codec wrote the bytes, for example `json/v1`.
    pub tag: Tag,
    /// The bytes.
    pub bytes: Bytes,
    /// The resource that the operation made or changed, for people and for look-ups.
    pub resource: Option<Box<Resource>>,
}

/// How much of the reply an [`Outcome`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// All of it: replayed byte for byte.
    Whole,
    /// A reference, from which a [`Rebuilder`](crate::Rebuilder) makes the reply; for
    /// replies too sensitive to keep.
    Reference,
    /// A summary of a reply that was not kept, for example because it was too large. The
    /// operation happened; it cannot be replayed.
    Omitted,
}

/// Names the codec of an outcome's bytes, with its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(Cow<'static, str>);

impl Tag {
    /// Values that serde_json wrote; see [`Outcome::json`].
    pub const JSON: Tag = Tag::from_static("json/v1");

    /// A tag known at compile time.
    pub const fn from_static(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// A tag read back from a store.
    pub fn from_stored(name: String) -> Self {
        Self(Cow::Owned(name))
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A business resource: what an operator searches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// What it is, for example `payment`.
    pub kind: String,
    /// Which one, for example `pay_789`.
    pub id: String,
}

/// An outcome from before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The operation's name.
    pub operation: OperationId,
    /// How it ended.
    pub ended: Ended,
    /// What it came to.
    pub outcome: Outcome,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
}

impl Outcome {
    /// A reply kept whole.
    pub fn whole(tag: Tag, bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole, tag, bytes: bytes.into(), resource: None }
    }

    /// A reference from which the reply is rebuilt at each replay.
    pub fn reference(tag: Tag, reference: impl Into<Bytes>) -> Self {
        Self { content: Content::Reference, ..Self::whole(tag, reference) }
    }

    /// A reply that was given and not kept.
    pub fn omitted(tag: Tag, summary: impl Into<Bytes>) -> Self {
        Self { content: Content::Omitted, ..Self::whole(tag, summary) }
    }

    /// A value kept whole as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::whole(Tag::JSON, serde_json::to_vec(value)?))
    }

    /// Names the resource that the operation made or changed.
    #[must_use]
    pub fn with_resource(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.resource = Some(Box::new(Resource { kind: kind.into(), id: id.into() }));
        self
    }

    /// Reads a value that [`Outcome::json`] wrote.
    pub fn read_json<T: DeserializeOwned>(&self) -> Result<T, Unreadable> {
        if self.content != Content::Whole || self.tag != Tag::JSON {
            return Err(Unreadable::NotJson { content: self.content, tag: self.tag.clone() });
        }
        serde_json::from_slice(&self.bytes).map_err(Unreadable::Json)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let resource = self.resource.as_ref();
        self.bytes.len()
            + resource.map_or(0, |it| size_of::<Resource>() + it.kind.len() + it.id.len())
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("content", &self.content)
            .field("tag", &self.tag.as_str())
            .field("bytes", &format_args!("[{} bytes]", self.bytes.len()))
            .field("resource", &self.resource)
            .finish()
    }
}

/// Why a stored outcome could not be read as the value that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Another codec wrote it, or it was not kept whole.
    #[error("the stored outcome is {content:?} content of codec {tag:?}, not whole JSON")]
    NotJson {
        /// What is stored.
        content: Content,
        /// Its codec.
        tag: Tag,
    },
    /// It is JSON, but not of the expected type; serde's message names the place only.
    #[error("the stored outcome does not fit the expected type")]
    Json(#[source] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_sizes_and_never_bytes() {
        let shown = format!("{:?}", Outcome::whole(Tag::JSON, "canary"));
        assert!(shown.contains("[6 bytes]") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn values_survive_and_wrong_types_are_told() {
        let outcome = Outcome::json(&("paid", 7)).unwrap();
        assert_eq!(outcome.read_json::<(String, u8)>().unwrap(), ("paid".into(), 7));
        assert!(matches!(outcome.read_json::<bool>(), Err(Unreadable::Json(_))));
        let summary = Outcome::omitted(Tag::JSON, "{}");
        assert!(matches!(summary.read_json::<()>(), Err(Unreadable::NotJson { .. })));
    }
}
