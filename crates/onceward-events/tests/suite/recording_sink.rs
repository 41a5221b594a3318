//! A sink that records what it gets, and fails on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use onceward_events::{Delivery, EventId, Sink, SinkError, StoredEvent};

/// A sink that records events. It also checks its contract: no aggregate in two calls at a time.
#[derive(Default)]
pub(crate) struct RecordingSink {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: Vec<Arc<StoredEvent>>,
    /// Types of events that are refused.
    refused: BTreeSet<String>,
    rejected: BTreeSet<String>,
    down: bool,
    calls: usize,
    delay: Duration,
    in_calls: BTreeSet<String>,
}

impl RecordingSink {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Refuses events of a type from now on.
    pub(crate) fn refuse(&self, event_type: &str) {
        self.state().refused.insert(event_type.to_owned());
    }

    /// Says that it will never accept events of a type.
    pub(crate) fn reject(&self, event_type: &str) {
        self.state().rejected.insert(event_type.to_owned());
    }

    /// Accepts everything from now on.
    pub(crate) fn accept(&self) {
        let mut state = self.state();
        state.refused.clear();
        state.rejected.clear();
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Takes this long for each call.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    pub(crate) fn calls(&self) -> usize {
        self.state().calls
    }

    /// The types of an aggregate's events in the order of their first delivery.
    pub(crate) fn types_of(&self, aggregate: &str) -> Vec<String> {
        let first = self.first_deliveries();
        let of = first.into_iter().filter(|event| event.aggregate.id() == aggregate);
        of.map(|event| event.event_type.clone()).collect()
    }

    /// All events in the order of their first delivery.
    pub(crate) fn first_deliveries(&self) -> Vec<Arc<StoredEvent>> {
        let mut seen = BTreeSet::new();
        let events = self.state().events.clone();
        events.into_iter().filter(|event| seen.insert(event.id)).collect()
    }

    /// How often each event was delivered.
    pub(crate) fn deliveries(&self) -> BTreeMap<EventId, usize> {
        let mut count = BTreeMap::new();
        for event in &self.state().events {
            *count.entry(event.id).or_default() += 1;
        }
        count
    }

    fn deliver_one(
        state: &mut State,
        event: &Arc<StoredEvent>,
        held: &BTreeSet<String>,
    ) -> Delivery {
        let error = |text: &str| SinkError(text.to_owned());
        if state.down {
            return Delivery::Unavailable(error("down on demand"));
        }
        if held.contains(&event.aggregate.to_string()) {
            return Delivery::Held;
        }
        if state.refused.contains(&event.event_type) {
            return Delivery::Failed(error("refused on demand"));
        }
        if state.rejected.contains(&event.event_type) {
            return Delivery::Rejected(error("rejected on demand"));
        }
        state.events.push(Arc::clone(event));
        Delivery::Delivered
    }
}

/// The end of a call.
struct Leaves<'a> {
    sink: &'a RecordingSink,
    aggregates: BTreeSet<String>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.sink.state().in_calls.retain(|aggregate| !self.aggregates.contains(aggregate));
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        let aggregates: BTreeSet<_> = events.iter().map(|it| it.aggregate.to_string()).collect();
        let delay = {
            let mut state = self.state();
            state.calls += 1;
            for aggregate in &aggregates {
                assert!(state.in_calls.insert(aggregate.clone()), "{aggregate} in two calls");
            }
            state.delay
        };
        // Also at the end of a relay that was aborted.
        let _leaves = Leaves { sink: self, aggregates };
        tokio::time::sleep(delay).await;
        let mut held = BTreeSet::new();
        let mut state = self.state();
        let results = events.iter().map(|event| {
            let delivery = Self::deliver_one(&mut state, event, &held);
            if delivery != Delivery::Delivered {
                held.insert(event.aggregate.to_string());
            }
            delivery
        });
        results.collect()
    }

    fn name(&self) -> &str {
        "recording"
    }
}
