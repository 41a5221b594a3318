//! The circuit breaker of an endpoint.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::{Delivery, SinkError};
use crate::event::Aggregate;

/// Tells an endpoint that is down from an event that it refuses.
///
/// Failures in a row of several aggregates open it: further events are not tried. Each call of the
/// sink tries one event first while it is open.
#[derive(Debug)]
pub(super) struct Breaker {
    failures_max: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    failed: BTreeSet<Aggregate>,
    last: Option<SinkError>,
    /// True if the open breaker lets one event pass.
    trying: bool,
}

impl Breaker {
    pub(super) fn new(failures_max: u32) -> Self {
        Self { failures_max: failures_max.max(1), state: Mutex::default() }
    }

    /// Lets one event try an endpoint that is down.
    pub(super) fn begin_call(&self) {
        self.state.lock().trying = true;
    }

    /// Why an event is not tried, if it is not.
    pub(super) fn refusal(&self) -> Option<SinkError> {
        let mut state = self.state.lock();
        if !self.is_open(&state) || std::mem::take(&mut state.trying) {
            return None;
        }
        let last = state.last.as_ref().map_or("", |error| &error.0);
        let failures = state.failures;
        Some(SinkError(format!("the endpoint failed {failures} times in a row: {last}")))
    }

    /// Notes the result of an event.
    pub(super) fn note(&self, aggregate: &Aggregate, result: &Delivery) {
        let mut state = self.state.lock();
        match result {
            Delivery::Failed(error) | Delivery::Unavailable(error) => {
                state.failures += 1;
                state.last = Some(error.clone());
                if state.failed.len() < 2 {
                    state.failed.insert(aggregate.clone());
                }
            }
            Delivery::Delivered | Delivery::Rejected(_) => *state = State::default(),
            Delivery::Held => {}
        }
    }

    fn is_open(&self, state: &State) -> bool {
        state.failures >= self.failures_max && state.failed.len() >= 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Breaker, aggregate: &str) {
        let aggregate = Aggregate::new("order", aggregate).unwrap();
        breaker.note(&aggregate, &Delivery::Failed(SinkError("500".to_owned())));
    }

    #[test]
    fn one_bad_aggregate_does_not_open_it_and_several_do() {
        let breaker = Breaker::new(3);
        (0..10).for_each(|_| fail(&breaker, "a"));
        assert_eq!(breaker.refusal(), None);
        fail(&breaker, "b");
        assert!(breaker.refusal().is_some());
        breaker.begin_call();
        assert_eq!(breaker.refusal(), None, "one tries");
        assert!(breaker.refusal().is_some(), "the others wait");
        breaker.note(&Aggregate::new("order", "b").unwrap(), &Delivery::Delivered);
        assert_eq!(breaker.refusal(), None);
    }
}
