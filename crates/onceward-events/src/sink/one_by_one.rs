//! Batches for sinks that deliver one event at a time.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};

use super::Delivery;
use crate::event::StoredEvent;

/// Delivers single events. [`one_by_one`] keeps a sink's contract with it.
#[async_trait]
pub trait DeliverOne: Send + Sync {
    /// Delivers one event.
    async fn deliver_one(&self, event: &StoredEvent) -> Delivery;
}

/// Delivers a batch, one event after the other within an aggregate, and up to `at_once` aggregates at
/// the same time. Events behind one that was not delivered are [`Delivery::Held`].
pub async fn one_by_one(
    to: &impl DeliverOne,
    events: &[Arc<StoredEvent>],
    at_once: usize,
) -> Vec<Delivery> {
    let mut aggregates = Vec::new();
    for events in events.chunk_by(|one, next| one.aggregate == next.aggregate) {
        aggregates.push(in_order(to, events));
    }
    // In order, so that the results stand where their events do.
    let results: Vec<_> = stream::iter(aggregates).buffered(at_once.max(1)).collect().await;
    results.into_iter().flatten().collect()
}

async fn in_order(to: &impl DeliverOne, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
    let mut results = Vec::with_capacity(events.len());
    for event in events {
        let result = to.deliver_one(event).await;
        let delivered = result == Delivery::Delivered;
        results.push(result);
        if !delivered {
            break;
        }
    }
    results.resize(events.len(), Delivery::Held);
    results
}
