//! Events that are published in the commit of the work that they report, and delivered at least
//! once, in the order of their aggregates, under ids that never change.
//!
//! - [`Outbox::publish`] writes an event within a transaction of PostgreSQL.
//! - The relay delivers it to a sink, and removes it from the outbox.
//!
//! | folder | contents |
//! |---|---|
//! | `event/` | events and their ids |
//! | `outbox/` | the tables, and publishing |
//! | `relay/` | bringing events to a sink |
//! | `sink/` | the trait of sinks |

// A panic here could stop the delivery of events.
#![warn(clippy::unwrap_used, clippy::expect_used)]

mod event;
mod outbox;
mod relay;
mod sink;

pub use event::{
    Aggregate, Event, EventBytes, EventId, HEADERS_MAX, InvalidEvent, LANES, Lane, NAME_CHARS_MAX,
    Payload, StoredEvent,
};
pub use outbox::{MIGRATIONS, Outbox, OutboxSettings, PublishError, Published};
pub use relay::{AggregateTypes, OnFailure, Relay, RelayError, RelaySettings, RelayStatus, Route};
pub use sink::{DeliverOne, Delivery, PrintSink, Sink, SinkError, one_by_one};
#[cfg(feature = "http")]
pub use sink::{HttpSink, HttpSinkSettings, InvalidHttpSink, InvalidSecret, WebhookSecret};
#[cfg(feature = "kafka")]
pub use sink::{InvalidKafkaSink, KafkaSink, KafkaSinkSettings};
#[cfg(any(feature = "kafka", feature = "nats"))]
pub use sink::{InvalidTemplate, SubjectTemplate, TopicTemplate};
#[cfg(feature = "nats")]
pub use sink::{NatsSink, NatsSinkSettings};
