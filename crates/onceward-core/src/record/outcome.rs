//! Outcomes: results of operations, as they are stored and replayed.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::intent::OperationId;

/// The stored result of an operation. The core never decodes it: `tag` names the codec of the
/// bytes.
///
/// `Debug` shows the size and never the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Part of the reply that the bytes hold.
    pub content: Content,
    /// The codec of the bytes, for example `json/v1`.
    pub tag: Tag,
    /// The bytes.
    pub bytes: Bytes,
    /// The resource that the operation created or changed, for people and for lookups.
    pub resource: Option<Box<Resource>>,
    /// The HTTP status of the reply, for people and for lookups. A replay takes its status from the
    /// bytes.
    pub status: Option<u16>,
    /// The error code of a failure, for people and for lookups.
    pub error_code: Option<ErrorCode>,
}

/// Part of the reply that an [`Outcome`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The whole reply, replayed byte for byte.
    Whole,
    /// A reference from which a [`Rebuilder`](crate::Rebuilder) makes the reply, for replies too
    /// sensitive to keep.
    Reference,
    /// A summary of a reply that was not kept, for example because it was too large. The
    /// operation happened, but its reply cannot be replayed.
    Omitted,
}

/// Name and version of the codec of an outcome's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(Cow<'static, str>);

impl Tag {
    /// Codec of [`Outcome::json`].
    pub const JSON: Tag = Tag::from_static("json/v1");

    /// Codec of [`Outcome::invalidated`], which has no bytes.
    pub const INVALIDATED: Tag = Tag::from_static("invalidated/v1");

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

/// A business resource, which operators search for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Its kind, for example `payment`.
    pub kind: String,
    /// Its id, for example `pay_789`.
    pub id: String,
}

impl Resource {
    /// Kind and id, for log lines.
    #[doc(hidden)]
    pub fn as_text(&self) -> String {
        format!("{}/{}", self.kind, self.id)
    }
}

/// The error code of a failure, such as `card_declined`: 1 to [`ErrorCode::BYTES_MAX`] visible
/// ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ErrorCode(Box<str>);

impl ErrorCode {
    /// Codes are names and not messages.
    pub const BYTES_MAX: usize = 64;

    /// A code; `None` if the text is empty, too long, or has other characters.
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=Self::BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.into()))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An earlier outcome, to be answered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The operation's id.
    pub operation: OperationId,
    /// How it ended.
    pub ended: Ended,
    /// Its outcome.
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

impl Ended {
    /// The name of the record's state, in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl Outcome {
    /// A whole reply.
    pub fn whole(tag: Tag, bytes: impl Into<Bytes>) -> Self {
        Self {
            content: Content::Whole,
            tag,
            bytes: bytes.into(),
            resource: None,
            status: None,
            error_code: None,
        }
    }

    /// A reference from which the reply is rebuilt at each replay.
    pub fn reference(tag: Tag, reference: impl Into<Bytes>) -> Self {
        Self { content: Content::Reference, ..Self::whole(tag, reference) }
    }

    /// A summary in place of a reply that is not kept.
    pub fn omitted(tag: Tag, summary: impl Into<Bytes>) -> Self {
        Self { content: Content::Omitted, ..Self::whole(tag, summary) }
    }

    /// The remains of an outcome that must not be replayed any more, because a correction of data
    /// has removed the effect. Status, error code and resource stay, for people and for lookups.
    #[must_use]
    pub fn invalidated(&self) -> Self {
        let Self { resource, status, error_code, .. } = self.clone();
        let remains = Self::omitted(Tag::INVALIDATED, Bytes::new());
        Self { resource, status, error_code, ..remains }
    }

    /// True if it was [invalidated](Self::invalidated).
    pub fn is_invalidated(&self) -> bool {
        self.content == Content::Omitted && self.tag == Tag::INVALIDATED && self.bytes.is_empty()
    }

    /// A whole value as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::whole(Tag::JSON, serde_json::to_vec(value)?))
    }

    /// Adds the resource that the operation created or changed.
    #[must_use]
    pub fn with_resource(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.resource = Some(Box::new(Resource { kind: kind.into(), id: id.into() }));
        self
    }

    /// Adds the HTTP status of the reply.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Adds the error code of a failure, if there is one.
    #[must_use]
    pub fn with_error_code(self, error_code: Option<ErrorCode>) -> Self {
        Self { error_code, ..self }
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
            + self.error_code.as_ref().map_or(0, |code| code.as_str().len())
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("content", &self.content)
            .field("tag", &self.tag.as_str())
            .field("bytes", &format_args!("[{} bytes]", self.bytes.len()))
            .field("resource", &self.resource)
            .field("status", &self.status)
            .field("error_code", &self.error_code)
            .finish()
    }
}

/// Why a stored outcome cannot be read as the expected type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It has another codec, or is not whole.
    #[error("the stored outcome is {content:?} content of codec {tag:?}, not whole JSON")]
    NotJson {
        /// Its content.
        content: Content,
        /// Its codec.
        tag: Tag,
    },
    /// It is JSON, but not of the expected type. Serde's message tells only the position.
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
    fn an_error_code_is_a_short_token() {
        assert_eq!(ErrorCode::new("card_declined").unwrap().as_str(), "card_declined");
        assert!(ErrorCode::new(&"x".repeat(64)).is_some());
        let wrong = ["", "two words", "tab\t", "\u{e9}", &"x".repeat(65)];
        assert!(wrong.into_iter().all(|text| ErrorCode::new(text).is_none()));
    }

    #[test]
    fn values_come_back_and_wrong_types_are_errors() {
        let outcome = Outcome::json(&("paid", 7)).unwrap();
        assert_eq!(outcome.read_json::<(String, u8)>().unwrap(), ("paid".into(), 7));
        assert!(matches!(outcome.read_json::<bool>(), Err(Unreadable::Json(_))));
        let summary = Outcome::omitted(Tag::JSON, "{}");
        assert!(matches!(summary.read_json::<()>(), Err(Unreadable::NotJson { .. })));
    }
}
