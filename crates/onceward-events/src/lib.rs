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

// A panic here could stop the delivery of events.
#![warn(clippy::unwrap_used, clippy::expect_used)]

mod event;
mod outbox;

pub use event::{
    Aggregate, Event, EventId, HEADERS_MAX, InvalidEvent, LANES, Lane, NAME_CHARS_MAX, Payload,
};
pub use outbox::{MIGRATIONS, Outbox, OutboxSettings, PublishError, Published};
