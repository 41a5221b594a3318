//! Events: what a service publishes about an aggregate.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Event`, its parts and its limits |
//! | `event_id` | ids that are derived from an operation |
//! | `stored_event` | events as a relay reads them |
//! | `lane` | the lane and the lock of an aggregate |

mod event_id;
mod lane;
mod stored_event;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

pub use event_id::EventId;
pub use lane::{LANES, Lane};
pub use stored_event::{EventBytes, StoredEvent};

/// Longest aggregate type, aggregate id, event type, content type or header name: the length of
/// Kafka's topic names and of most systems' keys.
pub const NAME_CHARS_MAX: usize = 255;

/// Most headers of an event: enough for tracing and routing.
pub const HEADERS_MAX: usize = 64;

/// An event: something that happened to an aggregate, to be published in the commit that made it
/// happen.
///
/// ```
/// use onceward_events::Event;
///
/// #[derive(serde::Serialize)]
/// struct OrderCreated { order: u64, cents: u32 }
///
/// # fn main() -> Result<(), onceward_events::InvalidEvent> {
/// let event = Event::json("order", "42", "OrderCreated", &OrderCreated { order: 42, cents: 1999 })?
///     .header("tenant", "acme")?;
/// assert_eq!(event.aggregate().id(), "42");
/// # Ok(())
/// # }
/// ```
///
/// `Debug` shows the payload's size and never its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    id: Option<EventId>,
    aggregate: Aggregate,
    event_type: String,
    payload: Payload,
    headers: BTreeMap<String, String>,
}

/// The unit that keeps its order: events of one aggregate are delivered in the order of their
/// commits. Across aggregates there is no order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aggregate {
    kind: String,
    id: String,
}

/// The content of an event.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// JSON text. PostgreSQL stores it as `jsonb`, which keeps values but neither blanks nor the
    /// order of members: consumers of one event always get the same text.
    Json(String),
    /// Bytes with their content type, delivered as they are.
    Bytes {
        /// For example `application/protobuf`.
        content_type: String,
        /// The bytes.
        bytes: Bytes,
    },
}

/// Why an event cannot be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEvent {
    /// A name is empty, too long, or has control characters.
    #[error(
        "the {part} {name:?} is not valid: 1 to {NAME_CHARS_MAX} characters, no control characters"
    )]
    Name {
        /// The part of the event.
        part: &'static str,
        /// The name, at most its first 64 characters.
        name: String,
    },
    /// The value is not JSON, or PostgreSQL cannot store it as `jsonb`.
    #[error(
        "the payload of the {event_type} event is not JSON that PostgreSQL can store: {reason}"
    )]
    Json {
        /// The event's type.
        event_type: String,
        /// The problem.
        reason: String,
    },
    /// A header's value has control characters.
    #[error("the value of the header {name:?} has control characters")]
    HeaderValue {
        /// The header.
        name: String,
    },
    /// There are too many headers.
    #[error("an event has at most {HEADERS_MAX} headers")]
    TooManyHeaders,
    /// Payload and headers are larger than the outbox allows.
    #[error(
        "the {event_type} event of {aggregate} has {bytes} bytes, more than the {max} of \
         `OutboxSettings::event_bytes_max`: publish a reference to the data, or raise the limit here, \
         at the relay's sink and at its broker"
    )]
    TooLarge {
        /// The event's type.
        event_type: String,
        /// Its aggregate.
        aggregate: Aggregate,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

impl Event {
    /// An event with a JSON payload, about the aggregate `aggregate_id` of the kind
    /// `aggregate_type`.
    pub fn json<T: Serialize + ?Sized>(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
        payload: &T,
    ) -> Result<Self, InvalidEvent> {
        let event_type = event_type.into();
        let unfit = |reason: String| InvalidEvent::Json { event_type: event_type.clone(), reason };
        let text = serde_json::to_string(payload).map_err(|error| unfit(error.to_string()))?;
        if has_nul_escape(&text) {
            return Err(unfit("a string has the character U+0000".to_owned()));
        }
        Self::new(aggregate_type.into(), aggregate_id.into(), event_type, Payload::Json(text))
    }

    /// An event with a payload of any content type.
    pub fn bytes(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
        content_type: impl Into<String>,
        bytes: impl Into<Bytes>,
    ) -> Result<Self, InvalidEvent> {
        let content_type = name("content type", content_type.into())?;
        let payload = Payload::Bytes { content_type, bytes: bytes.into() };
        Self::new(aggregate_type.into(), aggregate_id.into(), event_type.into(), payload)
    }

    fn new(
        kind: String,
        id: String,
        event_type: String,
        payload: Payload,
    ) -> Result<Self, InvalidEvent> {
        Ok(Self {
            id: None,
            aggregate: Aggregate::new(kind, id)?,
            event_type: name("event type", event_type)?,
            payload,
            headers: BTreeMap::new(),
        })
    }

    /// Gives the event an id of its own, for callers without an operation, such as a cron job. The
    /// same event must get the same id whenever it is published again.
    ///
    /// Without one, the id is derived from the operation that claimed the transaction.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// Adds a header, for example a trace's id.
    pub fn header(
        mut self,
        header: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Self, InvalidEvent> {
        let (header, value) = (name("header", header.into())?, value.into());
        if value.chars().any(char::is_control) {
            return Err(InvalidEvent::HeaderValue { name: header });
        }
        self.headers.insert(header, value);
        if self.headers.len() > HEADERS_MAX {
            return Err(InvalidEvent::TooManyHeaders);
        }
        Ok(self)
    }

    /// The id that the publisher gave it.
    pub fn id(&self) -> Option<EventId> {
        self.id
    }

    /// Its aggregate.
    pub fn aggregate(&self) -> &Aggregate {
        &self.aggregate
    }

    /// Its type, such as `OrderCreated`.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// Its payload.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Its headers.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// Fails if payload and headers are larger than this.
    pub(crate) fn check_size(&self, max: usize) -> Result<(), InvalidEvent> {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = self.payload.bytes().len() + headers;
        if bytes <= max {
            return Ok(());
        }
        let (event_type, aggregate) = (self.event_type.clone(), self.aggregate.clone());
        Err(InvalidEvent::TooLarge { event_type, aggregate, bytes, max })
    }
}

impl Aggregate {
    /// Checks the kind and the id of an aggregate.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Result<Self, InvalidEvent> {
        let kind = name("aggregate type", kind.into())?;
        Ok(Self { kind, id: name("aggregate id", id.into())? })
    }

    /// Its kind, such as `order`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The lane that delivers its events.
    pub fn lane(&self) -> Lane {
        Lane::of(self)
    }
}

impl std::fmt::Display for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

impl Payload {
    /// The bytes to deliver.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Bytes { bytes, .. } => bytes,
        }
    }

    /// The content type of the bytes.
    pub fn content_type(&self) -> &str {
        match self {
            Self::Json(_) => "application/json",
            Self::Bytes { content_type, .. } => content_type,
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{} bytes of {}]", self.bytes().len(), self.content_type())
    }
}

fn name(part: &'static str, name: String) -> Result<String, InvalidEvent> {
    let valid = !name.is_empty()
        && name.chars().count() <= NAME_CHARS_MAX
        && !name.chars().any(char::is_control);
    if valid {
        return Ok(name);
    }
    Err(InvalidEvent::Name { part, name: name.chars().take(64).collect() })
}

/// True if a string of a JSON text has an escaped U+0000, which `jsonb` cannot store.
fn has_nul_escape(json: &str) -> bool {
    let mut rest = json.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at..].starts_with(b"\\u0000") {
            return true;
        }
        // Skips the escaped character, which may be a backslash itself.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(payload: &str) -> Result<Event, InvalidEvent> {
        Event::json("order", "42", "OrderCreated", payload)
    }

    #[test]
    fn names_are_checked() {
        for wrong in ["", "a\nb", "\u{0}", &"x".repeat(256)] {
            assert!(Aggregate::new(wrong, "1").is_err(), "{wrong:?}");
            assert!(Aggregate::new("order", wrong).is_err(), "{wrong:?}");
            assert!(Event::json("order", "1", wrong, "").is_err(), "{wrong:?}");
        }
        assert!(Aggregate::new("Bestellung", "№ 42/ä").is_ok());
        assert!(Aggregate::new("x".repeat(255), "1").is_ok());
    }

    #[test]
    fn json_that_postgresql_cannot_store_is_refused() {
        assert!(matches!(event("a\u{0}b"), Err(InvalidEvent::Json { .. })));
        assert!(event(r"a\u0000b").is_ok(), "a backslash and text, not a character");
        assert!(event("\\\u{1}").is_ok());
    }

    #[test]
    fn sizes_are_payload_and_headers() {
        let event = event("123456").unwrap().header("ab", "cd").unwrap();
        assert_eq!(event.check_size(12), Ok(()));
        let refused = event.check_size(11).unwrap_err().to_string();
        assert!(refused.contains("12 bytes") && refused.contains("order/42"), "{refused}");
    }

    #[test]
    fn debug_shows_no_payload() {
        let shown = format!("{:?}", event("canary").unwrap());
        assert!(shown.contains("[8 bytes of application/json]") && !shown.contains("canary"));
    }
}
