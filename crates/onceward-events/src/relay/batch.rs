//! Batches on their way to the sink.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::database::FencedLane;
use crate::event::{Lane, StoredEvent};
use crate::sink::{Delivery, Sink, SinkError};

/// Batches that the sink works on.
pub(super) struct Batches {
    sink: Arc<dyn Sink>,
    limit: Duration,
    running: JoinSet<Vec<AggregateResult>>,
}

/// The result of an aggregate's part of a batch.
#[derive(Debug)]
pub(super) struct AggregateResult {
    /// Its events, in order.
    pub(super) events: Vec<Arc<StoredEvent>>,
    /// Its lane, with the fence that the relay had when the batch began.
    pub(super) lane: FencedLane,
    /// How many of its first events were delivered.
    pub(super) delivered: usize,
    /// The result of the event after those, if any.
    pub(super) failure: Option<Delivery>,
}

impl Batches {
    pub(super) fn new(sink: Arc<dyn Sink>, limit: Duration) -> Self {
        Self { sink, limit, running: JoinSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Delivers a batch in the background.
    pub(super) fn start(&mut self, events: Vec<Arc<StoredEvent>>, fences: BTreeMap<Lane, i64>) {
        let (sink, limit) = (Arc::clone(&self.sink), self.limit);
        self.running.spawn(async move {
            let results = deliver(&*sink, &events, limit).await;
            by_aggregate(events, results, &fences)
        });
    }

    /// The next batch that has ended, if one has.
    pub(super) fn ended(&mut self) -> Option<Vec<AggregateResult>> {
        self.running.try_join_next()?.ok()
    }

    /// Waits for the next batch to end; for ever if none is running.
    pub(super) async fn next(&mut self) -> Vec<AggregateResult> {
        match self.running.join_next().await {
            Some(Ok(results)) => results,
            // Not reached: a panic of the sink is caught.
            Some(Err(_)) => Vec::new(),
            None => std::future::pending().await,
        }
    }
}

async fn deliver(sink: &dyn Sink, events: &[Arc<StoredEvent>], limit: Duration) -> Vec<Delivery> {
    let delivering = AssertUnwindSafe(sink.deliver(events)).catch_unwind();
    let failure = match timeout(limit, delivering).await {
        Ok(Ok(results)) if results.len() == events.len() => return results,
        Ok(Ok(results)) => format!("{} results for {} events", results.len(), events.len()),
        Ok(Err(_)) => "the sink panicked".to_owned(),
        Err(_) => format!("no answer within {limit:?}"),
    };
    vec![Delivery::Unavailable(SinkError(failure)); events.len()]
}

/// Groups results by aggregate: its events are neighbours in a batch.
fn by_aggregate(
    events: Vec<Arc<StoredEvent>>,
    results: Vec<Delivery>,
    fences: &BTreeMap<Lane, i64>,
) -> Vec<AggregateResult> {
    let mut grouped: Vec<AggregateResult> = Vec::new();
    for (event, result) in events.into_iter().zip(results) {
        let same = grouped.last().and_then(|last| last.events.first());
        if same.is_none_or(|first| first.aggregate != event.aggregate) {
            let fence = fences.get(&event.lane).copied().unwrap_or_default();
            let lane = FencedLane { lane: event.lane, fence };
            grouped.push(AggregateResult { events: Vec::new(), lane, delivered: 0, failure: None });
        }
        let Some(group) = grouped.last_mut() else { continue };
        group.events.push(event);
        match result {
            Delivery::Delivered if group.failure.is_none() => group.delivered += 1,
            // Behind a failure, whatever the sink says: it is delivered again, in order.
            Delivery::Delivered | Delivery::Held => {}
            failure if group.failure.is_none() => group.failure = Some(failure),
            _ => {}
        }
    }
    grouped
}
