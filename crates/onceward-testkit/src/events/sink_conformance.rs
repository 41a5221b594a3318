//! The suite that every sink passes.
//!
//! ```no_run
//! # use onceward_testkit::events::sink_conformance::{SinkFixture, exercise};
//! # async fn test(fixture: &dyn SinkFixture) {
//! exercise(fixture).await;
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use onceward_core::Timestamp;
use onceward_events::{Aggregate, Delivery, EventBytes, EventId, Sink, StoredEvent};
use tokio::time::timeout;

/// Longest time for one call of a sink.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A sink with its server, for the suite.
#[async_trait]
pub trait SinkFixture: Send + Sync {
    /// The sink. The suite delivers events of the aggregate types `order` and `customer`.
    fn sink(&self) -> Arc<dyn Sink>;

    /// Everything that consumers of the server get, in its order for each aggregate. Waits until
    /// they have at least `count` messages, and fails if that takes too long.
    async fn received(&self, count: usize) -> Vec<Received>;

    /// Makes the server unreachable, or reachable again. Returns false if this fixture cannot.
    async fn set_reachable(&self, reachable: bool) -> bool;

    /// A payload that the server never accepts, if there is one: too large, for example.
    fn refused_payload(&self) -> Option<Bytes> {
        None
    }
}

/// A message as a consumer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The event's id.
    pub id: String,
    /// The event's type.
    pub event_type: String,
    /// The id of its aggregate.
    pub aggregate_id: String,
    /// The payload.
    pub payload: Bytes,
    /// The content type.
    pub content_type: String,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
}

/// Runs all facts on one sink.
pub async fn exercise(fixture: &dyn SinkFixture) {
    Suite { fixture, sent: AtomicI64::new(0) }.run().await;
}

struct Suite<'a> {
    fixture: &'a dyn SinkFixture,
    /// Events so far, which gives each one another id.
    sent: AtomicI64,
}

impl Suite<'_> {
    async fn run(&self) {
        self.fixture.sink().check().await.expect("a sink that is up accepts its settings");
        let delivered = self.a_consumer_gets_all_of_an_event().await;
        let delivered = delivered + self.order_is_kept_within_an_aggregate().await;
        let delivered = delivered + self.an_event_is_the_same_when_it_is_delivered_again().await;
        let delivered = delivered + self.a_refused_event_holds_its_aggregate_only().await;
        self.a_server_that_is_down_is_no_fault_of_the_event(delivered).await;
        self.nothing_to_deliver_is_delivered().await;
    }

    fn event(&self, kind: &str, aggregate: &str, payload: Bytes) -> Arc<StoredEvent> {
        let position = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let aggregate = Aggregate::new(kind, aggregate).expect("a valid aggregate");
        Arc::new(StoredEvent {
            id: EventId::of_name(&format!("sink conformance {position}")),
            event_type: format!("Event{position}"),
            payload: EventBytes(payload),
            content_type: "application/json".to_owned(),
            headers: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
            operation: None,
            created_at: Timestamp::from_millis(1_795_000_000_000),
            position,
            lane: aggregate.lane(),
            aggregate,
        })
    }

    fn small(&self, aggregate: &str) -> Arc<StoredEvent> {
        let number = self.sent.load(Ordering::SeqCst);
        self.event("order", aggregate, Bytes::from(format!("{{\"number\":{number}}}")))
    }

    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        let sink = self.fixture.sink();
        let delivering = timeout(CALL_TIMEOUT, sink.deliver(events));
        let results = delivering.await.expect("a sink answers in time");
        assert_eq!(results.len(), events.len(), "one result for each event");
        results
    }

    async fn deliver_all(&self, events: &[Arc<StoredEvent>]) {
        for (event, result) in events.iter().zip(self.deliver(events).await) {
            assert_eq!(result, Delivery::Delivered, "{event:?}");
        }
    }

    async fn a_consumer_gets_all_of_an_event(&self) -> usize {
        let text = self.small("whole/Ä 1");
        let bytes = Arc::new(StoredEvent {
            content_type: "application/octet-stream".to_owned(),
            ..(*self.event("customer", "whole", Bytes::from_static(&[0, 255, 10, 13, 0]))).clone()
        });
        let events = [text, bytes];
        self.deliver_all(&events).await;
        let received = self.fixture.received(2).await;
        for event in &events {
            let got = received.iter().find(|it| it.id == event.id.to_string());
            let got = got.unwrap_or_else(|| panic!("{event:?} did not arrive"));
            assert_eq!(got, &expected(event));
        }
        2
    }

    async fn order_is_kept_within_an_aggregate(&self) -> usize {
        let aggregates = ["a", "b", "c"];
        let mut batches = Vec::new();
        for _ in 0..4 {
            let mut batch = Vec::new();
            for aggregate in aggregates {
                batch.extend((0..25).map(|_| self.small(aggregate)));
            }
            batches.push(batch);
        }
        for batch in &batches {
            self.deliver_all(batch).await;
        }
        let all: Vec<_> = batches.into_iter().flatten().collect();
        let received = self.fixture.received(all.len()).await;
        for aggregate in aggregates {
            let ids = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>();
            let sent = all.iter().filter(|it| it.aggregate.id() == aggregate);
            let got = received.iter().filter(|it| it.aggregate_id == aggregate);
            assert_eq!(
                ids(&mut got.map(|it| it.id.clone())),
                ids(&mut sent.map(|it| it.id.to_string())),
                "{aggregate}"
            );
        }
        all.len()
    }

    async fn an_event_is_the_same_when_it_is_delivered_again(&self) -> usize {
        let event = [self.small("again")];
        self.deliver_all(&event).await;
        self.deliver_all(&event).await;
        let received = self.fixture.received(1).await;
        let got: Vec<_> = received.iter().filter(|it| it.id == event[0].id.to_string()).collect();
        assert!(!got.is_empty() && got.iter().all(|it| **it == expected(&event[0])), "{got:?}");
        got.len()
    }

    async fn a_refused_event_holds_its_aggregate_only(&self) -> usize {
        let Some(payload) = self.fixture.refused_payload() else { return 0 };
        let refused = self.event("order", "refused", payload);
        let events = [self.small("refused"), refused, self.small("refused"), self.small("other")];
        let results = self.deliver(&events).await;
        assert_eq!(results[0], Delivery::Delivered, "the event before it");
        let named = matches!(&results[1], Delivery::Rejected(error) if !error.0.is_empty());
        assert!(named, "{:?} is no rejection with a reason", results[1]);
        assert_eq!(results[2], Delivery::Held, "the event behind it");
        assert_eq!(results[3], Delivery::Delivered, "another aggregate");
        let received = self.fixture.received(2).await;
        let held = events[2].id.to_string();
        assert!(received.iter().all(|it| it.id != held), "an event that is held was delivered");
        self.deliver_all(&events[2..3]).await;
        3
    }

    async fn a_server_that_is_down_is_no_fault_of_the_event(&self, delivered: usize) {
        if !self.fixture.set_reachable(false).await {
            return;
        }
        let events = [self.small("down"), self.small("down"), self.small("also down")];
        for result in self.deliver(&events).await {
            let no_fault = matches!(result, Delivery::Unavailable(_) | Delivery::Held);
            assert!(no_fault, "{result:?} while the server is down");
        }
        assert!(self.fixture.set_reachable(true).await);
        let mut left = events.to_vec();
        for _ in 0..60 {
            let results = self.deliver(&left).await;
            let not_delivered = |(event, result)| (result != Delivery::Delivered).then_some(event);
            left = left.into_iter().zip(results).filter_map(not_delivered).collect();
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(left.is_empty(), "not delivered after the server came back: {left:?}");
        let received = self.fixture.received(delivered + events.len()).await;
        let mut ids: Vec<_> = received
            .iter()
            .filter(|it| it.aggregate_id == "down")
            .map(|it| it.id.clone())
            .collect();
        ids.dedup();
        let sent: Vec<_> = events[..2].iter().map(|it| it.id.to_string()).collect();
        assert!(ids.starts_with(&sent), "{ids:?} is not in the order {sent:?}");
    }

    async fn nothing_to_deliver_is_delivered(&self) {
        assert!(self.deliver(&[]).await.is_empty());
    }
}

fn expected(event: &StoredEvent) -> Received {
    Received {
        id: event.id.to_string(),
        event_type: event.event_type.clone(),
        aggregate_id: event.aggregate.id().to_owned(),
        payload: event.payload.0.clone(),
        content_type: event.content_type.clone(),
        headers: event.headers.clone(),
    }
}
