//! Sinks: where a relay delivers events.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the trait `Sink` |
//! | `http/` | an HTTP endpoint (feature `http`) |
//! | `kafka`, `nats` | Kafka, NATS JetStream (features of the same names) |
//! | `one_by_one` | batches for sinks that deliver one event at a time |
//! | `template` | names of topics and subjects |
//! | `print` | a sink that prints events, for trying |

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod one_by_one;
mod print;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod template;

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::StoredEvent;

#[cfg(feature = "http")]
pub use http::{HttpSink, HttpSinkSettings, InvalidHttpSink, InvalidSecret, WebhookSecret};
#[cfg(feature = "kafka")]
pub use kafka::{InvalidKafkaSink, KafkaSink, KafkaSinkSettings};
#[cfg(feature = "nats")]
pub use nats::{NatsSink, NatsSinkSettings};
pub use one_by_one::{DeliverOne, one_by_one};
pub use print::PrintSink;
#[cfg(any(feature = "kafka", feature = "nats"))]
pub use template::{InvalidTemplate, SubjectTemplate, TopicTemplate};

/// A place that events are delivered to.
///
/// # Contract
///
/// - `deliver` returns one [`Delivery`] for each event, in the order of the events.
/// - Events of one aggregate stand in their order in a batch. A sink delivers none of them after an
///   earlier one of the same aggregate was not delivered: those are [`Delivery::Held`].
/// - *Delivered* means that the event is safe: acknowledged by the broker as durably as it can,
///   or answered by the endpoint with success. An unclear result is not *delivered*: the relay
///   delivers the event again, under the same id.
/// - Batches that are delivered at the same time have no aggregate in common.
/// - A call may be dropped at any point. What was delivered until then is delivered again.
///
/// `onceward_events::conformance` (feature `testkit`) is the suite that every sink passes.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Delivers events.
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery>;

    /// Checks that the sink can be reached with these settings, before the first event.
    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Its name, for logs, metrics and operators.
    fn name(&self) -> &str;
}

/// The result of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It is safe at the sink.
    Delivered,
    /// The sink could not be reached, or did not answer. That is not the event's fault: it is
    /// delivered again, and no attempts are counted.
    Unavailable(SinkError),
    /// The sink refused this event, and may accept it later. Attempts are counted.
    Failed(SinkError),
    /// The sink will never accept this event, for example because it is too large.
    Rejected(SinkError),
    /// It was not tried, because an earlier event of its aggregate was not delivered.
    Held,
}

/// Why a sink did not take an event: text for operators, without secrets and payloads, that names the
/// setting to change where there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

impl SinkError {
    /// An error with the causes that the driver tells.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            let more = cause.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            next = cause.source();
        }
        Self(text)
    }
}
