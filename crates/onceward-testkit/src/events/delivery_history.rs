//! Commits and deliveries of events, and the invariants O1 to O4.
//!
//! - **O1** a committed event is delivered.
//! - **O2** a delivered event was committed.
//! - **O3** deliveries of one id have equal contents.
//! - **O4** the first deliveries of an aggregate follow the order of its commits, without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An event as its publisher or a consumer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedEvent {
    /// Its id.
    pub id: String,
    /// Its aggregate.
    pub aggregate: String,
    /// Its content: payload, type and headers in any fixed form.
    pub content: Vec<u8>,
}

/// Commits and deliveries of a run.
#[derive(Debug, Default)]
pub struct DeliveryHistory {
    /// Events of committed transactions; those of one aggregate in the order of their commits.
    pub committed: Vec<ObservedEvent>,
    /// Events whose transaction may have been committed, since the answer was lost. They stand in
    /// `committed` too.
    pub perhaps_committed: BTreeSet<String>,
    /// Deliveries, those of one aggregate in the order of the consumer.
    pub delivered: Vec<ObservedEvent>,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// O1: it was committed, and not delivered.
    Lost(String),
    /// O2: it was delivered, and not committed.
    NeverCommitted(String),
    /// O3: two deliveries of it differ.
    Changed(String),
    /// O4: it was delivered before an earlier event of its aggregate.
    Overtook {
        /// The event that came too early.
        id: String,
        /// The event that should have come before.
        expected: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(id) => write!(f, "O1: {id} was committed and not delivered"),
            Self::NeverCommitted(id) => write!(f, "O2: {id} was delivered and not committed"),
            Self::Changed(id) => write!(f, "O3: deliveries of {id} differ"),
            Self::Overtook { id, expected } => {
                write!(f, "O4: {id} was delivered before {expected} of the same aggregate")
            }
        }
    }
}

impl DeliveryHistory {
    /// All violations, those of one kind in the order of the events.
    pub fn violations(&self) -> Vec<Violation> {
        let committed: BTreeMap<_, _> = self.committed.iter().map(|it| (&it.id, it)).collect();
        let mut violations = Vec::new();
        let delivered: BTreeSet<_> = self.delivered.iter().map(|it| &it.id).collect();
        for event in &self.committed {
            if !delivered.contains(&event.id) && !self.perhaps_committed.contains(&event.id) {
                violations.push(Violation::Lost(event.id.clone()));
            }
        }
        for delivery in &self.delivered {
            match committed.get(&delivery.id) {
                None => violations.push(Violation::NeverCommitted(delivery.id.clone())),
                Some(event) if **event != *delivery => {
                    violations.push(Violation::Changed(delivery.id.clone()));
                }
                Some(_) => {}
            }
        }
        violations.extend(self.overtaken());
        violations
    }

    /// Panics with the first violations, if there are any.
    pub fn check(&self) {
        let violations = self.violations();
        let shown: Vec<_> = violations.iter().take(10).map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "{} violations in {} deliveries of {} events: {}",
            violations.len(),
            self.delivered.len(),
            self.committed.len(),
            shown.join("; ")
        );
    }

    /// The number of deliveries beyond the first of each event.
    pub fn duplicates(&self) -> usize {
        let ids: BTreeSet<_> = self.delivered.iter().map(|it| &it.id).collect();
        self.delivered.len() - ids.len()
    }

    fn overtaken(&self) -> Vec<Violation> {
        let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let was_delivered: BTreeSet<_> = self.delivered.iter().map(|it| &*it.id).collect();
        // In reverse, so that the next one can be popped. Events that are lost are reported once.
        for event in self.committed.iter().rev().filter(|it| was_delivered.contains(&*it.id)) {
            expected.entry(&event.aggregate).or_default().push(&event.id);
        }
        let (mut seen, mut violations) = (BTreeSet::new(), Vec::new());
        for delivery in &self.delivered {
            if !seen.insert(&delivery.id) {
                continue;
            }
            let Some(next) = expected.get_mut(&*delivery.aggregate) else { continue };
            match next.last().copied() {
                Some(expected) if expected == delivery.id => drop(next.pop()),
                Some(expected) if next.contains(&&*delivery.id) => {
                    violations.push(Violation::Overtook {
                        id: delivery.id.clone(),
                        expected: expected.to_owned(),
                    });
                    next.retain(|id| *id != delivery.id);
                }
                _ => {}
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: &str) -> ObservedEvent {
        let aggregate = id[..1].to_owned();
        ObservedEvent { id: id.to_owned(), aggregate, content: id.as_bytes().to_vec() }
    }

    fn history(committed: &[&str], delivered: &[&str]) -> DeliveryHistory {
        DeliveryHistory {
            committed: committed.iter().map(|id| known(id)).collect(),
            delivered: delivered.iter().map(|id| known(id)).collect(),
            ..DeliveryHistory::default()
        }
    }

    #[test]
    fn duplicates_and_interleaved_aggregates_are_fine() {
        let it = history(&["a1", "a2", "b1"], &["a1", "b1", "a1", "a2", "a1", "a2"]);
        assert_eq!((it.violations(), it.duplicates()), (vec![], 3));
    }

    #[test]
    fn each_violation_is_found() {
        let lost = history(&["a1", "a2"], &["a1"]);
        assert_eq!(lost.violations(), [Violation::Lost("a2".into())]);
        let perhaps = DeliveryHistory {
            perhaps_committed: ["a2".to_owned()].into(),
            ..history(&["a1", "a2"], &["a1"])
        };
        assert_eq!(perhaps.violations(), []);
        let never = history(&["a1"], &["a1", "a2"]);
        assert_eq!(never.violations(), [Violation::NeverCommitted("a2".into())]);
        let mut changed = history(&["a1"], &["a1", "a1"]);
        changed.delivered[1].content = b"other".to_vec();
        assert_eq!(changed.violations(), [Violation::Changed("a1".into())]);
        let overtook = history(&["a1", "a2", "a3"], &["a1", "a3", "a2"]);
        let (id, expected) = ("a3".to_owned(), "a2".to_owned());
        assert_eq!(overtook.violations(), [Violation::Overtook { id, expected }]);
    }
}
