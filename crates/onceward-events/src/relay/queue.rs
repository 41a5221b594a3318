//! Events that were read and are not delivered yet.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use crate::event::{Aggregate, Lane, StoredEvent};

/// Most events in memory of an aggregate that waits for its next attempt. The others are read again
/// later, so that a failing aggregate does not fill the memory of all.
const WAITING_EVENTS_MAX: usize = 100;

/// Events by aggregate, in their order. An aggregate is in one batch at a time; while it waits or
/// is parked, the others go on.
#[derive(Debug, Default)]
pub(super) struct Queue {
    aggregates: HashMap<Aggregate, Pending>,
    /// Aggregates with events that can be delivered now. An entry may be out of date.
    ready: VecDeque<Aggregate>,
    /// When waiting aggregates become ready. An entry may be out of date.
    due: BinaryHeap<Reverse<(Instant, Aggregate)>>,
    /// Aggregates whose next events have to be read from the table.
    to_read: BTreeSet<Aggregate>,
    parked: BTreeSet<Aggregate>,
    events: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Pending {
    lane: Lane,
    events: VecDeque<Arc<StoredEvent>>,
    /// How many of its first events are in a batch.
    in_flight: usize,
    status: Status,
    attempts: u32,
    /// The position of the last event that was in the queue.
    last: i64,
    /// True if the table has events behind `last` that were passed over.
    passed_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    InFlight,
    Waiting(Instant),
    /// Its events are being read from the table.
    Reading,
    Parked,
}

/// The next step of an aggregate after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Its next events are delivered.
    GoOn,
    /// Its next event is tried again at this time. The attempt counts.
    RetryAt(Instant),
    /// The same, but the attempt does not count, as the sink was down.
    PostponeUntil(Instant),
    /// It waits for an operator.
    Park,
    /// Its events are read again, as one of them may be gone.
    ReadAgain,
}

impl Queue {
    /// Adds an event behind those of its aggregate.
    pub(super) fn push(&mut self, event: StoredEvent) {
        let aggregate = event.aggregate.clone();
        let pending = self.aggregates.entry(aggregate.clone()).or_insert_with(Pending::new(&event));
        if !pending.takes_more() {
            pending.passed_over = true;
            return;
        }
        if pending.status == Status::Ready && pending.events.is_empty() {
            self.ready.push_back(aggregate);
        }
        self.events += 1;
        self.bytes += event.memory_bytes();
        pending.last = event.position;
        pending.events.push_back(Arc::new(event));
    }

    /// Takes up to `limit` events of ready aggregates, all that an aggregate has at once. Aggregates
    /// of lanes that may not be delivered any more are passed over: their lane is dropped soon.
    pub(super) fn take_batch(
        &mut self,
        limit: usize,
        now: Instant,
        may_deliver: impl Fn(Lane) -> bool,
    ) -> Vec<Arc<StoredEvent>> {
        self.make_due_ready(now);
        let mut batch = Vec::new();
        while batch.len() < limit
            && let Some(aggregate) = self.ready.pop_front()
        {
            let Some(pending) = self.aggregates.get_mut(&aggregate) else { continue };
            if pending.status != Status::Ready || !may_deliver(pending.lane) {
                continue;
            }
            pending.status = Status::InFlight;
            pending.in_flight = pending.events.len().min(limit - batch.len());
            batch.extend(pending.events.iter().take(pending.in_flight).cloned());
        }
        batch
    }

    fn make_due_ready(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.due.peek()
            && *at <= now
            && let Some(Reverse((at, aggregate))) = self.due.pop()
        {
            if self.aggregates.get(&aggregate).is_some_and(|it| it.status == Status::Waiting(at)) {
                self.go_on(&aggregate);
            }
        }
    }

    /// Ends the part of an aggregate in a batch: its first `delivered` events are done. Returns the
    /// number of attempts at the next one.
    pub(super) fn finish(&mut self, aggregate: &Aggregate, delivered: usize, after: After) -> u32 {
        let Some(pending) = self.aggregates.get_mut(aggregate) else { return 0 };
        pending.in_flight = 0;
        let done = pending.events.drain(..delivered.min(pending.events.len()));
        for event in done {
            self.events -= 1;
            self.bytes -= event.memory_bytes();
        }
        if delivered > 0 {
            pending.attempts = 0;
        }
        pending.attempts += u32::from(matches!(after, After::RetryAt(_) | After::Park));
        let attempts = pending.attempts;
        match after {
            // An operator parked it while it was in flight.
            _ if pending.status == Status::Parked => {}
            After::GoOn => self.go_on(aggregate),
            After::RetryAt(at) => {
                self.wait(aggregate, at);
                self.pass_over(aggregate, WAITING_EVENTS_MAX);
            }
            After::PostponeUntil(at) => self.wait(aggregate, at),
            After::Park => self.park(aggregate, attempts),
            After::ReadAgain => {
                self.pass_over(aggregate, 0);
                self.go_on(aggregate);
            }
        }
        attempts
    }

    /// Makes an aggregate ready, or asks for its next events, or forgets it if there are none.
    fn go_on(&mut self, aggregate: &Aggregate) {
        let Some(pending) = self.aggregates.get_mut(aggregate) else { return };
        if !pending.events.is_empty() {
            pending.status = Status::Ready;
            self.ready.push_back(aggregate.clone());
        } else if pending.passed_over {
            pending.status = Status::Reading;
            self.to_read.insert(aggregate.clone());
        } else {
            self.aggregates.remove(aggregate);
        }
    }

    fn wait(&mut self, aggregate: &Aggregate, at: Instant) {
        if let Some(pending) = self.aggregates.get_mut(aggregate) {
            pending.status = Status::Waiting(at);
            self.due.push(Reverse((at, aggregate.clone())));
        }
    }

    /// Drops all but the first events of an aggregate from memory.
    fn pass_over(&mut self, aggregate: &Aggregate, keep: usize) {
        let Some(pending) = self.aggregates.get_mut(aggregate) else { return };
        while pending.events.len() > keep
            && let Some(event) = pending.events.pop_back()
        {
            self.events -= 1;
            self.bytes -= event.memory_bytes();
            pending.last = event.position - 1;
            pending.passed_over = true;
        }
    }

    /// Drops all events from memory that are not in a batch, because all are read again.
    pub(super) fn forget_waiting(&mut self) {
        let aggregates: Vec<_> = self.aggregates.keys().cloned().collect();
        for aggregate in aggregates {
            let Some(pending) = self.aggregates.get(&aggregate) else { continue };
            match pending.status {
                Status::Parked => {}
                Status::InFlight => {
                    let in_flight = pending.in_flight;
                    self.pass_over(&aggregate, in_flight);
                    // Until its batch has ended it takes no events: they would come twice.
                    if let Some(pending) = self.aggregates.get_mut(&aggregate) {
                        pending.passed_over = true;
                    }
                }
                Status::Ready | Status::Waiting(_) | Status::Reading => {
                    self.pass_over(&aggregate, 0);
                    self.aggregates.remove(&aggregate);
                }
            }
        }
    }

    /// Parks an aggregate: its events are dropped from memory, and read again when it goes on.
    pub(super) fn park(&mut self, aggregate: &Aggregate, attempts: u32) {
        let pending = self.aggregates.entry(aggregate.clone());
        let pending = pending.or_insert_with(|| Pending::empty(aggregate));
        pending.status = Status::Parked;
        pending.attempts = attempts;
        self.parked.insert(aggregate.clone());
        self.pass_over(aggregate, 0);
        if let Some(pending) = self.aggregates.get_mut(aggregate) {
            // An operator may remove events before it goes on.
            (pending.last, pending.passed_over) = (0, true);
        }
    }

    /// Lets a parked aggregate go on.
    pub(super) fn unpark(&mut self, aggregate: &Aggregate) {
        if let Some(pending) = self.aggregates.get_mut(aggregate)
            && pending.status == Status::Parked
        {
            pending.attempts = 0;
            self.parked.remove(aggregate);
            self.go_on(aggregate);
        }
    }

    /// Continues the attempts of a former relay at an aggregate's next event.
    pub(super) fn continue_attempts(&mut self, aggregate: &Aggregate, attempts: u32, at: Instant) {
        let pending = self.aggregates.entry(aggregate.clone());
        let pending = pending.or_insert_with(|| Pending::empty(aggregate));
        if pending.status == Status::Ready {
            pending.attempts = attempts;
            self.wait(aggregate, at);
        }
    }

    /// Aggregates whose events have to be read, with the position after which.
    pub(super) fn take_unread(&mut self) -> Vec<(Aggregate, i64)> {
        let aggregates = std::mem::take(&mut self.to_read).into_iter();
        let after = |it: Aggregate| {
            let pending = self.aggregates.get(&it).filter(|it| it.status == Status::Reading)?;
            let last = pending.last;
            Some((it, last))
        };
        aggregates.filter_map(after).collect()
    }

    /// Adds events of an aggregate that were read for [`take_unread`](Self::take_unread). `complete` says that
    /// the table had no more.
    pub(super) fn add_read(
        &mut self,
        aggregate: &Aggregate,
        events: Vec<StoredEvent>,
        complete: bool,
    ) {
        let Some(pending) = self.aggregates.get_mut(aggregate) else { return };
        if pending.status != Status::Reading {
            return;
        }
        pending.passed_over = !complete;
        for event in events {
            self.events += 1;
            self.bytes += event.memory_bytes();
            pending.last = event.position;
            pending.events.push_back(Arc::new(event));
        }
        self.go_on(aggregate);
    }

    /// Asks again for events that could not be read.
    pub(super) fn read_again(&mut self, aggregate: Aggregate) {
        self.to_read.insert(aggregate);
    }

    /// Drops all events of a lane that another relay delivers now.
    pub(super) fn drop_lane(&mut self, lane: Lane) {
        self.parked.retain(|aggregate| aggregate.lane() != lane);
        let (events, bytes) = (&mut self.events, &mut self.bytes);
        self.aggregates.retain(|_, pending| {
            if pending.lane != lane {
                return true;
            }
            *events -= pending.events.len();
            *bytes -= pending.events.iter().map(|event| event.memory_bytes()).sum::<usize>();
            false
        });
    }

    /// True if an aggregate of the lane is in a batch.
    pub(super) fn is_in_flight(&self, lane: Lane) -> bool {
        let mut pending = self.aggregates.values();
        pending.any(|it| it.lane == lane && it.status == Status::InFlight)
    }

    /// Failed attempts at the next event of an aggregate.
    pub(super) fn attempts(&self, aggregate: &Aggregate) -> u32 {
        self.aggregates.get(aggregate).map_or(0, |it| it.attempts)
    }

    /// The parked aggregates.
    pub(super) fn parked(&self) -> &BTreeSet<Aggregate> {
        &self.parked
    }

    /// The number of events in memory.
    pub(super) fn len(&self) -> usize {
        self.events
    }

    /// About how many bytes of memory the events take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the next waiting aggregate becomes ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }
}

impl Pending {
    fn new(event: &StoredEvent) -> impl FnOnce() -> Self {
        let aggregate = event.aggregate.clone();
        move || Self::empty(&aggregate)
    }

    fn empty(aggregate: &Aggregate) -> Self {
        Self {
            lane: aggregate.lane(),
            events: VecDeque::new(),
            in_flight: 0,
            status: Status::Ready,
            attempts: 0,
            last: 0,
            passed_over: false,
        }
    }

    fn takes_more(&self) -> bool {
        let full = self.attempts > 0 && self.events.len() >= WAITING_EVENTS_MAX;
        !self.passed_over && self.status != Status::Parked && !full
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onceward_core::Timestamp;

    use super::*;
    use crate::event::{EventBytes, EventId};

    fn order(id: &str) -> Aggregate {
        Aggregate::new("order", id).unwrap()
    }

    fn event(id: &str, position: i64) -> StoredEvent {
        StoredEvent {
            id: EventId::of_name(&position.to_string()),
            aggregate: order(id),
            event_type: "T".to_owned(),
            payload: EventBytes(bytes::Bytes::from_static(b"{}")),
            content_type: "application/json".to_owned(),
            headers: std::collections::BTreeMap::new(),
            operation: None,
            created_at: Timestamp::default(),
            position,
            lane: order(id).lane(),
        }
    }

    fn queue(events: &[(&str, i64)]) -> Queue {
        let mut queue = Queue::default();
        events.iter().for_each(|(id, position)| queue.push(event(id, *position)));
        queue
    }

    fn is_ready(queue: &mut Queue, now: Instant) -> bool {
        queue.make_due_ready(now);
        !queue.ready.is_empty()
    }

    fn positions(batch: &[Arc<StoredEvent>]) -> Vec<i64> {
        batch.iter().map(|event| event.position).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_aggregate_is_in_one_batch_at_a_time_and_others_go_on() {
        let (now, mut queue) = (Instant::now(), queue(&[("a", 1), ("b", 2), ("a", 3)]));
        assert_eq!(positions(&queue.take_batch(2, now, |_| true)), [1, 3]);
        queue.push(event("a", 4));
        assert_eq!(positions(&queue.take_batch(9, now, |_| true)), [2]);
        assert!(queue.take_batch(9, now, |_| true).is_empty());
        queue.finish(&order("a"), 2, After::GoOn);
        assert_eq!(positions(&queue.take_batch(9, now, |_| true)), [4]);
        queue.finish(&order("a"), 1, After::GoOn);
        queue.finish(&order("b"), 1, After::GoOn);
        assert_eq!((queue.len(), queue.bytes(), queue.aggregates.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_stops_its_aggregate_only_and_attempts_are_counted() {
        let (now, mut queue) = (Instant::now(), queue(&[("a", 1), ("b", 2)]));
        let later = now + Duration::from_secs(1);
        queue.take_batch(1, now, |_| true);
        assert_eq!(queue.finish(&order("a"), 0, After::RetryAt(later)), 1);
        assert_eq!(positions(&queue.take_batch(9, now, |_| true)), [2]);
        assert!(!is_ready(&mut queue, now) && is_ready(&mut queue, later));
        assert_eq!(positions(&queue.take_batch(9, later, |_| true)), [1]);
        assert_eq!(queue.finish(&order("a"), 0, After::PostponeUntil(later)), 1, "not counted");
        assert_eq!(positions(&queue.take_batch(9, later, |_| true)), [1]);
        assert_eq!(queue.finish(&order("a"), 0, After::RetryAt(later)), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_aggregate_keeps_few_events_in_memory_and_reads_the_others_again() {
        let (now, mut queue) = (Instant::now(), Queue::default());
        (1..=300).for_each(|position| queue.push(event("a", position)));
        queue.take_batch(1000, now, |_| true);
        queue.finish(&order("a"), 0, After::RetryAt(now));
        assert_eq!(queue.len(), WAITING_EVENTS_MAX);
        queue.push(event("a", 301));
        assert_eq!(queue.len(), WAITING_EVENTS_MAX, "in order, or not at all");
        assert_eq!(queue.take_batch(1000, now, |_| true).len(), WAITING_EVENTS_MAX);
        queue.finish(&order("a"), WAITING_EVENTS_MAX, After::GoOn);
        assert_eq!(queue.take_unread(), [(order("a"), 100)]);
        let rest = (101..=301).map(|position| event("a", position)).collect();
        queue.add_read(&order("a"), rest, true);
        assert_eq!(queue.take_batch(1000, now, |_| true).len(), 201);
        queue.push(event("a", 302));
        queue.finish(&order("a"), 201, After::GoOn);
        assert_eq!(positions(&queue.take_batch(1000, now, |_| true)), [302]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_aggregate_stands_still_and_is_read_anew() {
        let (now, mut queue) = (Instant::now(), queue(&[("a", 1), ("a", 2)]));
        queue.take_batch(9, now, |_| true);
        queue.finish(&order("a"), 0, After::Park);
        queue.push(event("a", 3));
        assert_eq!((queue.len(), is_ready(&mut queue, now)), (0, false));
        assert_eq!(queue.parked().iter().collect::<Vec<_>>(), [&order("a")]);
        queue.unpark(&order("a"));
        assert_eq!(queue.take_unread(), [(order("a"), 0)]);
        queue.push(event("a", 4));
        queue.add_read(&order("a"), vec![event("a", 2), event("a", 3)], false);
        assert_eq!(positions(&queue.take_batch(9, now, |_| true)), [2, 3]);
        queue.finish(&order("a"), 2, After::GoOn);
        assert_eq!(queue.take_unread(), [(order("a"), 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_parked_while_it_is_in_flight_stays_parked() {
        let (now, mut queue) = (Instant::now(), queue(&[("a", 1), ("a", 2)]));
        queue.take_batch(9, now, |_| true);
        queue.park(&order("a"), 0);
        queue.finish(&order("a"), 1, After::GoOn);
        assert!(!is_ready(&mut queue, now));
        assert_eq!(queue.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_is_lost_takes_its_events_with_it() {
        let (now, mut queue) = (Instant::now(), queue(&[("a", 1), ("b", 2)]));
        assert_ne!(order("a").lane(), order("b").lane());
        queue.take_batch(1, now, |_| true);
        assert!(queue.is_in_flight(order("a").lane()));
        queue.drop_lane(order("a").lane());
        assert!(!queue.is_in_flight(order("a").lane()));
        assert_eq!(positions(&queue.take_batch(9, now, |_| true)), [2]);
    }
}
