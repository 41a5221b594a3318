//! The conformance suite on the sinks of this crate, and on sinks that break their contract.

#[cfg(feature = "http")]
mod http_sink;
#[cfg(feature = "kafka")]
mod kafka_sink;
#[cfg(feature = "nats")]
mod nats_sink;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use onceward_core::Timestamp;
use onceward_events::{
    Aggregate, Delivery, EventBytes, EventId, PrintSink, Sink, SinkError, StoredEvent,
};
use onceward_testkit::events::sink_conformance::{Received, SinkFixture, exercise};

/// The printed bytes.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn printing_shows_one_line_for_each_event_and_no_bytes() {
    let printed = Printed::default();
    let sink = PrintSink::to(printed.clone());
    let server = InMemory { sink: Arc::default(), mistake: Mistake::None };
    exercise(&server).await;
    let events = server.sink.lock().unwrap().clone();
    assert!(sink.deliver(&events).await.iter().all(|it| *it == Delivery::Delivered));
    let text = String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), events.len());
    assert!(text.contains("[5 bytes of application/octet-stream]"), "{text}");
}

/// A way to break the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    DeliversBehindAFailure,
    SaysDeliveredToo,
    Reverses,
    LosesHeaders,
    ForgetsAResult,
    CallsARefusalAnOutage,
}

/// A sink to a list in memory, and its consumer.
struct InMemory {
    sink: Arc<Mutex<Vec<Arc<StoredEvent>>>>,
    mistake: Mistake,
}

const TOO_LARGE: usize = 1_000;

#[async_trait]
impl Sink for InMemory {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        let mut list = self.sink.lock().unwrap();
        let (mut held, mut results, mut delivered) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            let behind = held.contains(&event.aggregate);
            results.push(if event.payload.len() > TOO_LARGE {
                held.push(event.aggregate.clone());
                match self.mistake {
                    Mistake::SaysDeliveredToo => Delivery::Delivered,
                    Mistake::CallsARefusalAnOutage => Delivery::Unavailable(SinkError("no".into())),
                    _ => Delivery::Rejected(SinkError("too large".into())),
                }
            } else if behind && self.mistake != Mistake::DeliversBehindAFailure {
                Delivery::Held
            } else {
                delivered.push(Arc::clone(event));
                Delivery::Delivered
            });
        }
        match self.mistake {
            Mistake::Reverses => delivered.reverse(),
            Mistake::ForgetsAResult => drop(results.pop()),
            Mistake::LosesHeaders => {
                for event in &mut delivered {
                    Arc::make_mut(event).headers.clear();
                }
            }
            _ => {}
        }
        list.extend(delivered);
        results
    }

    fn name(&self) -> &str {
        "memory"
    }
}

#[async_trait]
impl SinkFixture for InMemory {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(Self { sink: Arc::clone(&self.sink), mistake: self.mistake })
    }

    async fn received(&self, _: usize) -> Vec<Received> {
        let received = |event: &Arc<StoredEvent>| Received {
            id: event.id.to_string(),
            event_type: event.event_type.clone(),
            aggregate_id: event.aggregate.id().to_owned(),
            payload: event.payload.0.clone(),
            content_type: event.content_type.clone(),
            headers: event.headers.clone(),
        };
        self.sink.lock().unwrap().iter().map(received).collect()
    }

    async fn set_reachable(&self, _: bool) -> bool {
        false
    }

    fn refused_payload(&self) -> Option<Bytes> {
        Some(Bytes::from(vec![b'x'; TOO_LARGE + 1]))
    }
}

/// The suite is worth something only if it finds what it is for.
#[tokio::test]
async fn the_suite_finds_sinks_that_break_their_contract() {
    for mistake in [
        Mistake::DeliversBehindAFailure,
        Mistake::SaysDeliveredToo,
        Mistake::Reverses,
        Mistake::LosesHeaders,
        Mistake::ForgetsAResult,
        Mistake::CallsARefusalAnOutage,
    ] {
        let broken = InMemory { sink: Arc::default(), mistake };
        let found = AssertUnwindSafe(exercise(&broken)).catch_unwind().await.is_err();
        assert!(found, "{mistake:?} was not found");
    }
}

/// A small event about an order.
pub(crate) fn stored_event(order: &str, number: i64) -> Arc<StoredEvent> {
    event_of("order", order, number)
}

pub(crate) fn event_of(kind: &str, id: &str, number: i64) -> Arc<StoredEvent> {
    let aggregate = Aggregate::new(kind, id).unwrap();
    Arc::new(StoredEvent {
        id: EventId::of_name(&number.to_string()),
        event_type: "OrderCreated".to_owned(),
        payload: EventBytes(Bytes::from_static(b"{}")),
        content_type: "application/json".to_owned(),
        headers: BTreeMap::new(),
        operation: None,
        created_at: Timestamp::from_millis(0),
        position: number,
        lane: aggregate.lane(),
        aggregate,
    })
}
