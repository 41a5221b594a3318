//! Events as a relay reads them.

use std::collections::BTreeMap;

use bytes::Bytes;
use onceward_core::{OperationId, Timestamp};

use super::{Aggregate, EventId, Lane};

/// A published event, on its way to a sink.
///
/// Equal ids have equal contents, however often an event is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id.
    pub id: EventId,
    /// Its aggregate, which keeps its order.
    pub aggregate: Aggregate,
    /// Its type, such as `OrderCreated`.
    pub event_type: String,
    /// Its content.
    pub payload: EventBytes,
    /// The content type of the payload.
    pub content_type: String,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// The operation that published it, if there is one.
    pub operation: Option<OperationId>,
    /// When it was published, on the database's clock.
    pub created_at: Timestamp,
    /// Its position in the outbox: increasing within its aggregate.
    pub position: i64,
    /// The lane of its aggregate.
    pub lane: Lane,
}

/// The bytes of a payload. `Debug` shows their number.
#[derive(Clone, PartialEq, Eq)]
pub struct EventBytes(pub Bytes);

impl std::ops::Deref for EventBytes {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.0
    }
}

impl std::fmt::Debug for EventBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

impl StoredEvent {
    /// About how many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        size_of::<Self>() + self.payload.len() + headers + 2 * self.aggregate.id().len()
    }
}
